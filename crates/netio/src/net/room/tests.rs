use super::*;

/// What Linux gives a socket by default.
const BUFFER: u32 = 212_992;

/// A packet of path MTU 4096.
const LENGTH: usize = 4112;

/// A room that was answered once, at time 0, by a receiver with `senders` senders.
fn known(buffer: u32, senders: u16) -> Room {
    let mut room = Room::new(buffer);
    room.charge(1, 0);
    answer(&mut room, senders, 0);
    assert_eq!(room.under_way(), 0);
    room
}

/// A mark leaves and comes back.
#[track_caller]
fn answer(room: &mut Room, senders: u16, now_ms: u64) {
    let position = room.position();
    room.mark(now_ms);
    assert!(room.answered(position, senders, now_ms));
}

/// Sends as much as there is room for, in batches of up to 15; returns their sizes.
fn fill(room: &mut Room, now_ms: u64) -> Vec<usize> {
    let mut batches = Vec::new();
    loop {
        let count = room.datagrams(LENGTH, 15, now_ms);
        match count {
            0 => return batches,
            1 => room.charge(cost_of_singles(1, LENGTH), now_ms),
            _ => room.charge(cost_of_batch(count * LENGTH), now_ms),
        }
        batches.push(count);
    }
}

#[test]
fn no_more_than_half_the_buffer_is_under_way() {
    let mut room = known(BUFFER, 1);
    assert_eq!(fill(&mut room, 0), [12, 12]);
    assert!(room.under_way() <= u64::from(BUFFER) / 2);
    // A mark after the first batch, not after the second: half of it comes back at once.
    let mut room = known(BUFFER, 1);
    room.charge(cost_of_batch(12 * LENGTH), 0);
    assert!(room.wants_mark());
    let position = room.position();
    room.mark(0);
    assert!(!room.wants_mark());
    room.charge(cost_of_batch(12 * LENGTH), 0);
    assert_eq!(room.datagrams(LENGTH, 15, 0), 0);
    assert!(room.answered(position, 1, 0));
    assert_eq!(room.datagrams(LENGTH, 15, 0), 12);
}

#[test]
fn senders_share_the_half() {
    for senders in 1..=20 {
        let mut room = known(BUFFER, senders);
        fill(&mut room, 0);
        let share = u64::from(BUFFER) / 2 / u64::from(senders);
        // One datagram always goes when nothing is under way.
        assert!(room.under_way() <= share.max(cost_of_singles(1, LENGTH)));
    }
}

#[test]
fn a_large_buffer_is_not_filled() {
    let mut room = known(64 << 20, 1);
    fill(&mut room, 0);
    assert!(room.under_way() <= ALLOWANCE_MAX);
}

#[test]
fn newcomers_and_senders_that_were_idle_start_small() {
    let mut room = Room::new(BUFFER);
    assert_eq!(fill(&mut room, 0), [1]);
    assert!(room.wants_mark());
    answer(&mut room, 1, 0);
    assert_eq!(fill(&mut room, IDLE_MS - 1), [12, 12]);
    answer(&mut room, 1, IDLE_MS);
    assert_eq!(fill(&mut room, 2 * IDLE_MS - 1), [12, 12]);
    answer(&mut room, 1, 2 * IDLE_MS);
    assert_eq!(fill(&mut room, 3 * IDLE_MS), [1]);
}

#[test]
fn a_datagram_larger_than_the_allowance_goes_alone() {
    let mut room = known(4096, 64);
    assert_eq!(room.datagrams(65_507, 1, 0), 1);
    room.charge(cost_of_singles(1, 65_507), 0);
    assert_eq!(room.datagrams(1, 64, 0), 0);
    answer(&mut room, 64, 0);
    assert_eq!(room.datagrams(65_507, 1, 0), 1);
}

