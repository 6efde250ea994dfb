//! What a thread does while it polls and nothing happens: it stands aside at times, and gives up
//! in the end.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// A run in which nothing completes for this long is given up.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Counts polls without news, and lets others run in between: the other end may share the
/// processor.
#[derive(Debug, Default)]
pub(super) struct Idle {
    polls: u32,
}

impl Idle {
    /// Polls after which others may run: few, because that is how long the other end waits if
    /// both share a processor, but enough not to slow down polling if they do not.
    const YIELD_POLLS: u32 = 8;

    /// A poll has found something, or not. Returns whether the thread stood aside.
    pub(super) fn polled(&mut self, news: bool) -> bool {
        if news {
            self.polls = 0;
            return false;
        }
        self.polls += 1;
        let aside = self.polls == Self::YIELD_POLLS;
        if aside {
            self.polls = 0;
            std::thread::yield_now();
        }
        aside
    }
}

/// Notices when nothing happens for too long.
#[derive(Debug, Default)]
pub(super) struct Watch {
    idle: Idle,
    since: Option<Instant>,
}

impl Watch {
    /// A poll has found something, or not.
    ///
    /// # Errors
    /// If none has for ten seconds.
    pub(super) fn polled(&mut self, news: bool) -> Result<()> {
        let aside = self.idle.polled(news);
        if news {
            self.since = None;
        } else if aside {
            let now = Instant::now();
            let since = *self.since.get_or_insert(now);
            if now - since > STALL_MAX {
                bail!("nothing completed for {} seconds", STALL_MAX.as_secs());
            }
        }
        Ok(())
    }
}
