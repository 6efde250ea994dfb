//! C structs that programs hold, with their Rust part behind them.
//!
//! Programs get a pointer to a C struct of verbs.h. It is the front of one allocation:
//!
//! ```text
//!             program's pointer
//!             v
//! | ext.  ... | C struct ...     | Rust part |      ibv_context: `verbs_context` lies before it
//!             | C struct ... ext | Rust part |      ibv_qp, ibv_cq, ibv_device: their larger
//!                                                   forms begin with them
//! ```
//!
//! Before the Rust part stands which process made the object: after a `fork` the child has copies
//! of its parent's objects, which lead nowhere ([`crate::fork`]).
//!
//! So a pointer to either form leads to the Rust part without a table, and pointers are compared,
//! cast (`ibv_cq_ex_to_cq`) and dereferenced by programs as verbs.h promises. The C struct belongs
//! to the program as much as to us: it is read and written through raw pointers, never referenced.
//!
//! Not here: what the Rust parts are (the module of each object), and events ([`Ledger`] only
//! counts them).

use std::mem::offset_of;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use feroce_verbs_abi as abi;

use crate::fork;
use crate::guard::Failure;

/// A C struct that programs hold pointers to.
///
/// # Safety
/// `Allocated` contains `Self` at byte `OFFSET`.
pub(crate) unsafe trait CStruct: Sized {
    /// The largest form of the struct, which is what is allocated.
    type Allocated;
    /// Where the struct that the program sees lies in it, in bytes.
    const OFFSET: usize;
    /// For messages.
    const NAME: &'static str;
}

macro_rules! c_structs {
    ($($name:ident in $allocated:ident at $offset:expr;)*) => {
        $(
            // SAFETY: the offset is that of the member, or 0 where the larger form begins with the
            // fields of the smaller one; `cargo xtask abi` compares both with the C headers.
            unsafe impl CStruct for abi::$name {
                type Allocated = abi::$allocated;
                const OFFSET: usize = $offset;
                const NAME: &'static str = stringify!($name);
            }
            const _: () = assert!(
                $offset + size_of::<abi::$name>() <= size_of::<abi::$allocated>()
            );
        )*
    };
}

c_structs! {
    ibv_ah in ibv_ah at 0;
    ibv_comp_channel in ibv_comp_channel at 0;
    ibv_comp_cntr in ibv_comp_cntr at 0;
    ibv_context in verbs_context at offset_of!(abi::verbs_context, context);
    ibv_counters in ibv_counters at 0;
    ibv_cq in ibv_cq_ex at 0;
    ibv_device in verbs_device at offset_of!(abi::verbs_device, device);
    ibv_dm in ibv_dm at 0;
    ibv_mr in ibv_mr at 0;
    ibv_mw in ibv_mw at 0;
    ibv_pd in ibv_pd at 0;
    ibv_qp in ibv_qp_ex at offset_of!(abi::ibv_qp_ex, qp_base);
    ibv_srq in ibv_srq at 0;
    ibv_td in ibv_td at 0;
    ibv_xrcd in ibv_xrcd at 0;
}

/// One allocation: the C struct in its largest form, then the Rust part.
#[repr(C)]
struct Object<C: CStruct, R> {
    c: C::Allocated,
    /// [`fork::generation`] when it was made.
    born: u32,
    rust: R,
}

/// Makes an object and returns the pointer for the program. Freed by [`release`].
pub(crate) fn create<C: CStruct, R>(c: C::Allocated, rust: R) -> *mut C {
    let born = fork::generation();
    let object: *mut Object<C, R> = Box::into_raw(Box::new(Object { c, born, rust }));
    object.wrapping_byte_add(C::OFFSET).cast()
}

fn object<C: CStruct, R>(pointer: *mut C) -> Result<*mut Object<C, R>, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!(
            "the {} is a null pointer",
            C::NAME
        )));
    }
    Ok(pointer.wrapping_byte_sub(C::OFFSET).cast())
}

/// The Rust part of an object.
///
/// # Safety
/// `pointer` is null or came from [`create`] with the same `R`, and is not released while the
/// result lives.
#[inline]
pub(crate) unsafe fn rust<'a, C: CStruct, R>(pointer: *mut C) -> Result<&'a R, Failure> {
    let object = object::<C, R>(pointer)?;
    // SAFETY: the caller's contract: the object is live.
    if unsafe { (*object).born } != fork::generation() {
        return Err(inherited(C::NAME));
    }
    // SAFETY: the caller's contract: the object is live. Nothing ever makes a `&mut` to its Rust
    // part while it is, so shared references may coexist.
    Ok(unsafe { &(*object).rust })
}

/// Whether an object is a copy of one of the process that forked this one.
///
/// # Safety
/// `pointer` is null or came from [`create`], and was not released.
pub(crate) unsafe fn is_inherited<C: CStruct>(pointer: *mut C) -> bool {
    // Where the mark stands does not depend on the Rust part behind it.
    object::<C, ()>(pointer).is_ok_and(|object| {
        // SAFETY: the caller's contract.
        unsafe { (*object).born != fork::generation() }
    })
}

#[cold]
fn inherited(name: &str) -> Failure {
    Failure::new(
        libc::EPERM,
        format!(
            "the {name} belongs to the process that forked this one; open the device here, after \
             the fork"
        ),
    )
}

