//! DCQCN between two devices: marks, CNPs, rates.

use crate::testing::{BASE, Fate, Pair, Setup, ok, read, write};
use crate::{AttributeMask, CongestionControl, DcqcnParameters, QpAttributes, QpType};
use core::time::Duration;

fn dcqcn() -> Setup {
    Setup::new(QpType::Rc).with(|s| {
        s.config.congestion = CongestionControl::Dcqcn(DcqcnParameters {
            line_rate: 1_000_000_000,
            ..DcqcnParameters::default()
        });
        s.timeout = 14;
        s.memory = 4 << 20;
    })
}

/// Time for `a` to write 4 MiB.
fn time_to_write(pair: &mut Pair) -> u64 {
    let start = pair.now;
    pair.a.post(write(1).len(4 << 20));
    while pair.a.host.completions.is_empty() {
        pair.step();
    }
    pair.now.nanos() - start.nanos()
}

#[test]
fn packets_say_that_they_can_be_marked() {
    let mut pair = dcqcn().connect();
    pair.a.post(write(1));
    let _ = pair.a.nic.poll_transmit(pair.now, 1, &mut pair.a.host);
    assert_eq!(pair.a.host.sent[0].to.traffic_class, 2);
}

#[test]
fn marks_are_answered_by_a_cnp_per_interval() {
    let mut pair = dcqcn().connect();
    pair.script(|words, _| {
        if words.starts_with("a write") {
            Fate::Mark
        } else {
            Fate::Pass
        }
    });
    let time = time_to_write(&mut pair);
    let trace = pair.trace();
    let cnps = trace.iter().filter(|words| *words == "b cnp").count() as u64;
    assert!(cnps >= 2);
    assert!(cnps <= time / 50_000 + 1, "{cnps} in {time} ns");
    assert_eq!(pair.a.nic.counters().rp_cnp_handled, cnps);
    assert_eq!(pair.b.nic.counters().np_cnp_sent, cnps);
    assert_eq!(pair.b.nic.counters().np_ecn_marked_roce_packets, 4096);
}

#[test]
fn cnps_slow_the_sender_down_and_it_recovers() {
    let mut calm = dcqcn().connect();
    let undisturbed = time_to_write(&mut calm);
    let mut pair = dcqcn().connect();
    pair.script(|words, _| {
        if words.starts_with("a write") {
            Fate::Mark
        } else {
            Fate::Pass
        }
    });
    let congested = time_to_write(&mut pair);
    assert!(congested > 5 * undisturbed, "{congested} {undisturbed}");
    pair.script(|_, _| Fate::Pass);
    pair.a.completions();
    pair.run_for(Duration::from_millis(500));
    let recovered = time_to_write(&mut pair);
    assert!(
        recovered <= undisturbed,
        "an undisturbed sender is not paced: {recovered}"
    );
    pair.a.completions();
    pair.run_until_idle();
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    pair.assert_nothing_in_flight();
}

#[test]
fn read_responses_are_slowed_down_too() {
    let mut pair = dcqcn().connect();
    pair.b.fill(BASE, 1 << 20, 1);
    pair.script(|words, _| {
        if words.starts_with("b resp") {
            Fate::Mark
        } else {
            Fate::Pass
        }
    });
    pair.a.post(read(1).at(BASE + (1 << 20), 1 << 20));
    while pair.a.host.completions.is_empty() {
        pair.step();
    }
    // Above 1 MiB at the line rate of 1 GB/s.
    assert!(pair.now.nanos() > 1_500_000, "{:?}", pair.now);
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert!(pair.b.nic.counters().rp_cnp_handled > 5);
    assert!(pair.a.host.bytes(BASE + (1 << 20), 1 << 20) == pair.b.host.bytes(BASE, 1 << 20));
}

#[test]
fn without_dcqcn_marks_are_counted_and_nothing_else() {
    let mut pair = Setup::new(QpType::Rc).connect();
    pair.script(|_, _| Fate::Mark);
    pair.a.post(write(1).len(5000));
    pair.run_until_idle();
    assert_eq!(pair.b.nic.counters().np_ecn_marked_roce_packets, 5);
    assert_eq!(pair.b.nic.counters().np_cnp_sent, 0);
}

#[test]
fn a_rate_limit_paces() {
    let mut pair = dcqcn().with(|s| s.memory = 4 << 20).connect();
    let attributes = QpAttributes {
        rate_limit: 800_000, // kb/s: 100 MB/s
        ..QpAttributes::default()
    };
    pair.a
        .modify(&attributes, AttributeMask::RATE_LIMIT)
        .unwrap();
    let time = time_to_write(&mut pair);
    assert!((41_000_000..70_000_000).contains(&time), "{time}");
}

/// Packets that are far apart each ask for an acknowledge: nothing waits for the timer.
#[test]
fn a_slow_rate_never_runs_into_the_timeout() {
    let mut pair = dcqcn().with(|s| s.timeout = 10).connect(); // 4.2 ms
    let attributes = QpAttributes {
        rate_limit: 8_000, // 1 MB/s: a packet in 1.5 ms
        ..QpAttributes::default()
    };
    pair.a
        .modify(&attributes, AttributeMask::RATE_LIMIT)
        .unwrap();
    pair.a.post(write(1).len(100_000));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}
