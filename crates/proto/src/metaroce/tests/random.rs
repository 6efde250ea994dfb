//! Thousands of seeds: every operation in both directions, over loss, duplication, reordering,
//! marks and ports that die.
//!
//! The oracle: each request completes exactly once and in order, bytes are right, receives are used
//! in order, atomics happen once, and a late duplicate of a completed message touches no memory.

use super::pair::{End, Faults, OK, Pair, Setup, at, request};
use crate::metaroce::{Route, StreamTarget};
use crate::testing::{BASE, Random};
use crate::tests::random::{SeedNote, seeds};
use crate::{SendOperation, SendRequest};
use core::time::Duration;
use std::collections::VecDeque;
use std::format;
use std::vec::Vec;

const MEMORY: u64 = 1 << 20;
/// The lower half is sent from and never changes, except for the counter.
const HALF: u64 = MEMORY / 2;
const SOURCE: u64 = 4096;
const SLOT: u64 = 8192;
const SLOTS: u64 = HALF / SLOT;

/// A send request that completed.
type Done = (u64, crate::CompletionStatus);
/// A receive that completed: request, bytes, immediate data.
type Received = (u64, u32, Option<u32>);

/// What a request should leave behind.
enum Expect {
    Remote { to: u64, from: u64, length: u32 },
    Local { to: u64, from: u64, length: u32 },
    Original { to: u64, value: u64 },
}

#[derive(Default)]
struct Side {
    posted: Vec<(u64, Expect)>,
    /// Receives of the other end, and the messages that use them.
    receives: VecDeque<(u64, u64)>,
    messages: VecDeque<(u32, Option<u32>)>,
    counter: u64,
    slots: u64,
    remote_slots: u64,
}

fn faults(random: &mut Random) -> Faults {
    let mut faults = Faults::default();
    match random.below(6) {
        0 => {}
        1 => faults.loss = 1 + random.below(200),
        2 => faults.duplication = 1 + random.below(200),
        3 => faults.reordering = 1 + random.below(200),
        4 => faults.marking = 1 + random.below(500),
        _ => {
            faults = Faults {
                loss: random.below(100),
                duplication: random.below(100),
                reordering: random.below(100),
                marking: random.below(200),
                garbling: random.below(50),
            }
        }
    }
    faults
}

fn setup(random: &mut Random) -> Setup {
    let number = |random: &mut Random| feroce_wire::metaroce::MessageNumber(random.next() as u32);
    let (send, receive) = (number(random), number(random));
    Setup::default().with(|s| {
        s.planes = random.pick(&[1, 1, 2, 4]);
        s.config.paths = random.pick(&[1, 2, 4, 8]);
        s.config.segment = random.pick(&[256, 1024, 4096]);
        s.config.message_window = random.pick(&[2, 16, 256]);
        s.config.reorder_words_max = random.pick(&[1, 64, 4096]);
        s.config.dead_after = Duration::from_secs(20);
        s.target = StreamTarget {
            send_number: send,
            receive_number: receive,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ..s.target
        };
    })
}

fn some_length(random: &mut Random) -> u32 {
    match random.below(5) {
        0 => random.below(4) as u32,
        1 => 1024,
        _ => random.below(SLOT + 1) as u32,
    }
}

fn make(
    random: &mut Random,
    wr_id: u64,
    side: &mut Side,
    other: &mut End,
    pair_now: crate::Instant,
) -> Option<SendRequest> {
    let length = some_length(random);
    let from = SOURCE + random.below(HALF - SOURCE - SLOT);
    let slot = |count: &mut u64| {
        *count += 1;
        HALF + (*count - 1) * SLOT
    };
    let kind = random.below(7);
    if side.remote_slots + side.slots >= SLOTS {
        return None;
    }
    let (operation, local, expect) = match kind {
        0 | 1 => {
            let to = slot(&mut side.remote_slots);
            let immediate = kind == 1;
            let operation = if immediate {
                let word = random.next() as u32;
                side.messages.push_back((length, Some(word)));
                let id = 1 << 32 | wr_id;
                side.receives.push_back((id, 0));
                other.post_recv(pair_now, id, BASE + HALF, 0);
                SendOperation::WriteImmediate(at(to), word)
            } else {
                SendOperation::Write(at(to))
            };
            (operation, from, Expect::Remote { to, from, length })
        }
        2 | 3 => {
            let to = slot(&mut side.remote_slots);
            let id = 1 << 32 | wr_id;
            other.post_recv(pair_now, id, BASE + to, SLOT as u32);
            side.receives.push_back((id, to));
            let word = (kind == 3).then(|| random.next() as u32);
            side.messages.push_back((length, word));
            let operation = word.map_or(SendOperation::Send, SendOperation::SendImmediate);
            (operation, from, Expect::Remote { to, from, length })
        }
        4 => {
            // Answers land in slots from the top, messages of the peer in slots from the bottom.
            side.slots += 1;
            let to = MEMORY - side.slots * SLOT;
            let operation = SendOperation::Read(at(from));
            (operation, to, Expect::Local { to, from, length })
        }
        _ => {
            side.slots += 1;
            let to = MEMORY - side.slots * SLOT;
            let value = side.counter;
            side.counter += 3;
            let add = SendOperation::FetchAdd {
                remote: at(0),
                add: 3,
            };
            let request = request(wr_id, add, BASE + to, 8);
            side.posted.push((wr_id, Expect::Original { to, value }));
            return Some(request);
        }
    };
    side.posted.push((wr_id, expect));
    Some(request(wr_id, operation, BASE + local, length))
}

