//! Thousands of seeds: two queue pairs under loss, duplication, reordering, corruption and delay,
//! every operation, every path MTU, PSNs that wrap.
//!
//! The oracle: each work request completes exactly once and in order, bytes are right, receives
//! are used in order, atomics happen once, and no byte in flight is forgotten.

use crate::testing::{BASE, Impairment, KEY, Pair, Random, Setup, Wr, recv, sge};
use crate::{BindRequest, CompletionStatus, Mtu, QpType, Remote, SendOperation, SendRequest, Sge};
use std::collections::VecDeque;
use std::vec::Vec;
use std::{eprintln, format, string::String};

/// Printed while a seed fails.
pub(crate) struct SeedNote {
    pub(crate) test: &'static str,
    pub(crate) seed: u64,
    pub(crate) options: String,
}

impl Drop for SeedNote {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self {
                test,
                seed,
                options,
            } = self;
            eprintln!("options: {options}");
            eprintln!("replay: FEROCE_SEED={seed} cargo nextest run -p feroce-proto {test}");
        }
    }
}

/// The seeds to run: `FEROCE_SEED` alone, or `FEROCE_SEEDS` of them, or `default` of them.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match (number("FEROCE_SEED"), number("FEROCE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(default),
    }
}

/// Bytes of memory per end; the lower half is sent from and read, the upper half is written.
const MEMORY: usize = 1 << 20;
const HALF: u64 = MEMORY as u64 / 2;
/// Each request has its own slice of the upper half.
const SLOT: u64 = 8192;
const REQUESTS: u64 = HALF / SLOT;
/// The counter that atomics work on.
const COUNTER: u64 = BASE;
/// The lower half from here on never changes.
const SOURCE: u64 = BASE + 4096;

/// What a request should leave behind.
#[derive(Debug)]
enum Expect {
    /// At the peer, from our source.
    Remote {
        at: u64,
        from: u64,
        length: u32,
    },
    /// At our end, from the peer's source.
    Local {
        at: u64,
        from: u64,
        length: u32,
    },
    /// The value before, which must be this.
    Original {
        at: u64,
        value: u64,
    },
    Nothing,
}

struct Scenario {
    pair: Pair,
    random: Random,
    mtu: u32,
    /// Per direction (a first): what was posted, in order.
    posted: [Vec<(u64, Expect, bool)>; 2],
    /// Receives posted at the other end, in order: (request, address, length).
    receives: [VecDeque<(u64, u64, u32)>; 2],
    /// Lengths of the messages that use them, in order, and whether they write.
    messages: [VecDeque<(u32, bool, Option<u32>)>; 2],
    counter: [u64; 2],
    slots: [u64; 2],
    /// Binds and invalidates that are due at each end.
    local: [(usize, usize); 2],
}

fn impairment(random: &mut Random) -> Impairment {
    let mut impairment = Impairment::default();
    match random.below(6) {
        0 => {}
        1 => impairment.loss = 1 + random.below(60),
        2 => impairment.duplication = 1 + random.below(100),
        3 => impairment.reordering = 1 + random.below(50),
        4 => impairment.jitter = 1 + random.below(5000),
        _ => {
            impairment = Impairment {
                loss: random.below(30),
                duplication: random.below(50),
                reordering: random.below(30),
                corruption: random.below(20),
                jitter: random.below(3000),
            }
        }
    }
    impairment
}

fn setup(random: &mut Random) -> Setup {
    let near_wrap = |random: &mut Random| {
        if random.chance(1, 2) {
            0xff_ffff - random.below(60) as u32
        } else {
            random.below(1 << 24) as u32
        }
    };
    let psn = (near_wrap(random), near_wrap(random));
    Setup::new(QpType::Rc).with(|s| {
        s.mtu = random.pick(&[
            Mtu::Mtu256,
            Mtu::Mtu512,
            Mtu::Mtu1024,
            Mtu::Mtu2048,
            Mtu::Mtu4096,
        ]);
        s.psn = psn;
        s.rd_atomic = random.pick(&[1, 2, 4, 16]);
        s.timeout = random.pick(&[4, 5, 6]);
        s.min_rnr_timer = random.pick(&[1, 5, 12]);
        s.memory = MEMORY;
        s.config.window_initial = random.pick(&[9_000, 20_000, 128 << 10]);
        s.config.read_window = random.pick(&[4_000, 30_000, 128 << 10]);
        s.config.read_chunk_max = random.pick(&[1, 2048, 5000, 64 << 10]);
        s.config.quantum = random.pick(&[1, 3, 16]);
    })
}

