//! No socket of a process of this host overflows, however fast its peers are and however slow it
//! is itself.

use super::*;
use crate::net::mark::{Control, Mark};
use crate::net::room::{cost_of_batch, cost_of_singles};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What a socket gets from kernels that allow no more; they double it.
const SMALL: Option<u32> = Some(106_496);

/// A packet of path MTU 4096.
const PACKET: usize = 4112;

const LO: &str = "127.0.0.1";

fn small(port: u16) -> Net {
    configured(NetConfig {
        udp_port: port,
        addresses: vec![ip(LO)],
        receive_buffer: SMALL,
        ..NetConfig::default()
    })
}

impl Net {
    /// Sends `count` datagrams of `length` bytes as fast as there is room; each starts with its
    /// sender's port and number.
    fn blast(&mut self, to: &Destination, length: usize, count: u64, together: usize) {
        let mut next = 0;
        let mut batch = Vec::new();
        let start = Instant::now();
        while next < count {
            let room = self.room(to, length).min(together);
            if room == 0 {
                self.receive_ready(|_| {}).unwrap();
                thread::yield_now();
                assert!(start.elapsed() < 6 * PATIENCE, "{next} of {count} sent");
                continue;
            }
            let last = count.min(next + room as u64);
            batch.clear();
            for number in next..last {
                let end = batch.len() + length;
                batch.extend_from_slice(&number.to_le_bytes());
                batch.resize(end, 0);
            }
            let segments = (last - next) as usize;
            self.send(to, &[Fragment::from(&batch[..])], length, segments)
                .unwrap();
            next = last;
        }
    }
}

/// Receives until `count` datagrams came from each of `sources` sources, all in order. `rest`
/// runs between receiving.
#[track_caller]
fn take_all(net: &mut Net, sources: usize, count: u64, rest: impl Fn(u64)) {
    let mut next: std::collections::HashMap<SocketAddr, u64> = Default::default();
    let start = Instant::now();
    let mut all = 0;
    while all < sources as u64 * count {
        net.receive_ready(|datagram| {
            let expected = next.entry(datagram.source).or_default();
            let number = u64::from_le_bytes(*datagram.bytes.first_chunk().unwrap());
            assert_eq!(number, *expected, "from {}", datagram.source);
            *expected += 1;
            all += 1;
        })
        .unwrap();
        rest(all);
        assert!(start.elapsed() < 6 * PATIENCE, "{all} datagrams came");
    }
    assert_eq!(next.len(), sources);
    assert_eq!(net.counters().overflowed, 0);
}

/// `senders` devices in threads of their own send to one.
fn converge(senders: usize, length: usize, count: u64, together: usize, rest: fn(u64)) -> Net {
    let port = free_port();
    let mut receiver = small(port);
    let all: Vec<(Net, Destination)> = (0..senders)
        .map(|_| {
            let mut sender = small(port);
            acquaint(&mut sender, &mut receiver, LO);
            let to = sender.to(&receiver, LO);
            (sender, to)
        })
        .collect();
    thread::scope(|scope| {
        for (mut sender, to) in all {
            scope.spawn(move || {
                sender.blast(&to, length, count, together);
                assert_eq!(sender.counters().room_resets, 0);
            });
        }
        take_all(&mut receiver, senders, count, rest);
    });
    receiver
}

#[test]
fn a_fast_sender_waits_for_a_slow_receiver() {
    let naps = |all: u64| {
        if all.is_multiple_of(7) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let receiver = converge(1, PACKET, 10_000, 15, naps);
    assert!(receiver.counters().batches_in > 0);
    converge(1, 1040, 10_000, 1, naps);
}

#[test]
fn a_fast_sender_does_not_overrun_a_fast_receiver() {
    let receiver = converge(1, PACKET, 50_000, 15, |_| {});
    let counters = receiver.counters();
    // One for every quarter of the allowance, and some more where the sender had to wait.
    let expected = 50_000 * PACKET as u64 / (212_992 / 8);
    assert!(
        counters.answers_out < 2 * expected,
        "{} instead of about {expected}",
        counters.answers_out
    );
    converge(1, 1040, 50_000, 1, |_| {});
}

#[test]
fn several_senders_share_the_buffer_of_a_receiver() {
    converge(4, PACKET, 5_000, 15, |_| {});
    converge(8, 1040, 5_000, 1, |_| {});
}

#[test]
fn a_device_does_not_overrun_itself() {
    let mut net = small(free_port());
    let to = net.to(&net, LO);
    let mut sent = 0;
    let mut waits = 0;
    while sent < 5_000 {
        match net.room(&to, PACKET) {
            0 => {
                waits += 1;
                net.receive_ready(|_| {}).unwrap();
            }
            room => {
                let bytes = vec![0; room * PACKET];
                net.send(&to, &[Fragment::from(&bytes[..])], PACKET, room)
                    .unwrap();
                sent += room;
            }
        }
    }
    assert!(waits > 100);
    while net.receive_ready(|_| {}).unwrap() > 0 {}
    let counters = net.counters();
    assert_eq!(counters.datagrams_in, sent as u64);
    assert_eq!((counters.overflowed, counters.room_resets), (0, 0));
    assert_eq!(counters.answers_out, 0, "no need to write to oneself");
}

#[test]
fn a_receiver_that_died_is_noticed_at_once() {
    let port = free_port();
    let (mut a, mut b) = (small(port), small(port));
    acquaint(&mut a, &mut b, LO);
    let to = a.to(&b, LO);
    while a.room(&to, PACKET) > 0 {
        a.send_bytes(&to, &[0; PACKET]);
    }
    drop(b);
    let start = Instant::now();
    while a.room(&to, PACKET) == 0 {
        a.receive_ready(|_| {}).unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(a.counters().room_resets, 0, "found dead, not given up");
}

#[test]
fn a_receiver_that_is_alive_but_stopped_delays_its_senders_for_a_second() {
    let port = free_port();
    let (mut a, mut b) = (small(port), small(port));
    acquaint(&mut a, &mut b, LO);
    let to = a.to(&b, LO);
    let mut sent = 0;
    let start = Instant::now();
    while a.counters().room_resets == 0 {
        if a.room(&to, PACKET) > 0 {
            a.send_bytes(&to, &[0; PACKET]);
            sent += 1;
        }
        thread::sleep(Duration::from_micros(100));
        assert!(start.elapsed() < PATIENCE);
    }
    // The first second's worth is all there: a newcomer's share.
    assert!(start.elapsed() >= Duration::from_millis(900));
    assert_eq!(b.expect(sent).len(), sent);
    assert!(a.room(&to, PACKET) > 0);
    assert_eq!(a.counters().room_waits, 1);
    // Once it is back, all is as before.
    a.blast(&to, PACKET, 1, 1);
    b.expect(1);
    while a.receive_ready(|_| {}).unwrap() > 0 {}
    assert_eq!(b.counters().overflowed, 0);
}

#[test]
fn a_stopped_receiver_does_not_keep_others_from_receiving() {
    let port = free_port();
    let (mut a, mut stopped, mut b) = (small(port), small(port), small(port));
    acquaint(&mut a, &mut stopped, LO);
    acquaint(&mut a, &mut b, LO);
    let (to_stopped, to_b) = (a.to(&stopped, LO), a.to(&b, LO));
    while a.room(&to_stopped, PACKET) > 0 {
        a.send_bytes(&to_stopped, &[0; PACKET]);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            a.blast(&to_b, PACKET, 1_000, 15);
            done.store(true, Ordering::Relaxed);
        });
        take_all(&mut b, 1, 1_000, |_| {});
        // The last answers.
        while !done.load(Ordering::Relaxed) {
            b.receive_ready(|_| {}).unwrap();
        }
    });
}