/// The Rust part of an object that stays valid in a forked child, because nothing in it is shared
/// with other threads or the network.
///
/// # Safety
/// As for [`rust`].
pub(crate) unsafe fn inheritable<'a, C: CStruct, R>(pointer: *mut C) -> Result<&'a R, Failure> {
    let object = object::<C, R>(pointer)?;
    // SAFETY: the caller's contract: the object is live. Nothing ever makes a `&mut` to its Rust
    // part while it is, so shared references may coexist.
    Ok(unsafe { &(*object).rust })
}

/// The largest form of an object's C struct, to read and write through.
pub(crate) fn allocated<C: CStruct>(pointer: *mut C) -> *mut C::Allocated {
    pointer.wrapping_byte_sub(C::OFFSET).cast()
}

/// Takes an object back; the pointer is dead afterwards.
///
/// # Safety
/// As for [`rust`], and no reference to the Rust part is left.
pub(crate) unsafe fn release<C: CStruct, R>(pointer: *mut C) -> Result<R, Failure> {
    // SAFETY: the caller's contract.
    unsafe { rust::<C, R>(pointer) }?;
    let object = object::<C, R>(pointer)?;
    // SAFETY: the caller's contract: `create` boxed it with these types, and nobody uses it.
    let boxed = unsafe { Box::from_raw(object) };
    Ok(boxed.rust)
}

/// Events handed to the program and not yet acknowledged.
///
/// `ibv_destroy_cq` and its kin wait until the program has acknowledged every event it fetched, so
/// that it never holds an event of a dead object. verbs.h has a mutex, a condition and counters in
/// the C struct for this, which only the library uses; they stay zero, the ledger does their work.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    open: Mutex<Open>,
    settled: Condvar,
}

/// What a ledger knows.
#[derive(Debug, Default)]
struct Open {
    events: u64,
    /// Somebody waits for all to be acknowledged: telling nobody would cost a system call, too.
    awaited: bool,
}

impl Ledger {
    fn open(&self) -> MutexGuard<'_, Open> {
        // A number is never half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event was handed to the program.
    pub(crate) fn deliver(&self) {
        self.open().events += 1;
    }

    /// The program acknowledged some. More than were delivered is its mistake, and no harm.
    pub(crate) fn acknowledge(&self, events: u32) {
        let mut open = self.open();
        open.events = open.events.saturating_sub(events.into());
        if open.events == 0 && open.awaited {
            self.settled.notify_all();
        }
    }

    /// Waits until everything delivered is acknowledged.
    pub(crate) fn settle(&self) {
        let mut open = self.open();
        while open.events > 0 {
            open.awaited = true;
            open = self
                .settled
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_program_sees_the_c_struct_and_we_find_the_rust_part() {
        let dropped = Arc::new(());
        let c = abi::ibv_mr {
            lkey: 5,
            ..Default::default()
        };
        let mr = create::<abi::ibv_mr, _>(c, (9_u64, Arc::clone(&dropped)));
        // SAFETY: `mr` is live until `release`.
        unsafe {
            assert_eq!((*mr).lkey, 5);
            (*mr).rkey = 6;
            assert_eq!(rust::<_, (u64, Arc<()>)>(mr).unwrap().0, 9);
            let (number, _) = release::<_, (u64, Arc<()>)>(mr).unwrap();
            assert_eq!(number, 9);
        }
        assert_eq!(Arc::strong_count(&dropped), 1, "the Rust part leaked");
    }

    #[test]
    fn a_context_is_found_through_either_of_its_forms() {
        let c = abi::verbs_context {
            sz: 77,
            ..Default::default()
        };
        let context = create::<abi::ibv_context, _>(c, 3_u32);
        assert_eq!(abi::verbs_context_of(context), allocated(context));
        // SAFETY: `context` is live until `release`.
        unsafe {
            assert_eq!((*abi::verbs_context_of(context)).sz, 77);
            assert_eq!(*rust::<_, u32>(context).unwrap(), 3);
            release::<_, u32>(context).unwrap();
        }
    }

    #[test]
    fn a_queue_pair_and_its_extended_form_are_one_pointer() {
        let c = abi::ibv_qp_ex {
            wr_id: 4,
            ..Default::default()
        };
        let qp = create::<abi::ibv_qp, _>(c, 1_u8);
        let extended: *mut abi::ibv_qp_ex = qp.cast();
        // SAFETY: `qp` is live until `release`.
        unsafe {
            assert_eq!((*extended).wr_id, 4);
            release::<_, u8>(qp).unwrap();
        }
    }

    #[test]
    fn null_is_refused_by_name() {
        // SAFETY: null is allowed.
        let failure = unsafe { rust::<abi::ibv_pd, u8>(ptr::null_mut()) }.unwrap_err();
        assert_eq!(failure, Failure::invalid("the ibv_pd is a null pointer"));
    }

    #[test]
    fn settling_waits_for_the_last_acknowledgement() {
        let ledger = Ledger::default();
        let acknowledged = AtomicBool::new(false);
        ledger.settle();
        ledger.deliver();
        ledger.deliver();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ledger.settle();
                assert!(
                    acknowledged.load(Ordering::SeqCst),
                    "settled with an event open"
                );
            });
            ledger.acknowledge(1);
            std::thread::yield_now();
            acknowledged.store(true, Ordering::SeqCst);
            ledger.acknowledge(1);
        });
    }

    #[test]
    fn acknowledging_too_much_does_not_hide_later_events() {
        let ledger = Ledger::default();
        ledger.acknowledge(7);
        ledger.deliver();
        assert_eq!(ledger.open().events, 1);
    }
}