impl Scenario {
    fn new(seed: u64) -> (Self, SeedNote) {
        let mut random = Random::new(seed);
        let setup = setup(&mut random);
        let impairment = impairment(&mut random);
        let note = SeedNote {
            test: "every_operation_under_every_impairment",
            seed,
            options: format!(
                "{:?} psn {:?} rd_atomic {} timeout {} window {} read {} chunk {} quantum {} {:?}",
                setup.mtu,
                setup.psn,
                setup.rd_atomic,
                setup.timeout,
                setup.config.window_initial,
                setup.config.read_window,
                setup.config.read_chunk_max,
                setup.config.quantum,
                impairment
            ),
        };
        let mut pair = setup.connect();
        pair.wire.impairment = impairment;
        pair.wire.random = Random::new(seed ^ 0xabcd);
        pair.budget = random.pick(&[1, 7, 64]);
        pair.a.fill(SOURCE, (HALF - 4096) as usize, seed + 1);
        pair.b.fill(SOURCE, (HALF - 4096) as usize, seed + 2);
        let scenario = Self {
            pair,
            random,
            mtu: setup.mtu.bytes(),
            posted: [Vec::new(), Vec::new()],
            receives: Default::default(),
            messages: Default::default(),
            counter: [0; 2],
            slots: [0; 2],
            local: [(0, 0); 2],
        };
        (scenario, note)
    }

    fn length(&mut self) -> u32 {
        let mtu = self.mtu;
        let max = SLOT as u32;
        match self.random.below(6) {
            0 => self.random.below(5) as u32,
            1 => mtu.min(max),
            2 => (mtu - 1).min(max),
            3 => (mtu + 1).min(max),
            _ => self.random.below(u64::from(max) + 1) as u32,
        }
    }

    /// `length` bytes in up to three pieces, some empty.
    fn pieces(&mut self, address: u64, length: u32) -> Vec<Sge> {
        let first = self.random.below(u64::from(length) + 1) as u32;
        match self.random.below(3) {
            0 => [sge(address, length)].to_vec(),
            1 => [
                sge(address, first),
                sge(address + u64::from(first), length - first),
            ]
            .to_vec(),
            _ => [
                sge(address, first),
                sge(address, 0),
                sge(address + u64::from(first), length - first),
            ]
            .to_vec(),
        }
    }

    /// A fresh piece of the written half at the given end (0: a).
    fn slot(&mut self, end: usize) -> u64 {
        let slot = BASE + HALF + self.slots[end] * SLOT;
        self.slots[end] += 1;
        slot
    }

    fn source(&mut self, length: u32) -> u64 {
        SOURCE + self.random.below(HALF - 4096 - u64::from(length))
    }

    /// Posts one random request at the given end.
    fn post(&mut self, end: usize) {
        let wr_id = self.posted[end].len() as u64;
        let peer = 1 - end;
        let length = self.length();
        let (request, expect) = match self.random.below(8) {
            0..=2 => self.message(wr_id, end, length),
            3 | 4 => {
                let (at, from) = (self.slot(peer), self.source(length));
                let operation = SendOperation::Write(Remote {
                    address: at,
                    rkey: if length == 0 { 0xdead } else { KEY },
                });
                let pieces = self.pieces(from, length);
                let request = Wr::new(wr_id, operation).pieces(&pieces);
                (request, Expect::Remote { at, from, length })
            }
            5 | 6 => {
                let (at, from) = (self.slot(end), self.source(length));
                let operation = SendOperation::Read(Remote {
                    address: from,
                    rkey: if length == 0 { 0xdead } else { KEY },
                });
                let pieces = self.pieces(at, length);
                let request = Wr::new(wr_id, operation).pieces(&pieces);
                (request, Expect::Local { at, from, length })
            }
            _ => self.special(wr_id, end),
        };
        let signaled = self.random.chance(2, 3);
        let request = if signaled {
            request
        } else {
            request.unsignaled()
        };
        let request = if self.random.chance(1, 6) {
            request.fenced()
        } else {
            request
        };
        let request: SendRequest = request.into();
        let target = if end == 0 {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        };
        target.try_post(request).unwrap();
        self.posted[end].push((wr_id, expect, signaled));
    }