#[test]
fn what_nobody_may_say_is_not_heard() {
    let port = free_port();
    let (mut a, mut b) = (small(port), small(port));
    acquaint(&mut a, &mut b, LO);
    let to = a.to(&b, LO);
    while a.room(&to, PACKET) > 0 {
        a.send_bytes(&to, &[0; PACKET]);
    }
    let own_port = a.source_port(&to).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for position in [
        0,
        1,
        10_000,
        a.peers.room(ip(LO), b.slot()).unwrap().position(),
    ] {
        let mark = Mark {
            slot: b.slot(),
            position,
        };
        // Neither from the wrong port nor through the shared port, where this is a packet.
        let answer = Control::Answer(mark, 1).encode();
        stranger.send_to(&answer, (LO, own_port)).unwrap();
        stranger.send_to(&answer, (LO, port)).unwrap();
    }
    let mut packets = 0;
    let start = Instant::now();
    while packets < 4 {
        packets += a.receive_ready(|_| {}).unwrap();
        b.receive_batch_of_shared(&mut packets);
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(a.counters().answers_in, 0);
    assert_eq!(a.room(&to, PACKET), 0);
    // Marks of strangers are answered to strangers, and show in no count of datagrams.
    let mark = Control::Mark(Mark {
        slot: 9,
        position: 77,
    });
    stranger.send_to(&mark.encode(), (LO, own_port)).unwrap();
    while a.counters().answers_out == 0 {
        assert_eq!(a.receive_ready(|_| {}).unwrap(), 0, "not shown");
    }
    let mut answer = [0; 100];
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = stranger.recv(&mut answer).unwrap();
    let answer = Control::parse(&answer[..length]);
    assert!(matches!(
        answer,
        Some(Control::Answer(
            Mark {
                slot: 9,
                position: 77
            },
            _
        ))
    ));
}

impl Net {
    /// Receives from the shared socket only.
    fn receive_batch_of_shared(&mut self, packets: &mut usize) {
        let token = self.local[0].shared;
        self.receive_from(token, &mut |_| *packets += 1);
    }
}

#[test]
fn the_kernel_charges_no_more_than_is_counted() {
    for address in [LO, "::1"] {
        let port = free_port();
        let (mut a, mut b) = (device(port, &[address]), device(port, &[address]));
        acquaint(&mut a, &mut b, address);
        let to = a.to(&b, address);
        let private = b.local[0].private;
        // The longest are too long for IPv6.
        for length in (1..300).chain((300..65_480).step_by(97)) {
            let bytes = vec![0; length];
            let mut cases = vec![(length, 1, cost_of_singles(1, length))];
            let segment_len = length.div_ceil(64);
            let segments = length.div_ceil(segment_len);
            // Of longer ones the kernel makes single datagrams.
            if segments > 1 && segments <= a.segments_max(&to, segment_len) {
                cases.push((segment_len, segments, cost_of_batch(length)));
            }
            for (segment_len, segments, mut cost) in cases {
                let marks = a.counters().marks_out;
                a.send(&to, &[Fragment::from(&bytes[..])], segment_len, segments)
                    .unwrap();
                cost += (a.counters().marks_out - marks) * cost_of_singles(1, Control::BYTES);
                let used = sys::receive_memory(b.sockets[private].fd.as_fd());
                assert!(
                    u64::from(used) <= cost && used as usize >= length,
                    "{segments} of {segment_len}: {used}, counted as {cost}"
                );
                b.expect(segments);
                // A mark, and its answer.
                b.expect_nothing();
                a.expect_nothing();
            }
        }
    }
}