fn check(side: &Side, us: &End, them: &End, completions: &[Done]) {
    let expected: Vec<_> = side.posted.iter().map(|(wr_id, _)| (*wr_id, OK)).collect();
    assert_eq!(completions, expected);
    for (wr_id, expect) in &side.posted {
        match *expect {
            Expect::Remote { to, from, length } => assert_eq!(
                them.host.bytes(BASE + to, length as usize),
                us.host.bytes(BASE + from, length as usize),
                "request {wr_id}"
            ),
            Expect::Local { to, from, length } => assert_eq!(
                us.host.bytes(BASE + to, length as usize),
                them.host.bytes(BASE + from, length as usize),
                "request {wr_id}"
            ),
            Expect::Original { to, value } => {
                assert_eq!(us.host.word(BASE + to), value, "request {wr_id}");
            }
        }
    }
}

/// Completions of sends and of receives.
fn split(end: &mut End) -> (Vec<Done>, Vec<Received>) {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for completion in end.full_completions() {
        if completion.wr_id >> 32 == 0 {
            sends.push((completion.wr_id, completion.status));
        } else {
            assert_eq!(completion.status, OK);
            receives.push((completion.wr_id, completion.byte_len, completion.immediate));
        }
    }
    (sends, receives)
}

fn expected_receives(side: &Side) -> Vec<Received> {
    let both = side.receives.iter().zip(&side.messages);
    both.map(|(&(id, _), &(length, word))| (id, length, word))
        .collect()
}

/// Kills and revives ports while messages are under way.
fn disturb(pair: &mut Pair, random: &mut Random) {
    let handle = pair.handle_a();
    let ports: Vec<u16> = pair
        .a
        .endpoint
        .paths(handle)
        .map(|p| p.source_port)
        .collect();
    pair.dead_ports.clear();
    if random.chance(1, 3) {
        pair.dead_ports.insert(random.pick(&ports));
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let setup = setup(&mut random);
    let faults = faults(&mut random);
    let disturbed = random.chance(1, 3);
    let _note = SeedNote {
        test: "everything_once_whatever_the_network_does",
        seed,
        options: format!(
            "planes {} paths {} segment {} window {} words {} disturbed {disturbed} {faults:?}",
            setup.planes,
            setup.config.paths,
            setup.config.segment,
            setup.config.message_window,
            setup.config.reorder_words_max
        ),
    };
    let mut pair = setup.connect();
    pair.random = Random::new(seed ^ 0xabcd);
    pair.faults = faults;
    pair.a
        .fill(BASE + SOURCE, (HALF - SOURCE) as usize, seed + 1);
    pair.b
        .fill(BASE + SOURCE, (HALF - SOURCE) as usize, seed + 2);
    let mut sides = [Side::default(), Side::default()];
    let mut wr_id = 0;
    for _ in 0..40 {
        for place in [0, 1] {
            wr_id += 1;
            let Pair { a, b, now, .. } = &mut pair;
            let (us, them) = if place == 0 { (a, b) } else { (b, a) };
            let request = make(&mut random, wr_id, &mut sides[place], them, *now);
            if let Some(request) = request {
                us.post(*now, request);
            }
        }
        if random.chance(1, 3) {
            pair.run_for(Duration::from_micros(random.below(200)));
        }
        if disturbed && random.chance(1, 4) {
            disturb(&mut pair, &mut random);
        }
    }
    pair.dead_ports.clear();
    pair.run_until_idle();
    if pair.a.endpoint.send_queue_len(pair.a.qpn) != Some(0)
        || pair.b.endpoint.send_queue_len(pair.b.qpn) != Some(0)
    {
        let from = pair.trace.len().saturating_sub(30);
        std::eprintln!("it stands still after {:#?}", &pair.trace[from..]);
    }
    let (a_sends, a_receives) = split(&mut pair.a);
    let (b_sends, b_receives) = split(&mut pair.b);
    assert_eq!(b_receives, expected_receives(&sides[0]));
    assert_eq!(a_receives, expected_receives(&sides[1]));
    let Pair { a, b, .. } = &mut pair;
    check(&sides[0], a, b, &a_sends);
    check(&sides[1], b, a, &b_sends);
    assert_eq!(b.host.word(BASE), sides[0].counter);
    assert_eq!(a.host.word(BASE), sides[1].counter);
}

//= MR-REL-004 type=test
//= MR-STR-010 type=test
#[test]
fn everything_once_whatever_the_network_does() {
    for seed in seeds(150) {
        run(seed);
    }
}

//= MR-REL-004 type=test
//= MR-SEC-003 type=test
#[test]
fn late_duplicates_never_touch_memory() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 8192, 1);
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::<Vec<u8>>::new()));
    pair.a.post(pair.now, super::pair::write(1, HALF, 0, 8192));
    // Every packet is kept, and comes again when all is over.
    pair.recorded = Some(seen.clone());
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    pair.b.host.bytes_mut(BASE + HALF, 8192).fill(0xee);
    let writes = pair.b.host.writes;
    let route = Route {
        source: pair.a.addresses[0],
        destination: pair.b.addresses[0],
        source_port: 0xc000,
        destination_port: 0,
        traffic_class: 2,
        stream: 0,
    };
    for bytes in seen.borrow().iter() {
        pair.inject(&route, bytes);
    }
    assert_eq!(pair.b.host.writes, writes);
    assert!(
        pair.b
            .host
            .bytes(BASE + HALF, 8192)
            .iter()
            .all(|&b| b == 0xee)
    );
    assert!(pair.b.endpoint.counters().dropped_duplicate >= 8);
}
