//! How a thread that waits for a socket is woken when another thread has changed it.
//!
//! Every thread that waits polls the descriptors of the device, and a bell of its own. Whoever
//! takes completions off a queue rings the bells of all others that wait for the same socket:
//! what they wait for may have happened in another's hands.

use std::cell::RefCell;
use std::sync::Arc;

use super::sys::Bell;
use super::table;
use crate::guard::Failure;

thread_local! {
    /// The bell of this thread, and the process that it was made in.
    static BELL: RefCell<Option<(u32, Arc<Bell>)>> = const { RefCell::new(None) };
}

/// The bell of the calling thread.
pub(crate) fn bell() -> Result<Arc<Bell>, Failure> {
    let generation = table::generation();
    BELL.with_borrow_mut(|place| match place {
        Some((made_in, bell)) if *made_in == generation => Ok(Arc::clone(bell)),
        _ => {
            let bell = Arc::new(Bell::new()?);
            *place = Some((generation, Arc::clone(&bell)));
            Ok(bell)
        }
    })
}

/// The threads that wait for a socket.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Arc<Bell>>);

impl Watchers {
    /// A thread begins to wait.
    pub(crate) fn add(&mut self, bell: &Arc<Bell>) {
        self.0.push(Arc::clone(bell));
    }

    /// It ends; the same thread may wait twice, for one socket in two places of its list.
    pub(crate) fn remove(&mut self, bell: &Arc<Bell>) {
        let is_it = |other: &Arc<Bell>| Arc::ptr_eq(other, bell);
        if let Some(place) = self.0.iter().position(is_it) {
            self.0.swap_remove(place);
        }
    }

    /// The socket has changed in the hands of the thread whose bell is `own`.
    pub(crate) fn ring(&self, own: Option<&Arc<Bell>>) {
        for bell in &self.0 {
            if own.is_none_or(|own| !Arc::ptr_eq(own, bell)) {
                bell.ring();
            }
        }
    }
}
