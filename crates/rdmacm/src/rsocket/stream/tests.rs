//! Two ends of a stream over memory of the test: traces first, then random programs.

use super::*;
use std::fmt::Debug;

/// A write under way, in the order in which it was posted.
#[derive(Debug)]
struct Flight {
    bytes: Vec<u8>,
    remote: u64,
    key: u32,
    immediate: Option<u32>,
    work: Work,
}

/// The memory of an end, at made-up addresses.
struct Memory {
    targets: Vec<u8>,
    receive: Vec<u8>,
    mapped: Vec<u8>,
}

const TABLE: u64 = 0x1000;
const RECEIVE: u64 = 0x10_0000;
const MAPPED: u64 = 0x8000_0000;
const KEY: u32 = 0x77;
const OUR_BUFFER: Buffer = Buffer {
    address: RECEIVE,
    key: KEY,
};

impl Memory {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let (memory, base) = match address {
            MAPPED.. => (&mut self.mapped, MAPPED),
            RECEIVE.. => (&mut self.receive, RECEIVE),
            _ => (&mut self.targets, TABLE),
        };
        let start = (address - base) as usize;
        memory[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl Tables for Memory {
    fn target(&self, index: usize) -> [u8; Segment::LEN] {
        self.targets[index * Segment::LEN..][..Segment::LEN]
            .try_into()
            .unwrap()
    }

    fn io_map(&self, index: usize) -> [u8; IoMap::LEN] {
        let place = TARGETS * Segment::LEN + index * IoMap::LEN;
        self.targets[place..][..IoMap::LEN].try_into().unwrap()
    }
}

struct End {
    stream: Stream,
    memory: Memory,
    send_buffer: Vec<u8>,
    /// Posted, in the order of posting.
    wire: VecDeque<Flight>,
    /// Receives that are posted.
    receives: u32,
}

impl End {
    fn new(sizes: Sizes) -> Self {
        let table = TARGETS * Segment::LEN + usize::from(sizes.io_maps) * IoMap::LEN;
        Self {
            stream: Stream::new(sizes),
            memory: Memory {
                targets: vec![0; table],
                receive: vec![0; sizes.receive_buffer as usize],
                mapped: vec![0; 4096],
            },
            send_buffer: vec![0; sizes.send_buffer as usize],
            wire: VecDeque::new(),
            receives: u32::from(sizes.receive_queue + CONTROL_RECEIVES),
        }
    }

    fn data(&self) -> ConnectionData {
        let table = Segment {
            address: TABLE,
            key: KEY,
            length: 0,
        };
        self.stream.connection_data(table, OUR_BUFFER)
    }

    fn post(&mut self, write: Write, bytes: &[u8]) {
        let bytes = &bytes[..write.length as usize];
        if let Some(span) = write.span {
            let mut rest = bytes;
            for range in span.ranges() {
                let (now, later) = rest.split_at(range.len());
                self.send_buffer[range].copy_from_slice(now);
                rest = later;
            }
        }
        self.wire.push_back(Flight {
            bytes: bytes.to_vec(),
            remote: write.remote,
            key: write.key,
            immediate: write.message.map(Message::immediate),
            work: write.work,
        });
    }

    fn post_control(&mut self, write: ControlWrite) {
        self.wire.push_back(Flight {
            bytes: write.bytes().to_vec(),
            remote: write.remote,
            key: write.key,
            immediate: write.message.map(Message::immediate),
            work: write.work,
        });
    }

    /// As a program's call that sends without waiting.
    fn send(&mut self, mut bytes: &[u8]) -> usize {
        let whole = bytes.len();
        while let Some(write) = self.stream.poll_send(bytes.len()) {
            self.post(write, bytes);
            bytes = &bytes[write.length as usize..];
        }
        whole - bytes.len()
    }

    /// As a program's call that reads without waiting.
    fn read(&mut self, limit: usize) -> Vec<u8> {
        let span = self.stream.peek(0, limit);
        let mut bytes = Vec::new();
        for range in span.ranges() {
            bytes.extend_from_slice(&self.memory.receive[range]);
        }
        self.stream.consume(span.len());
        self.control();
        bytes
    }

    fn control(&mut self) {
        while let Some(write) = self.stream.poll_control(OUR_BUFFER) {
            self.post_control(write);
        }
    }
}

/// Two connected ends, `a` and `b`.
struct Pair {
    ends: [End; 2],
}

impl Pair {
    fn connect(a: Sizes, b: Sizes) -> Self {
        let mut ends = [End::new(a), End::new(b)];
        let data = [ends[0].data(), ends[1].data()];
        ends[0].stream.handle_connected(&data[1]);
        ends[1].stream.handle_connected(&data[0]);
        ends.iter_mut().for_each(End::control);
        Self { ends }
    }

    fn small() -> Self {
        Self::connect(SMALL, SMALL)
    }

    /// The oldest write of an end arrives and completes.
    fn deliver(&mut self, from: usize) -> bool {
        let Some(flight) = self.ends[from].wire.pop_front() else {
            return false;
        };
        let to = &mut self.ends[1 - from];
        if !flight.bytes.is_empty() {
            assert_eq!(flight.key, KEY);
            to.memory.write(flight.remote, &flight.bytes);
        }
        if let Some(immediate) = flight.immediate {
            to.receives = to.receives.checked_sub(1).expect("a receive is posted");
            let written = flight.bytes.len() as u32;
            to.stream.handle_immediate(immediate, written, &to.memory);
            to.receives += 1;
            to.control();
        }
        self.ends[from].stream.handle_sent(flight.work);
        self.ends[from].control();
        true
    }

    fn settle(&mut self) {
        while self.deliver(0) || self.deliver(1) {}
    }

    #[track_caller]
    fn expect_wire(&self, end: usize, messages: &[Message]) {
        let wire: Vec<_> = self.ends[end]
            .wire
            .iter()
            .filter_map(|flight| flight.immediate.map(Message::parse))
            .collect();
        assert_eq!(wire, messages);
    }
}

const SMALL: Sizes = Sizes {
    send_buffer: 64,
    receive_buffer: 64,
    send_queue: 8 + CONTROL_SENDS,
    receive_queue: 4,
    inline: 4,
    io_maps: 2,
};

const A: usize = 0;
const B: usize = 1;

#[test]
fn the_second_half_of_the_buffer_is_published_at_once() {
    let mut pair = Pair::small();
    pair.expect_wire(A, &[Message::Grant(4)]);
    assert_eq!(pair.ends[B].stream.targets.len(), 1);
    pair.deliver(A);
    let targets = &pair.ends[B].stream.targets;
    assert_eq!((targets[0].address, targets[0].length), (RECEIVE, 32));
    assert_eq!((targets[1].address, targets[1].length), (RECEIVE + 32, 32));
}

#[test]
fn a_write_never_crosses_the_end_of_a_half() {
    let mut pair = Pair::small();
    pair.settle();
    assert_eq!(pair.ends[A].send(&[1; 100]), 64);
    pair.expect_wire(A, &[Message::Data(32), Message::Data(32)]);
}

#[test]
fn credits_stop_a_sender_and_come_back_when_half_of_them_are_spent() {
    let mut pair = Pair::small();
    pair.settle();
    for byte in 0..4 {
        assert_eq!(pair.ends[A].send(&[byte]), 1);
    }
    assert_eq!(pair.ends[A].send(&[4]), 0);
    assert!(!pair.ends[A].stream.can_send());
    pair.deliver(A);
    pair.expect_wire(B, &[]);
    pair.deliver(A);
    pair.expect_wire(B, &[Message::Grant(6)]);
    pair.deliver(B);
    assert_eq!(pair.ends[A].send(&[4]), 1);
    pair.settle();
    assert_eq!(pair.ends[B].read(10), [0, 1, 2, 3, 4]);
}

/// A table whose entries must not be looked at.
struct Untouched;

impl Tables for Untouched {
    fn target(&self, index: usize) -> [u8; Segment::LEN] {
        panic!("entry {index} may be half written");
    }

    fn io_map(&self, index: usize) -> [u8; IoMap::LEN] {
        panic!("nothing was said of mapping {index}");
    }
}

#[test]
fn credits_alone_leave_the_table_of_targets_alone() {
    let mut pair = Pair::small();
    pair.settle();
    let credits = Message::Grant(9).immediate();
    let stream = &mut pair.ends[A].stream;
    stream.handle_immediate(credits, 0, &Untouched);
    assert_eq!((stream.number_limit, stream.targets.len()), (9, 2));
}

#[test]
fn a_peer_that_publishes_more_than_the_table_holds_or_nothing_is_cut_off() {
    for (settled, length) in [(true, 32), (false, 0)] {
        let mut pair = Pair::small();
        if settled {
            pair.settle();
        }
        let b = &mut pair.ends[B];
        let entry = Segment {
            address: RECEIVE,
            key: KEY,
            length,
        };
        for place in 0..TARGETS as u64 {
            let bytes = entry.to_table(Order::OURS);
            b.memory.write(TABLE + place * Segment::LEN as u64, &bytes);
        }
        let grant = Message::Grant(9).immediate();
        b.stream
            .handle_immediate(grant, Segment::LEN as u32, &b.memory);
        assert_eq!(b.stream.ending(), Some(Ending::Violation));
    }
}

#[test]
fn a_reader_that_is_slow_stops_the_sender() {
    let mut pair = Pair::small();
    pair.settle();
    assert_eq!(pair.ends[A].send(&[7; 64]), 64);
    pair.settle();
    assert_eq!(pair.ends[A].send(&[8]), 0);
    assert_eq!(pair.ends[B].read(31), [7; 31]);
    pair.settle();
    assert_eq!(pair.ends[A].send(&[8]), 0, "not half a buffer yet");
    assert_eq!(pair.ends[B].read(1), [7]);
    pair.settle();
    assert_eq!(pair.ends[A].send(&[8; 99]), 32);
}

#[test]
fn what_was_sent_before_a_shutdown_is_read_before_the_end() {
    let mut pair = Pair::small();
    pair.settle();
    pair.ends[A].send(b"last words");
    pair.ends[A].stream.close_write();
    pair.ends[A].control();
    assert!(!pair.ends[A].stream.may_write());
    pair.expect_wire(A, &[Message::Data(10), Message::Control(Control::Shutdown)]);
    pair.settle();
    let b = &mut pair.ends[B];
    assert!(b.stream.is_at_end() && b.stream.is_connected());
    assert_eq!(b.read(64), b"last words");
    // The other direction still works.
    assert_eq!(b.send(b"answer"), 6);
    b.stream.close_write();
    b.control();
    pair.settle();
    assert_eq!(pair.ends[A].read(64), b"answer");
    for end in &pair.ends {
        assert_eq!(end.stream.ending(), Some(Ending::Closed));
        assert!(end.stream.is_flushed());
    }
}

#[test]
fn two_shutdowns_that_cross_end_both_streams() {
    let mut pair = Pair::small();
    pair.settle();
    for end in &mut pair.ends {
        end.stream.close_write();
        end.control();
    }
    pair.settle();
    for end in &pair.ends {
        assert_eq!(end.stream.ending(), Some(Ending::Closed));
        assert!(end.stream.is_flushed());
    }
}

#[test]
fn a_shutdown_that_was_not_posted_becomes_a_disconnect() {
    let mut pair = Pair::small();
    pair.settle();
    pair.ends[A].stream.close_write();
    pair.ends[B].stream.close_write();
    pair.ends[B].control();
    pair.deliver(B);
    pair.expect_wire(A, &[Message::Control(Control::Disconnect)]);
}

#[test]
fn a_close_is_flushed_when_its_message_has_arrived() {
    let mut pair = Pair::small();
    pair.settle();
    pair.ends[A].send(b"abc");
    pair.ends[A].stream.close();
    assert!(!pair.ends[A].stream.is_flushed());
    pair.ends[A].control();
    assert!(!pair.ends[A].stream.is_flushed());
    pair.settle();
    assert!(pair.ends[A].stream.is_flushed());
    let b = &mut pair.ends[B];
    assert_eq!(b.stream.ending(), Some(Ending::Closed));
    assert!(!b.stream.may_write());
    assert_eq!(b.read(9), b"abc");
}

#[test]
fn a_sender_goes_on_when_nobody_reads_any_more() {
    let mut pair = Pair::small();
    pair.settle();
    pair.ends[B].stream.close_read();
    for _ in 0..100 {
        assert_eq!(pair.ends[A].send(&[1; 40]), 40);
        pair.settle();
    }
    assert_eq!(pair.ends[B].stream.readable(), 0);
}

#[test]
fn control_messages_have_entries_that_data_cannot_take() {
    let mut pair = Pair::small();
    pair.settle();
    while pair.ends[A].send(&[0]) > 0 {}
    pair.ends[A].stream.close_write();
    pair.ends[A].control();
    let last = pair.ends[A].wire.back().unwrap();
    let message = Message::Control(Control::Shutdown).immediate();
    assert_eq!(last.immediate, Some(message));
    for _ in 0..CONTROL_SENDS - 1 {
        assert!(pair.ends[B].stream.poll_keep_alive().is_some());
    }
    let b = &mut pair.ends[B].stream;
    assert!(b.poll_keep_alive().is_some());
    assert!(b.poll_keep_alive().is_none());
}

#[test]
fn a_peer_that_claims_more_than_it_had_room_for_is_cut_off() {
    let mut pair = Pair::small();
    let b = &mut pair.ends[B];
    let message = Message::Data(65).immediate();
    b.stream.handle_immediate(message, 0, &b.memory);
    assert_eq!(b.stream.ending(), Some(Ending::Violation));
    assert_eq!(b.stream.readable(), 0);

    let mut pair = Pair::small();
    let b = &mut pair.ends[B];
    let message = Message::IoMapped(2).immediate();
    b.stream.handle_immediate(message, 0, &b.memory);
    assert_eq!(b.stream.ending(), Some(Ending::Violation));
}

#[test]
fn a_mapping_is_known_before_the_data_behind_it_and_takes_direct_writes() {
    let mut pair = Pair::small();
    pair.settle();
    let map = IoMap {
        offset: 100,
        segment: Segment {
            address: MAPPED,
            key: KEY,
            length: 50,
        },
    };
    assert_eq!(pair.ends[B].stream.io_maps_of_peer(), 2);
    assert_eq!(pair.ends[B].stream.poll_io_map(2, map), None);
    let write = pair.ends[B].stream.poll_io_map(1, map).unwrap();
    pair.ends[B].post_control(write);
    pair.settle();

    let a = &mut pair.ends[A];
    assert_eq!(a.stream.mapped_at(99), None);
    assert_eq!(a.stream.mapped_at(149), Some(1));
    assert_eq!(a.stream.mapped_at(150), None);
    let write = a.stream.poll_direct(60, 140).unwrap();
    assert_eq!((write.length, write.message), (10, None));
    a.post(write, b"0123456789");
    a.send(b"look");
    pair.settle();
    let b = &mut pair.ends[B];
    assert_eq!(b.read(9), b"look");
    assert_eq!(&b.memory.mapped[40..50], b"0123456789");
}

#[test]
fn what_a_completion_was_survives_64_bits() {
    for work in [
        Work::Receive,
        Work::Control,
        Work::Send(0),
        Work::Send(u32::MAX),
    ] {
        assert_eq!(Work::from_id(work.id()), work);
    }
}

// --- random programs -------------------------------------------------------------------------

/// A small generator of our own, so that a seed means the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn sizes(&mut self) -> Sizes {
        let buffers = [2, 6, 64, 1000, 6000];
        Sizes {
            send_buffer: buffers[self.below(5) as usize],
            receive_buffer: buffers[self.below(5) as usize],
            send_queue: CONTROL_SENDS + 1 + self.below(20) as u16,
            receive_queue: 1 + self.below(20) as u16,
            inline: self.below(65) as u32,
            io_maps: 0,
        }
    }
}

