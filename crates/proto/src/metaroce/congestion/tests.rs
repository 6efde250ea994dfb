//! One window without a connection.

use super::*;

const RTT: Duration = Duration::from_micros(20);

const BOUNDS: Bounds = Bounds {
    floor: 1_000,
    ceiling: 1_000_000,
    step: 4_000,
    whole: false,
};

/// A round of `received` packets of which `marked` were marked.
const fn round(number: u64, received: u32, marked: u32) -> Feedback {
    Feedback {
        now: Instant::from_nanos((number + 1) * 20_000),
        bytes: 0,
        received,
        marked,
        lost: 0,
        rtt: RTT,
        rtt_min: RTT,
        limited: true,
    }
}

fn window() -> Aimd {
    Aimd::new(Instant::ZERO, 100_000)
}

//= MR-CC-002 type=test
#[test]
fn marks_shrink_a_window_by_half_their_share_once_in_a_round() {
    let mut aimd = window();
    // All marked: the share is taken as half of this round's at least, and halved again.
    aimd.acknowledged(&round(0, 10, 10), &BOUNDS);
    assert_eq!(aimd.bytes(), 75_000);
    // In the middle of a round nothing moves.
    let mut early = round(0, 10, 10);
    early.now = early.now + RTT / 2;
    aimd.acknowledged(&early, &BOUNDS);
    assert_eq!(aimd.bytes(), 75_000);
    // The smoothed share comes to one with weight 1/4, and then a round takes half.
    for number in 1..40 {
        aimd.acknowledged(&round(number, 10, 10), &BOUNDS);
    }
    assert_eq!(aimd.marked_share(), ONE);
    aimd.restart(Instant::ZERO, 0);
    let mut steady = window();
    steady.marked_share = ONE;
    steady.acknowledged(&round(0, 10, 10), &BOUNDS);
    assert_eq!(steady.bytes(), 50_000);
    let mut fresh = window();
    fresh.acknowledged(&round(0, 4, 1), &BOUNDS);
    assert_eq!(fresh.marked_share(), ONE / 16);
}

//= MR-CC-002 type=test
#[test]
fn for_a_whole_connection_the_share_counts_squared() {
    let whole = Bounds {
        whole: true,
        ..BOUNDS
    };
    let shrunk = |bounds: &Bounds| {
        let mut aimd = window();
        aimd.marked_share = ONE / 4;
        aimd.acknowledged(&round(0, 4, 1), bounds);
        100_000 - aimd.bytes()
    };
    // An eighth, and a thirty-second.
    assert_eq!((shrunk(&BOUNDS), shrunk(&whole)), (12_500, 3_125));
}

//= MR-CC-003 type=test
#[test]
fn a_window_that_was_the_limit_grows_by_its_step() {
    let mut aimd = window();
    aimd.acknowledged(&round(0, 10, 0), &BOUNDS);
    assert_eq!(aimd.bytes(), 104_000);
    let idle = Feedback {
        limited: false,
        ..round(1, 10, 0)
    };
    aimd.acknowledged(&idle, &BOUNDS);
    assert_eq!(aimd.bytes(), 104_000);
}

//= MR-CC-004 type=test
#[test]
fn loss_counts_with_delay_only() {
    let lost = |rtt: Duration, marked| {
        let mut aimd = window();
        let feedback = Feedback {
            lost: 30_000,
            limited: false,
            rtt,
            now: Instant::from_nanos(1_000_000),
            ..round(0, 10, marked)
        };
        aimd.acknowledged(&feedback, &BOUNDS);
        aimd.bytes()
    };
    assert_eq!(lost(RTT, 0), 100_000);
    assert_eq!(lost(RTT * 3 / 2, 0), 100_000);
    assert_eq!(lost(RTT * 3 / 2 + Duration::from_nanos(1), 0), 70_000);
}

//= MR-CC-005 type=test
#[test]
fn a_target_that_shrinks_is_obeyed_at_once() {
    let mut aimd = window();
    let small = Bounds {
        ceiling: 10_000,
        ..BOUNDS
    };
    let early = Feedback {
        now: Instant::from_nanos(1),
        ..round(0, 1, 0)
    };
    aimd.acknowledged(&early, &small);
    assert_eq!(aimd.bytes(), 10_000);
}