#[test]
fn a_ping_pong_of_small_messages_costs_few_marks() {
    let mut room = known(8 << 20, 1);
    let mut marks = 0;
    for _ in 0..10_000 {
        assert!(room.datagrams(32, 64, 0) > 0);
        room.charge(cost_of_singles(1, 32), 0);
        if room.wants_mark() {
            marks += 1;
            answer(&mut room, 1, 0);
        }
    }
    assert_eq!(marks, 10_000 * (1024 + 64) / (512 << 10));
}

#[test]
fn lost_marks_and_answers_cost_time_only() {
    let mut room = known(BUFFER, 1);
    fill(&mut room, 0);
    assert!(room.needs_mark(0), "none is under way");
    room.mark(0);
    assert!(!room.needs_mark(REPEAT_MS - 1));
    assert!(room.needs_mark(REPEAT_MS));
    room.mark(REPEAT_MS);
    // More and more patiently, while nothing comes back.
    let mut marks = 0;
    for now_ms in REPEAT_MS..PATIENCE_MS {
        if room.needs_mark(now_ms) {
            room.mark(now_ms);
            marks += 1;
        }
    }
    assert_eq!(marks, 6);
    let position = room.position();
    assert!(room.answered(position, 1, PATIENCE_MS));
    assert_eq!(
        fill(&mut room, PATIENCE_MS),
        [12, 12],
        "waiting is not idling"
    );
}

#[test]
fn answers_that_are_old_repeated_or_invented_say_nothing() {
    let mut room = known(BUFFER, 1);
    room.charge(10_000, 0);
    room.mark(0);
    let first = room.position();
    room.charge(10_000, 0);
    room.mark(0);
    let second = room.position();
    room.charge(10_000, 0);
    assert!(!room.answered(second + 1, 1, 0), "not marked");
    assert!(!room.answered(u64::MAX, 1, 0));
    assert!(room.answered(second, 1, 0));
    assert!(!room.answered(second, 1, 0));
    assert!(!room.answered(first, 64, 0), "overtaken");
    assert_eq!(room.under_way(), 10_000);
    assert_eq!(room.allowance, u64::from(BUFFER) / 2);
}

#[test]
fn silence_counts_from_the_first_mark_without_an_answer() {
    let mut room = known(BUFFER, 1);
    fill(&mut room, 5_000);
    assert_eq!(room.silence(9_000), Silence::Wait, "nobody was asked");
    room.mark(9_000);
    room.mark(9_010);
    assert_eq!(room.silence(9_000 + SUSPECT_MS - 1), Silence::Wait);
    assert_eq!(room.silence(9_000 + SUSPECT_MS), Silence::Suspect);
    assert_eq!(room.silence(9_000 + PATIENCE_MS), Silence::GiveUp);
    room.start_over();
    assert_eq!(room.silence(90_000), Silence::Wait);
    assert_eq!(fill(&mut room, 90_000), [1]);
}

#[test]
fn a_wait_is_noted_once() {
    let mut room = known(BUFFER, 1);
    fill(&mut room, 0);
    assert!(room.refuse());
    assert!(!room.refuse());
    answer(&mut room, 1, 0);
    assert!(room.datagrams(LENGTH, 15, 0) > 0);
    assert!(room.refuse());
}

#[test]
fn senders_are_counted_while_they_send_and_their_number_is_bounded() {
    let source = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let mut senders = Senders::default();
    assert_eq!(senders.note(source(1), 0), 1);
    assert_eq!(senders.note(source(1), 1), 1);
    assert_eq!(senders.note(source(2), IDLE_MS), 2);
    assert_eq!(senders.note(source(2), IDLE_MS + 1), 1, "1 is idle");
    for port in 0..1000 {
        let count = senders.note(source(port), IDLE_MS + 1);
        assert!(usize::from(count) <= SENDERS_MAX);
    }
    assert_eq!(senders.seen.len(), SENDERS_MAX);
    assert_eq!(senders.note(source(5000), 3 * IDLE_MS), 1);
}