/// Prints the line that replays a failure.
struct SeedNote<D: Debug>(u64, D);

impl<D: Debug> Drop for SeedNote<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(seed, options) = self;
            eprintln!("options: {options:?}");
            eprintln!("replay: FEROCE_SEED={seed} cargo nextest run -p feroce-rdmacm random_bytes");
        }
    }
}

fn seeds() -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("FEROCE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("FEROCE_SEEDS").unwrap_or(100)).collect(),
    }
}

/// Byte `position` of the stream of an end.
fn byte(end: usize, position: usize) -> u8 {
    (position.wrapping_mul(31) >> 3) as u8 ^ (end as u8 * 0x55)
}

#[test]
fn random_bytes_arrive_complete_and_in_order_in_both_directions() {
    for seed in seeds() {
        let mut random = Random(seed);
        let sizes = [random.sizes(), random.sizes()];
        let _note = SeedNote(seed, sizes);
        run(&mut random, sizes);
    }
}

fn run(random: &mut Random, sizes: [Sizes; 2]) {
    let mut pair = Pair::connect(sizes[0], sizes[1]);
    // Buffers of two bytes take a message for each two; large ones should go round.
    let total = |from: usize| {
        let narrow = sizes[from].send_buffer.min(sizes[1 - from].receive_buffer);
        (narrow as usize * 3).max(500)
    };
    let totals = [total(0), total(1)];
    let (mut sent, mut read) = ([0, 0], [0, 0]);
    let mut idle = 0;
    while read[0] < totals[1] || read[1] < totals[0] {
        let end = random.below(2) as usize;
        let progress = match random.below(3) {
            0 => {
                let size = 1 << random.below(16);
                let wanted = (1 + random.below(size) as usize).min(totals[end] - sent[end]);
                let from = sent[end];
                let bytes: Vec<_> = (from..from + wanted).map(|at| byte(end, at)).collect();
                let count = pair.ends[end].send(&bytes);
                sent[end] += count;
                count > 0
            }
            1 => {
                let limit = 1 + random.below(70_000) as usize;
                let bytes = pair.ends[end].read(limit);
                for (at, &got) in bytes.iter().enumerate() {
                    let at = read[end] + at;
                    assert_eq!(got, byte(1 - end, at), "byte {at}");
                }
                read[end] += bytes.len();
                !bytes.is_empty()
            }
            _ => pair.deliver(end),
        };
        idle = if progress { 0 } else { idle + 1 };
        assert!(idle < 1000, "stuck: sent {sent:?}, read {read:?}");
    }
    for end in &mut pair.ends {
        end.stream.close();
        end.control();
    }
    pair.settle();
    for end in &pair.ends {
        assert_eq!(end.stream.ending(), Some(Ending::Closed));
        assert!(end.stream.is_flushed());
    }
}

#[test]
fn numbers_of_messages_wrap() {
    let mut pair = Pair::small();
    for round in 0..70_000 {
        pair.settle();
        assert_eq!(pair.ends[A].send(&[round as u8]), 1, "message {round}");
        pair.settle();
        assert_eq!(pair.ends[B].read(1), [round as u8]);
    }
}
