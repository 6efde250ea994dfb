use super::*;
use crate::net::{Net, NetConfig};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A device without addresses: all it hears is its slot.
fn listener() -> Net {
    let slot = Slot::claim().unwrap();
    Net::open(NetConfig::default(), slot).unwrap()
}

fn hear(net: &mut Net) {
    // More than a queue holds, two a call.
    for _ in 0..1_000 {
        assert_eq!(net.receive_ready(|_| {}).unwrap(), 0, "no packet was sent");
    }
}

/// Any program's socket, to say something wrong to a slot with.
fn stranger(name: &str) -> UnixDatagram {
    let name = format!("{name}{}", std::process::id());
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

fn say(from: &UnixDatagram, to: u16, bytes: &[u8]) {
    let to = SocketAddr::from_abstract_name(name_of(to)).unwrap();
    from.send_to_addr(bytes, &to).unwrap();
}

#[test]
fn a_queue_pair_number_is_a_slot_and_an_index() {
    let slot = Slot::claim().unwrap();
    assert!((1..SLOTS - 1).contains(&slot.number()));
    assert_eq!(slot_of(slot.qpn(0x1234)), slot.number());
    assert_eq!(slot.qpn(0x1234) & 0x3fff, 0x1234);
    assert_eq!(slot_of(1), 0, "the management queue pair belongs to nobody");
    assert_eq!(slot_of(0xff_ffff), SLOTS - 1, "so does the multicast one");
    assert_eq!(
        slot_of(0xff00_0001),
        0,
        "the upper eight bits are no part of it"
    );
}

#[test]
fn messages_arrive_with_sender_kind_and_bytes() {
    let mut net = listener();
    let to = net.slots()[0].number();
    let other = Slot::claim().unwrap();
    let long = vec![9; MESSAGE_MAX];
    other.send(to, 3, b"first").unwrap();
    other.send(to, 255, &long).unwrap();
    other.send(to, 0, b"").unwrap();
    assert_eq!(
        other.send(to, 0, &[0; MESSAGE_MAX + 1]),
        Err(SlotSendError::TooLong)
    );
    hear(&mut net);
    let expected = [(3, b"first".to_vec()), (255, long), (0, Vec::new())];
    let expected = expected.map(|(kind, payload)| SlotMessage {
        from: other.number(),
        to,
        kind,
        payload,
    });
    assert_eq!(net.take_messages().collect::<Vec<_>>(), expected);
    assert_eq!(net.take_messages().count(), 0);
}

#[test]
fn a_slow_owner_costs_nobody_time_or_memory() {
    let mut net = listener();
    let to = net.slots()[0].number();
    let other = Slot::claim().unwrap();
    let mut sent = 0;
    loop {
        match other.send(to, 0, &[0; MESSAGE_MAX]) {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error, SlotSendError::Full);
                break;
            }
        }
        assert!(sent < 100_000, "a queue without end");
    }
    // Nor does one that hears but does not take.
    for _ in 0..2_000 {
        let _ = other.send(to, 0, b"x");
        net.receive_ready(|_| {}).unwrap();
    }
    let dropped = net.counters().messages_dropped;
    assert!(dropped > 0);
    assert_eq!(net.take_messages().count(), 1_024);
}

#[test]
fn what_makes_no_sense_is_dropped_and_counted() {
    let mut net = listener();
    let to = net.slots()[0].number();
    // A right message from a name that is no slot's, and wrong ones from a slot.
    let stranger = stranger("feroce-test-stranger");
    let mut message = message::header(message::KIND_CALLER).to_vec();
    message.push(7);
    say(&stranger, to, &message);
    let other = Slot::claim().unwrap();
    let wrong: [&[u8]; 4] = [b"", b"F", b"garbage", &vec![0xff; message::BYTES_MAX + 1]];
    for bytes in wrong {
        other.transmit(to, &[IoSlice::new(bytes)]).unwrap();
    }
    hear(&mut net);
    assert_eq!(net.counters().malformed, 5);
    assert_eq!(net.take_messages().count(), 0);
}

#[test]
fn descriptors_a_stranger_attaches_do_not_stay_here() {
    let mut net = listener();
    let to = net.slots()[0].number();
    let stranger = stranger("feroce-test-rights");
    let (pipe, other_end) = io::pipe().unwrap();
    let payload = message::header(message::KIND_CALLER);
    sys::send_with_descriptor(stranger.as_fd(), &name_of(to), &payload, other_end.as_fd());
    drop(other_end);
    hear(&mut net);
    assert_eq!(net.counters().malformed, 1);
    // Of the pipe there is the end we kept, and no copy of the other one.
    let link = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let ours = link(pipe.as_raw_fd());
    assert!(ours.is_some());
    assert_eq!((0..1_000).filter(|fd| link(*fd) == ours).count(), 1);
}
