//! The clocks: monotonic for the protocol, real time for completion timestamps.

use feroce_proto::Instant;
use rustix::time::Timespec;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What [`now`] counts from: a little before it is asked first, so that it never answers 0.
static START: LazyLock<std::time::Instant> = LazyLock::new(|| {
    let now = std::time::Instant::now();
    now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
});

/// Now, on the monotonic clock that never steps.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::from_nanos(nanos(START.elapsed()))
}

/// Nanoseconds of real time.
#[inline]
pub(crate) fn realtime_nanos() -> u64 {
    nanos(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// A span as the kernel takes it.
pub(crate) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// 584 years fit.
const fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + time.subsec_nanos() as u64
}