    /// A request that uses a receive of the peer.
    fn message(&mut self, wr_id: u64, end: usize, length: u32) -> (Wr, Expect) {
        let peer = 1 - end;
        let from = self.source(length);
        let immediate = self.random.chance(1, 2).then(|| self.random.next() as u32);
        let at = self.slot(peer);
        if self.random.chance(1, 4) {
            let word = immediate.unwrap_or(5);
            let remote = Remote {
                address: at,
                rkey: KEY,
            };
            self.messages[end].push_back((length, true, Some(word)));
            let operation = SendOperation::WriteImmediate(remote, word);
            let request = Wr::new(wr_id, operation).at(from, length);
            return (request, Expect::Remote { at, from, length });
        }
        self.messages[end].push_back((length, false, immediate));
        let operation = match immediate {
            Some(word) => SendOperation::SendImmediate(word),
            None if self.random.chance(1, 3) => {
                let key = 0xa000 + wr_id as u32;
                let host = if end == 0 {
                    &mut self.pair.b.host
                } else {
                    &mut self.pair.a.host
                };
                host.keys.insert(key, host.keys[&KEY]);
                self.local[peer].1 += 1;
                SendOperation::SendInvalidate(key)
            }
            None => SendOperation::Send,
        };
        let request = Wr::new(wr_id, operation);
        if length <= 256 && self.random.chance(1, 2) {
            let host = if end == 0 {
                &self.pair.a.host
            } else {
                &self.pair.b.host
            };
            let bytes = host.bytes(from, length as usize).to_vec();
            return (request.inline(&bytes), Expect::Nothing);
        }
        let pieces = self.pieces(from, length);
        (request.pieces(&pieces), Expect::Nothing)
    }

    /// A bind of a new window or an invalidate of a key made for it.
    fn local_operation(&mut self, wr_id: u64, end: usize) -> (Wr, Expect) {
        let number = wr_id as u32;
        let operation = if self.random.chance(1, 2) {
            self.local[end].0 += 1;
            SendOperation::Bind(BindRequest {
                window: 0x8000 + number,
                region: KEY,
                address: BASE,
                length: 100,
                access: 0,
                type_2: true,
            })
        } else {
            let key = 0x9000 + number;
            let ends = [&mut self.pair.a.host, &mut self.pair.b.host];
            let keys = &mut ends.into_iter().nth(end).unwrap().keys;
            keys.insert(key, keys[&KEY]);
            self.local[end].1 += 1;
            SendOperation::LocalInvalidate(key)
        };
        (Wr::new(wr_id, operation), Expect::Nothing)
    }

    fn special(&mut self, wr_id: u64, end: usize) -> (Wr, Expect) {
        let at = self.slot(end);
        let remote = Remote {
            address: COUNTER,
            rkey: KEY,
        };
        match self.random.below(6) {
            0 | 1 => self.local_operation(wr_id, end),
            2 => {
                let target = self.slot(1 - end);
                let from = self.source(8);
                let operation = SendOperation::AtomicWrite(Remote {
                    address: target,
                    rkey: KEY,
                });
                let expect = Expect::Remote {
                    at: target,
                    from,
                    length: 8,
                };
                (Wr::new(wr_id, operation).at(from, 8), expect)
            }
            3 => {
                let flush = SendOperation::Flush {
                    remote,
                    length: 100,
                    placement: 3,
                    level: self.random.below(2) as u8,
                };
                (Wr::new(wr_id, flush), Expect::Nothing)
            }
            kind => {
                let value = self.counter[end];
                let add = self.random.below(1000);
                self.counter[end] += add;
                let operation = if kind == 4 {
                    SendOperation::FetchAdd { remote, add }
                } else {
                    SendOperation::CompareSwap {
                        remote,
                        compare: value,
                        swap: value + add,
                    }
                };
                let expect = Expect::Original { at, value };
                (Wr::new(wr_id, operation).at(at, 8), expect)
            }
        }
    }

