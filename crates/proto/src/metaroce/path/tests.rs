//! One path without a connection: samples, gaps, probes.

use super::*;
use crate::metaroce::congestion::Fixed;

const TIMING: Timing = Timing {
    ack_delay_max: Duration::from_micros(10),
    grain: Duration::from_micros(5),
    rtt_initial: Duration::from_micros(50),
    probe_interval_max: Duration::from_millis(100),
};

impl Path {
    /// Goes on as if `number` packets had been sent and acknowledged.
    pub(in crate::metaroce) const fn jump(&mut self, number: u32) {
        self.next = PacketNumber(number);
        self.base = self.next;
    }
}

fn micros(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn path() -> Path {
    Path::new(0, 0, 0xc000, AnyWindow::Fixed(Fixed(1 << 20)))
}

/// A piece that can be told from others.
fn piece(segment: u32) -> Piece {
    Piece::Request {
        stream: StreamRef {
            index: 0,
            incarnation: 1,
        },
        message: MessageNumber(0),
        segment,
    }
}

fn send(path: &mut Path, at: u64, segments: core::ops::Range<u32>) {
    for segment in segments {
        path.sent(micros(at), piece(segment), 1000, false, &TIMING);
    }
}

/// An acknowledgement of `highest` without the `missing` ones before it.
fn acknowledge(path: &mut Path, at: u64, highest: u32, missing: &[u32], delay: u32) -> Outcome {
    let mut vector = Vector([0xff; 32]);
    for number in missing {
        let bit = highest - number - 1;
        vector.0[(bit / 8) as usize] &= !(1 << (bit % 8));
    }
    let received = highest + 1 - u32::try_from(missing.len()).unwrap();
    let ack = Ack {
        vector,
        delay_nanos: delay,
        received,
        marked: 0,
        share: 0,
        updates: feroce_wire::metaroce::Updates(&[]),
    };
    let mut outcome = Outcome::default();
    path.acknowledged(
        micros(at),
        PacketNumber(highest),
        &ack,
        &TIMING,
        &mut outcome,
    );
    outcome
}

//= MR-PTH-008 type=test
#[test]
fn the_highest_number_gives_a_sample_less_the_delay() {
    let mut path = path();
    send(&mut path, 0, 0..2);
    send(&mut path, 4, 2..3);
    acknowledge(&mut path, 30, 2, &[], 6_000);
    // 26 us since the sending of number 2, less 6.
    let twenty = Duration::from_micros(20);
    assert_eq!(
        (path.rtt.smoothed, path.rtt.variation),
        (twenty, twenty / 2)
    );
    send(&mut path, 100, 3..4);
    acknowledge(&mut path, 128, 3, &[], 0);
    // RFC 6298 with 28 us: 7/8 of 20 and 1/8 of 28; 3/4 of 10 and 1/4 of 8.
    assert_eq!(path.rtt.smoothed, Duration::from_micros(21));
    assert_eq!(path.rtt.variation, Duration::from_nanos(9_500));
    assert_eq!(path.rtt.least, twenty);
    // One that was acknowledged before is no sample.
    acknowledge(&mut path, 500, 3, &[], 0);
    assert_eq!(path.rtt.smoothed, Duration::from_micros(21));
}

//= MR-REL-011 type=test
#[test]
fn tolerance_grows_with_what_overtook_and_halves_with_time() {
    let mut path = path();
    send(&mut path, 0, 0..10);
    assert_eq!(acknowledge(&mut path, 20, 5, &[2], 0).lost, [piece(2)]);
    // Number 2 has arrived after all, 7 behind the highest.
    let late = acknowledge(&mut path, 21, 9, &[], 0);
    assert_eq!(late.arrived_late, [piece(2)]);
    assert_eq!(path.counters.spurious, 1);
    assert_eq!(path.tolerance, 7);
    // Seven places are borne now, eight are not.
    send(&mut path, 30, 10..19);
    assert_eq!(acknowledge(&mut path, 50, 17, &[10], 0).lost, []);
    assert_eq!(acknowledge(&mut path, 51, 18, &[10], 0).lost, [piece(10)]);
    // What was sent a quarter of a round trip earlier is lost all the same.
    send(&mut path, 100, 19..20);
    send(&mut path, 110, 20..21);
    assert_eq!(acknowledge(&mut path, 130, 20, &[19], 0).lost, [piece(19)]);
    let before = path.tolerance;
    for number in 21..21 + TOLERANCE_DECAY {
        send(&mut path, 200, number..number + 1);
        acknowledge(&mut path, 220, number, &[], 0);
    }
    assert_eq!(path.tolerance, before / 2);
}

//= MR-REL-011 type=test
#[test]
fn tolerance_has_a_limit() {
    let mut path = path();
    send(&mut path, 0, 0..201);
    assert_eq!(acknowledge(&mut path, 20, 100, &[0], 0).lost, [piece(0)]);
    acknowledge(&mut path, 21, 200, &[], 0);
    assert_eq!(path.tolerance, 64);
}

//= MR-REL-014 type=test
#[test]
fn what_was_never_sent_is_not_judged() {
    let mut path = path();
    send(&mut path, 0, 0..4);
    let outcome = acknowledge(&mut path, 20, 4, &[0, 1], 0);
    assert_eq!((outcome.acknowledged.len(), outcome.lost.len()), (0, 0));
    assert_eq!(path.in_flight(), 4000);
    // After a change of the port, nothing of the old epoch is there to be judged.
    path.rebind(0xc001);
    let outcome = acknowledge(&mut path, 21, 3, &[], 0);
    assert_eq!((outcome.acknowledged.len(), outcome.lost.len()), (0, 0));
}

//= MR-PTH-010 type=test
#[test]
fn a_probe_is_due_after_the_probe_time() {
    let mut path = path();
    send(&mut path, 0, 0..1);
    // Nothing measured yet: the assumed round trip, the grain, the delay.
    assert_eq!(path.probe_at, Some(micros(65)));
    acknowledge(&mut path, 20, 0, &[], 0);
    assert_eq!(path.probe_at, None, "nothing is in flight");
    send(&mut path, 100, 1..2);
    // 20 us, four times 10, and 10.
    assert_eq!(path.probe_at, Some(micros(170)));
    path.rtt.variation = Duration::ZERO;
    // The grain is longer than the variation now.
    assert_eq!(path.probe_timeout(&TIMING), Duration::from_micros(35));
}

//= MR-PTH-011 type=test
//= MR-PTH-012 type=test
#[test]
fn three_probe_times_make_a_path_suspect_and_an_answer_makes_it_active() {
    let mut path = path();
    send(&mut path, 0, 0..3);
    let mut gaps = Vec::new();
    for turn in 1..=20 {
        let due = path.probe_at.expect("it is probed on");
        gaps.push(due.since(path.progress).as_micros());
        let suspect = path.time_out(due, &TIMING);
        assert_eq!(suspect, turn == 3, "the third makes it suspect, once");
        assert_eq!(path.state == PathState::Suspect, turn >= 3);
        assert_eq!(path.has_room(), turn < 3);
        if suspect {
            let mut lost = Vec::new();
            path.give_up(&mut lost);
            assert_eq!(lost[..3], [piece(0), piece(1), piece(2)]);
        }
        path.sent(due, Piece::Probe, 100, true, &TIMING);
    }
    assert_eq!(gaps[..6], [65, 65, 65, 130, 260, 520]);
    assert_eq!(gaps.iter().max(), Some(&100_000));
    let window = path.window.bytes();
    let last = path.next_number().0 - 1;
    let at = path.progress.nanos() / 1000 + 20;
    acknowledge(&mut path, at, last, &[], 0);
    assert!(path.has_room());
    assert_eq!(path.window.bytes(), window);
}

//= MR-PTH-005 type=test
#[test]
fn numbers_end_before_they_come_back() {
    let mut path = path();
    path.jump((1 << 31) - 1);
    assert!(path.has_room());
    send(&mut path, 0, 0..1);
    assert!(!path.has_room() && path.is_worn_out());
    path.rebind(0xc001);
    assert!(path.has_room());
    assert_eq!(
        (path.epoch, path.next_number()),
        (Epoch(1), PacketNumber(0))
    );
}
