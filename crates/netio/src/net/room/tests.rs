use super::*;

/// What Linux gives a socket by default.
const BUFFER: u32 = 212_992;

/// A packet of path MTU 4096.
const LENGTH: usize = 4112;

/// What one sender may fill of it.
const HALF: u64 = BUFFER as u64 / 2;

/// A room of which a sender may fill so much, as it knows from an answer at time 0.
fn known(allowance: u64) -> Room {
    let mut room = Room::new(BUFFER);
    room.charge(1);
    answer(&mut room, allowance, 0);
    assert_eq!(room.under_way(), 0);
    room
}

/// A mark leaves and comes back.
#[track_caller]
fn answer(room: &mut Room, allowance: u64, now_ms: u64) {
    let position = room.position();
    room.mark(now_ms);
    assert!(room.answered(position, allowance, now_ms));
}

/// Sends as much as there is room for, in batches of up to 15; returns their sizes.
fn fill(room: &mut Room, now_ms: u64) -> Vec<usize> {
    let mut batches = Vec::new();
    loop {
        let count = room.datagrams(LENGTH, 15, now_ms);
        match count {
            0 => return batches,
            1 => room.charge(cost_of_singles(1, LENGTH)),
            _ => room.charge(cost_of_batch(count * LENGTH)),
        }
        batches.push(count);
    }
}

#[test]
fn no_more_is_under_way_than_was_allowed() {
    for allowance in (0..100).map(|n| n * HALF / 100) {
        let mut room = known(allowance);
        fill(&mut room, 0);
        // One datagram always goes when nothing is under way.
        let most = allowance.max(cost_of_singles(1, LENGTH));
        assert!(room.under_way() <= most && room.under_way() > most / 2);
    }
}

#[test]
fn half_of_it_comes_back_while_the_other_half_is_sent() {
    let mut room = known(HALF);
    room.charge(cost_of_batch(12 * LENGTH));
    assert!(room.wants_mark());
    let position = room.position();
    room.mark(0);
    assert!(!room.wants_mark());
    assert_eq!(fill(&mut room, 0), [12]);
    assert!(room.answered(position, HALF, 0));
    assert_eq!(fill(&mut room, 0), [12]);
}

#[test]
fn newcomers_and_senders_that_were_idle_start_small() {
    let mut room = Room::new(BUFFER);
    assert_eq!(fill(&mut room, 0), [1]);
    assert!(room.wants_mark());
    answer(&mut room, HALF, 0);
    assert_eq!(fill(&mut room, IDLE_MS - 1), [12, 12]);
    answer(&mut room, HALF, IDLE_MS);
    assert_eq!(fill(&mut room, 2 * IDLE_MS), [1]);
}

#[test]
fn a_datagram_larger_than_the_allowance_goes_alone() {
    let mut room = known(1000);
    assert_eq!(room.datagrams(65_507, 1, 0), 1);
    room.charge(cost_of_singles(1, 65_507));
    assert_eq!(room.datagrams(1, 64, 0), 0);
    answer(&mut room, 1000, 0);
    assert_eq!(room.datagrams(65_507, 1, 0), 1);
}

#[test]
fn a_ping_pong_of_small_messages_costs_few_marks() {
    let mut room = known(ALLOWANCE_MAX);
    let mut marks = 0;
    for _ in 0..10_000 {
        assert!(room.datagrams(32, 64, 0) > 0);
        room.charge(cost_of_singles(1, 32));
        if room.wants_mark() {
            marks += 1;
            answer(&mut room, ALLOWANCE_MAX, 0);
        }
    }
    let all = 10_000 * cost_of_singles(1, 32);
    assert_eq!(marks, all / (ALLOWANCE_MAX / 4));
}

#[test]
fn lost_marks_and_answers_cost_time_only() {
    let mut room = known(HALF);
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
    assert!(room.answered(position, HALF, PATIENCE_MS));
    assert_eq!(
        fill(&mut room, PATIENCE_MS),
        [12, 12],
        "waiting is not idling"
    );
}

