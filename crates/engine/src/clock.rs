//! The clocks: monotonic for the protocol, real time for completion timestamps.

use feroce_proto::Instant;
use rustix::time::{ClockId, clock_gettime};

/// Now, on the monotonic clock that never steps.
#[inline]
pub(crate) fn now() -> Instant {
    Instant::from_nanos(nanos(ClockId::Monotonic))
}

/// Nanoseconds of real time.
#[inline]
pub(crate) fn realtime_nanos() -> u64 {
    nanos(ClockId::Realtime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Both parts are positive after 1970.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