    /// Posts a receive at the peer of `end`, big enough for anything.
    fn post_receive(&mut self, end: usize) {
        let at = self.slot(1 - end);
        let target = if end == 0 {
            &mut self.pair.b
        } else {
            &mut self.pair.a
        };
        let wr_id = 10_000 + self.receives[end].len() as u64;
        let (now, qpn) = (target.now, target.qpn);
        target
            .nic
            .post_recv(now, qpn, recv(wr_id, at, SLOT as u32), &mut target.host)
            .unwrap();
        self.receives[end].push_back((wr_id, at, SLOT as u32));
    }

    /// Whether a message from `end` has no receive yet.
    fn owes_receive(&self, end: usize) -> bool {
        self.receives[end].len() < self.messages[end].len()
    }

    fn run(&mut self) {
        let both = self.random.chance(1, 2);
        let count = 1 + self.random.below(REQUESTS / 4);
        let ends = if both { &[0, 1][..] } else { &[0] };
        for _ in 0..count {
            for &end in ends {
                self.post(end);
                while self.owes_receive(end) && self.random.chance(2, 3) {
                    self.post_receive(end);
                }
            }
            let holds = self.random.chance(1, 4);
            self.pair.b.nic.hold_acknowledges(holds);
            // Not for so long that retries run out.
            for _ in 0..self.random.below(3) {
                self.pair.step();
            }
            self.pair.b.nic.hold_acknowledges(false);
            for _ in 0..self.random.below(6) {
                self.pair.step();
            }
        }
        for &end in ends {
            while self.owes_receive(end) {
                self.pair.step();
                self.post_receive(end);
            }
        }
        self.pair.run_until_idle();
    }

    fn judge(&self) {
        for end in 0..2 {
            self.judge_sends(end);
            self.judge_receives(end);
            let peer = if end == 0 { &self.pair.b } else { &self.pair.a };
            let counter = peer.host.word(COUNTER);
            assert_eq!(counter, self.counter[end], "atomics happen once");
            assert_eq!(peer.host.events, [], "no event");
            let local = (peer.host.binds, peer.host.invalidates);
            assert_eq!(local, self.local[1 - end], "local operations happen once");
        }
        self.pair.assert_nothing_in_flight();
    }

    fn judge_sends(&self, end: usize) {
        let (own, peer) = match end {
            0 => (&self.pair.a.host, &self.pair.b.host),
            _ => (&self.pair.b.host, &self.pair.a.host),
        };
        let done: Vec<_> = own
            .completions
            .iter()
            .filter(|(cq, _)| cq.0 == 1)
            .map(|(_, c)| (c.wr_id, c.status))
            .collect();
        let due: Vec<_> = self.posted[end]
            .iter()
            .filter(|(.., signaled)| *signaled)
            .map(|(wr_id, ..)| (*wr_id, CompletionStatus::Success))
            .collect();
        assert_eq!(done, due, "send completions of end {end}");
        for (wr_id, expect, _) in &self.posted[end] {
            match *expect {
                Expect::Remote { at, from, length } => assert!(
                    peer.bytes(at, length as usize) == own.bytes(from, length as usize),
                    "bytes of request {wr_id} of end {end}"
                ),
                Expect::Local { at, from, length } => assert!(
                    own.bytes(at, length as usize) == peer.bytes(from, length as usize),
                    "bytes read by request {wr_id} of end {end}"
                ),
                Expect::Original { at, value } => {
                    assert_eq!(own.word(at), value, "atomic {wr_id} of end {end}");
                }
                Expect::Nothing => {}
            }
        }
    }

    /// Receives complete in order with the lengths and immediates of the messages.
    fn judge_receives(&self, end: usize) {
        let peer = if end == 0 {
            &self.pair.b.host
        } else {
            &self.pair.a.host
        };
        let done: Vec<_> = peer
            .completions
            .iter()
            .filter(|(cq, _)| cq.0 == 2)
            .map(|(_, c)| (c.wr_id, c.status, c.byte_len, c.immediate))
            .collect();
        let due: Vec<_> = self.receives[end]
            .iter()
            .zip(&self.messages[end])
            .map(|((wr_id, ..), &(length, _, immediate))| {
                (*wr_id, CompletionStatus::Success, length, immediate)
            })
            .collect();
        assert_eq!(done, due, "receive completions for end {end}");
    }
}

#[test]
fn every_operation_under_every_impairment() {
    for seed in seeds(3000) {
        let (mut scenario, _note) = Scenario::new(seed);
        scenario.run();
        scenario.judge();
    }
}
