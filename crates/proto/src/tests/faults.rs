//! Seeds with faults in them: bad keys, short receives, queue pairs that go to the error state,
//! are reset or destroyed in the middle of anything, hosts without room, lossy wires.
//!
//! The oracle: a request completes once at most, in order; in the error state each one that must
//! show has; the queue pairs that nothing happened to finish; no byte in flight is forgotten.

use super::random::{SeedNote, seeds};
use crate::testing::{BASE, KEY, Pair, Random, Setup, Wr, bring_up, recv, remote};
use crate::{CompletionStatus, QpState, QpType, RecvRequest, Remote, SendOperation, SendRequest};
use feroce_wire::Qpn;
use std::collections::BTreeSet;
use std::format;
use std::vec::Vec;

const QPS: u32 = 4;

/// One end of one connection: what was posted there.
#[derive(Default)]
struct Posted {
    /// (request, whether success shows)
    sends: Vec<(u64, bool)>,
    receives: Vec<u64>,
    /// Reset or destroyed: what was posted may have vanished.
    forgotten: bool,
    /// Something bad was done to it on purpose.
    doomed: bool,
}

struct Faults {
    pair: Pair,
    random: Random,
    /// By end (0: a) and connection.
    posted: [Vec<Posted>; 2],
    next_wr: u64,
}

fn qpn(end: usize, connection: u32) -> Qpn {
    Qpn::new(if end == 0 { 0x100 } else { 0x200 } + connection)
}

impl Faults {
    fn new(seed: u64) -> (Self, SeedNote) {
        let mut random = Random::new(seed);
        let setup = Setup::new(QpType::Rc).with(|s| {
            s.memory = 1 << 16;
            s.timeout = 4;
            s.min_rnr_timer = 1;
            s.rnr_retry = random.pick(&[0, 3, 7]);
            s.retry_count = random.pick(&[1, 7]);
            s.psn = (random.next() as u32, random.next() as u32);
            s.config.window_initial = random.pick(&[9_000, 40_000]);
            s.config.window_max = 60_000;
            s.config.read_window = random.pick(&[4_000, 60_000]);
            s.config.quantum = random.pick(&[1, 16]);
        });
        let mut pair = setup.bare();
        for connection in 0..QPS {
            pair.a.qpn = qpn(0, connection);
            pair.b.qpn = qpn(1, connection);
            pair.a.nic.create_qp(pair.a.qpn, setup.init()).unwrap();
            pair.b.nic.create_qp(pair.b.qpn, setup.init()).unwrap();
            let to_b = setup.attributes(&pair.a, &pair.b, setup.psn);
            let to_a = setup.attributes(&pair.b, &pair.a, (setup.psn.1, setup.psn.0));
            bring_up(&mut pair.a, QpType::Rc, to_b, QpState::ReadyToSend);
            bring_up(&mut pair.b, QpType::Rc, to_a, QpState::ReadyToSend);
        }
        pair.wire.random = Random::new(seed ^ 0x55);
        pair.wire.impairment.loss = random.pick(&[0, 0, 10]);
        pair.wire.impairment.reordering = random.pick(&[0, 0, 10]);
        let options = format!(
            "rnr_retry {} retry_count {} {:?} {:?}",
            setup.rnr_retry, setup.retry_count, setup.config, pair.wire.impairment
        );
        let note = SeedNote {
            test: "faults_complete_every_request_once",
            seed,
            options,
        };
        let posted = [(); 2].map(|()| (0..QPS).map(|_| Posted::default()).collect());
        let faults = Self {
            pair,
            random,
            posted,
            next_wr: 0,
        };
        (faults, note)
    }

    fn act(&mut self) {
        let end = self.random.below(2) as usize;
        let connection = self.random.below(u64::from(QPS)) as u32;
        let doom = self.random.chance(1, 40);
        match self.random.below(10) {
            0..=2 => self.post_receive(end, connection, doom),
            3 if doom => self.kill(end, connection),
            4 => {
                self.pair.a.host.room = self.random.below(6) as usize;
                self.pair.b.host.room = self.random.below(6) as usize;
            }
            _ => self.post_send(end, connection, doom),
        }
        for _ in 0..self.random.below(4) {
            self.pair.step();
        }
        self.pair.a.host.room = usize::MAX;
        self.pair.b.host.room = usize::MAX;
    }

    /// Marks both ends of a connection as not bound to finish.
    fn doom(&mut self, connection: u32) {
        for posted in &mut self.posted {
            posted[connection as usize].doomed = true;
        }
    }

    fn post_send(&mut self, end: usize, connection: u32, doom: bool) {
        let wr_id = self.next_wr;
        self.next_wr += 1;
        let length = self.random.below(4000) as u32;
        let bad = Remote {
            address: BASE + (1 << 16) - 100,
            rkey: KEY,
        };
        let place = if doom { bad } else { remote(BASE) };
        let operation = match self.random.below(6) {
            0 => SendOperation::Send,
            1 => SendOperation::WriteImmediate(place, 1),
            2 => SendOperation::Read(place),
            3 => SendOperation::FetchAdd {
                remote: remote(BASE + 8 - u64::from(doom)),
                add: 1,
            },
            _ => SendOperation::Write(place),
        };
        let signaled = self.random.chance(1, 2);
        let request = Wr::new(wr_id, operation).len(length.max(8));
        let request = if signaled {
            request
        } else {
            request.unsignaled()
        };
        let request: SendRequest = request.into();
        if doom {
            self.doom(connection);
        }
        let target = if end == 0 {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        };
        let now = target.now;
        let result = target
            .nic
            .post_send(now, qpn(end, connection), request, &mut target.host);
        if result.is_ok() {
            self.posted[end][connection as usize]
                .sends
                .push((wr_id, signaled));
        }
    }

