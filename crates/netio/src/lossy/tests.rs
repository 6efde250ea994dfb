use super::*;

const PACKETS: usize = 100_000;

fn impairment(text: &str) -> Impairment {
    text.parse().unwrap()
}

/// Arrivals of numbered packets, one sent every microsecond.
fn run(text: &str, packets: usize) -> (Vec<(u64, Vec<u8>)>, LossyCounts) {
    let mut link = Link::new(impairment(text));
    let mut arrivals = Vec::new();
    let mut now_ns = 0;
    for number in 0..packets {
        now_ns = number as u64 * 1000;
        while let Some((bytes, ())) = link.pop(now_ns) {
            arrivals.push((now_ns, bytes));
        }
        let mut bytes = vec![0xa5; 64];
        bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
        link.push(now_ns, &bytes, ());
    }
    while let Some(next_ns) = link.next_ns() {
        now_ns = now_ns.max(next_ns);
        let (bytes, ()) = link.pop(now_ns).unwrap();
        arrivals.push((now_ns, bytes));
    }
    (arrivals, link.counts())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

#[track_caller]
fn expect_about(count: u64, expected: usize) {
    // Six standard deviations of a binomial are below this at all ratios used here.
    let slack = expected / 10 + 100;
    assert!(
        count.abs_diff(expected as u64) <= slack as u64,
        "{count} where about {expected} were expected"
    );
}

#[test]
fn a_perfect_network_delivers_at_once_and_in_order() {
    let (arrivals, counts) = run("", 1000);
    let numbers: Vec<_> = arrivals.iter().map(|(_, bytes)| number(bytes)).collect();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    assert_eq!(
        counts,
        LossyCounts {
            offered: 1000,
            ..LossyCounts::default()
        }
    );
}

#[test]
fn one_seed_gives_one_history_and_another_seed_another() {
    let options = "loss=5%,dup=5%,reorder=5%,corrupt=5%,delay=3us";
    let history = |seed| run(&format!("{options},seed={seed}"), 5_000).0;
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn one_kind_of_trouble_does_not_move_another() {
    let lost = |text: &str| -> Vec<usize> {
        let mut lossy = Lossy::new(impairment(text));
        (0..1000)
            .filter(|_| lossy.judge(0, 100).next().is_none())
            .collect()
    };
    assert_eq!(
        lost("loss=10%,seed=3"),
        lost("loss=10%,dup=50%,corrupt=50%,reorder=50%,seed=3")
    );
}

#[test]
fn ratios_are_met() {
    let text = "loss=2%,dup=1%,reorder=5%,corrupt=0.5%,seed=1";
    let (arrivals, counts) = run(text, PACKETS);
    expect_about(counts.lost, PACKETS / 50);
    expect_about(counts.duplicated, PACKETS / 100);
    expect_about(counts.reordered, PACKETS / 20);
    expect_about(counts.corrupted, PACKETS / 200);
    assert_eq!(
        arrivals.len() as u64,
        counts.offered - counts.lost + counts.duplicated
    );
    let damaged = arrivals
        .iter()
        .filter(|(_, bytes)| bytes[8..].iter().any(|byte| *byte != 0xa5))
        .count();
    // One in eight corruptions hits the number instead.
    expect_about(damaged as u64, PACKETS / 200 * 7 / 8);
}

#[test]
fn held_packets_are_overtaken_and_not_longer_than_told() {
    let (arrivals, _) = run("reorder=10%,hold=20us,delay=5us,seed=2", 10_000);
    let numbers: Vec<_> = arrivals.iter().map(|(_, bytes)| number(bytes)).collect();
    let overtaken = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(overtaken > 500, "{overtaken} of about 1,000 were overtaken");
    for (at_ns, bytes) in &arrivals {
        let age_ns = at_ns - number(bytes) * 1000;
        // Arrivals are looked for once a microsecond.
        assert!((5_000..=26_000).contains(&age_ns), "age {age_ns} ns");
    }
}

#[test]
fn the_bottleneck_spaces_packets_and_its_queue_is_bounded() {
    // 1000 bytes at 8 Gb/s take 1 us; ten fit the queue.
    let mut lossy = Lossy::new(impairment("rate=8G,queue=10000"));
    let times: Vec<Option<u64>> = (0..20)
        .map(|_| lossy.judge(0, 1000).next().map(|fate| fate.at_ns))
        .collect();
    let sent: Vec<u64> = times.iter().flatten().copied().collect();
    assert_eq!(sent, (1..=11).map(|n| n * 1000).collect::<Vec<_>>());
    assert_eq!(lossy.counts().overflowed, 9);
    // Once drained it takes packets again.
    let fate = lossy.judge(50_000, 1000).next().unwrap();
    assert_eq!(fate.at_ns, 51_000);
}

#[test]
fn corruption_always_changes_the_packet_and_never_its_length() {
    let mut lossy = Lossy::new(impairment("corrupt=100%"));
    for length in [1, 2, 60, 4096] {
        let bytes = vec![0; length];
        for (_, arrived) in lossy.offer(0, &bytes) {
            assert_eq!(arrived.len(), length);
            assert_ne!(arrived, bytes);
        }
    }
    // Nothing to change is no reason to panic.
    assert_eq!(lossy.offer(0, &[]).count(), 1);
}

#[test]
fn a_link_that_nobody_empties_stays_bounded() {
    let mut link = Link::new(impairment("delay=1s"));
    for _ in 0..HELD_MAX + 10 {
        link.push(0, &[0], ());
    }
    assert_eq!(link.held.len(), HELD_MAX);
    assert_eq!(link.counts().overflowed, 10);
}