#[test]
fn answers_that_are_old_repeated_or_invented_say_nothing() {
    let mut room = known(HALF);
    room.charge(10_000);
    room.mark(0);
    let first = room.position();
    room.charge(10_000);
    room.mark(0);
    let second = room.position();
    room.charge(10_000);
    assert!(!room.answered(second + 1, 1, 0), "not marked");
    assert!(!room.answered(u64::MAX, 1, 0));
    assert!(room.answered(second, HALF, 0));
    assert!(!room.answered(second, 1, 0));
    assert!(!room.answered(first, 1, 0), "overtaken");
    assert_eq!(room.under_way(), 10_000);
    assert_eq!(room.allowance, HALF);
}

#[test]
fn silence_counts_from_the_first_mark_without_an_answer() {
    let mut room = known(HALF);
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
    let mut room = known(HALF);
    fill(&mut room, 0);
    assert!(room.refuse());
    assert!(!room.refuse());
    answer(&mut room, ALLOWANCE_MAX, 0);
    assert!(room.datagrams(LENGTH, 15, 0) > 0);
    assert!(room.refuse());
}

// ---- several senders ---------------------------------------------------------------------------

const SOCKET: usize = 3;

fn source(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn allow(senders: &mut Senders, port: u16, now_ms: u64) -> u64 {
    senders.allow(source(port), SOCKET, BUFFER, now_ms)
}

#[test]
fn one_sender_comes_to_half_the_buffer_step_by_step() {
    let mut senders = Senders::default();
    let steps: Vec<_> = (0..4).map(|_| allow(&mut senders, 1, 0)).collect();
    assert_eq!(steps, [HALF / 4, HALF / 2, HALF, HALF]);
}

#[test]
fn a_large_buffer_is_not_filled() {
    let mut senders = Senders::default();
    let mut allow = || senders.allow(source(1), SOCKET, 64 << 20, 0);
    assert_eq!([allow(), allow()], [ALLOWANCE_MAX; 2]);
}

#[test]
fn senders_are_told_no_more_than_half_and_newcomers_fit_in_besides() {
    for count in 1..=SENDERS_MAX as u16 {
        let mut senders = Senders::default();
        for (round, port) in (0..6 * count).map(|n| (n / count, n % count)) {
            allow(&mut senders, port, 0);
            let told: u64 = senders.all.iter().map(|sender| sender.allowance).sum();
            let newcomers = u64::from(count) - senders.all.len() as u64;
            let all = told + newcomers * allowance_at_first(BUFFER.into());
            // Many that begin at the same moment are too many for a small buffer.
            if count <= 8 {
                assert!(all <= HALF * 3 / 2, "{count} senders: {all} of {BUFFER}");
            }
            if round >= 4 {
                assert!(told <= HALF, "{count} senders: {told} of {BUFFER}");
                assert!(told >= HALF - HALF / 8);
            }
        }
    }
}

#[test]
fn an_idle_sender_is_forgotten_after_it_has_forgotten_itself() {
    let mut senders = Senders::default();
    for now_ms in 0..5 {
        allow(&mut senders, 1, now_ms);
        allow(&mut senders, 2, now_ms);
    }
    assert_eq!(allow(&mut senders, 1, IDLE_MS + 4), HALF / 2);
    assert_eq!(allow(&mut senders, 1, 2 * IDLE_MS + 4), HALF);
}

#[test]
fn sockets_are_accounted_for_each_by_itself() {
    let mut senders = Senders::default();
    for socket in [1, 2] {
        for _ in 0..3 {
            senders.allow(source(1), socket, BUFFER, 0);
        }
        assert_eq!(senders.allow(source(1), socket, BUFFER, 0), HALF);
    }
}

#[test]
fn the_table_of_senders_is_bounded() {
    let mut senders = Senders::default();
    for port in 0..1000 {
        let allowance = allow(&mut senders, port, 0);
        assert!(allowance >= HALF / SENDERS_MAX as u64);
    }
    assert_eq!(senders.all.len(), SENDERS_MAX);
    assert_eq!(allow(&mut senders, 5000, 3 * IDLE_MS), HALF / 4);
    assert_eq!(senders.all.len(), 1);
}