    fn post_receive(&mut self, end: usize, connection: u32, doom: bool) {
        let wr_id = self.next_wr;
        self.next_wr += 1;
        let mut request: RecvRequest = recv(wr_id, BASE + 8192, 5000);
        if doom {
            if self.random.chance(1, 2) {
                request.sges[0].length = 1;
            } else {
                request.sges[0].lkey = 0xdead;
            }
            self.doom(connection);
        }
        let target = if end == 0 {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        };
        let now = target.now;
        let result = target
            .nic
            .post_recv(now, qpn(end, connection), request, &mut target.host);
        if result.is_ok() {
            self.posted[end][connection as usize].receives.push(wr_id);
        }
    }

    /// To the error state, reset, or destroyed.
    fn kill(&mut self, end: usize, connection: u32) {
        self.doom(connection);
        let target = if end == 0 {
            &mut self.pair.a
        } else {
            &mut self.pair.b
        };
        target.qpn = qpn(end, connection);
        match self.random.below(3) {
            0 => {
                if target.nic.query_qp(target.qpn).is_some() {
                    target.move_to(QpState::Error);
                }
                return;
            }
            1 => {
                if target.nic.query_qp(target.qpn).is_some() {
                    target.move_to(QpState::Reset);
                }
            }
            _ => drop(target.nic.destroy_qp(target.qpn)),
        }
        self.posted[end][connection as usize].forgotten = true;
    }

    fn finish(&mut self) {
        // Receives for every message that still waits for one.
        for _ in 0..60 {
            for connection in 0..QPS {
                for end in 0..2 {
                    self.post_receive(end, connection, false);
                }
            }
            for _ in 0..40 {
                self.pair.step();
            }
        }
        self.pair.run_until_idle();
    }

    fn judge(&self) {
        self.pair.assert_nothing_in_flight();
        for end in 0..2 {
            for connection in 0..QPS {
                self.judge_one(end, connection);
            }
        }
    }

    fn judge_one(&self, end: usize, connection: u32) {
        let owner = if end == 0 { &self.pair.a } else { &self.pair.b };
        let posted = &self.posted[end][connection as usize];
        let own = qpn(end, connection);
        let state = owner
            .nic
            .query_qp(own)
            .map(|(attributes, _)| attributes.state);
        for (queue, is_send) in [(1, true), (2, false)] {
            let done: Vec<(u64, CompletionStatus)> = owner
                .host
                .completions
                .iter()
                .filter(|(cq, c)| cq.0 == queue && c.qpn == own)
                .map(|(_, c)| (c.wr_id, c.status))
                .collect();
            let all: Vec<(u64, bool)> = if is_send {
                posted.sends.clone()
            } else {
                posted.receives.iter().map(|&wr_id| (wr_id, true)).collect()
            };
            let at = format!("end {end} connection {connection} queue {queue} {state:?}");
            // In order, once each: a subsequence of what was posted.
            let mut rest = all.iter();
            for (wr_id, _) in &done {
                assert!(
                    rest.any(|(posted, _)| posted == wr_id),
                    "{wr_id} at {at}: {done:?}"
                );
            }
            // After the first failure everything fails.
            let failed = done
                .iter()
                .position(|(_, status)| *status != CompletionStatus::Success);
            if let Some(first) = failed {
                let flushed = CompletionStatus::WorkRequestFlushed;
                assert!(
                    done[first + 1..].iter().all(|(_, s)| *s == flushed),
                    "{at}: {done:?}"
                );
            }
            let shown: BTreeSet<u64> = done.iter().map(|(wr_id, _)| *wr_id).collect();
            let last_success = done
                .iter()
                .rev()
                .find(|(_, status)| *status == CompletionStatus::Success);
            if state == Some(QpState::Error) && !posted.forgotten {
                // Whatever did not show was unsignaled and came before a success or a failure.
                let first_failure = failed.map_or(u64::MAX, |place| done[place].0);
                for (wr_id, signaled) in &all {
                    let silent = !signaled && *wr_id < first_failure;
                    assert!(
                        shown.contains(wr_id) || silent,
                        "{wr_id} lost at {at}: {done:?}"
                    );
                }
            }
            if !posted.doomed && is_send && state == Some(QpState::ReadyToSend) {
                for (wr_id, signaled) in &all {
                    assert!(!signaled || shown.contains(wr_id), "{wr_id} hangs at {at}");
                }
                assert_eq!(
                    owner.nic.send_queue_len(own),
                    Some(0),
                    "{at} {last_success:?}"
                );
            }
        }
    }
}

#[test]
fn faults_complete_every_request_once() {
    for seed in seeds(1500) {
        let (mut faults, _note) = Faults::new(seed);
        let actions = 20 + faults.random.below(150);
        for _ in 0..actions {
            faults.act();
        }
        faults.finish();
        faults.judge();
    }
}
