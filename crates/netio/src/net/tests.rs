mod overflow;

use super::*;
use crate::slot::SlotSendError;
use feroce_mem::Fragment;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Long enough for anything on loopback; only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A received datagram that outlives its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    bytes: Vec<u8>,
    source: SocketAddr,
    destination: IpAddr,
    destination_port: u16,
    traffic_class: u8,
    hop_limit: u8,
    local: bool,
    forwarded: bool,
}

impl From<Datagram<'_>> for Got {
    fn from(datagram: Datagram<'_>) -> Self {
        Self {
            bytes: datagram.bytes.to_vec(),
            source: datagram.source,
            destination: datagram.destination,
            destination_port: datagram.destination_port,
            traffic_class: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            local: datagram.local,
            forwarded: datagram.forwarded,
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A port nobody else uses, so that tests running at the same time stay apart.
fn free_port() -> u16 {
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port()
}

fn loopback_index() -> u32 {
    let interfaces = interfaces().unwrap();
    let lo = interfaces.iter().find(|interface| interface.loopback);
    lo.unwrap().index
}

/// A device on loopback, as another process would open it.
fn device(port: u16, addresses: &[&str]) -> Net {
    configured(NetConfig {
        udp_port: port,
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        ..NetConfig::default()
    })
}

fn configured(config: NetConfig) -> Net {
    let config = NetConfig {
        interface: loopback_index(),
        ..config
    };
    Net::open(config, Slot::claim().unwrap()).unwrap()
}

impl Net {
    fn slot(&self) -> u16 {
        self.slots[0].number()
    }

    fn to(&self, peer: &Self, address: &str) -> Destination {
        Destination {
            source: ip(address),
            destination: ip(address),
            slot: Some(peer.slot()),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            entropy: 0,
        }
    }

    fn send_bytes(&mut self, to: &Destination, bytes: &[u8]) {
        self.send(to, &[Fragment::from(bytes)], bytes.len(), 1)
            .unwrap();
    }

    /// Everything that arrives until there are `count` datagrams.
    #[track_caller]
    fn expect(&mut self, count: usize) -> Vec<Got> {
        let mut all = Vec::new();
        let start = Instant::now();
        while all.len() < count {
            self.receive_ready(|datagram| all.push(Got::from(datagram)))
                .unwrap();
            assert!(
                start.elapsed() < PATIENCE,
                "{} of {count} datagrams came",
                all.len()
            );
        }
        assert_eq!(all.len(), count);
        all
    }

    /// Nothing is waiting.
    #[track_caller]
    fn expect_nothing(&mut self) {
        let mut all = Vec::new();
        self.receive_ready(|datagram| all.push(Got::from(datagram)))
            .unwrap();
        assert_eq!(all, []);
    }
}

/// Lets two devices learn each other's private ports.
fn acquaint(a: &mut Net, b: &mut Net, address: &str) {
    let (to_b, to_a) = (a.to(b, address), b.to(a, address));
    let start = Instant::now();
    let mut known = false;
    // Ready they are soon, but on a busy machine that may mean "not waiting any longer".
    while !known {
        a.peer_ready(&to_b);
        b.peer_ready(&to_a);
        a.receive_ready(|_| {}).unwrap();
        b.receive_ready(|_| {}).unwrap();
        known = a.peer_buffer(ip(address), b.slot()).is_some()
            && b.peer_buffer(ip(address), a.slot()).is_some();
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn a_datagram_arrives_with_all_its_header_said() {
    for address in ["127.0.0.1", "::1"] {
        let port = free_port();
        let (mut a, mut b) = (device(port, &[address]), device(port, &[address]));
        acquaint(&mut a, &mut b, address);
        for traffic_class in [0x00, 0x01, 0x02, 0x03, 0xb8, 0xff] {
            let to = Destination {
                traffic_class,
                hop_limit: 9,
                ..a.to(&b, address)
            };
            let source_port = a.source_port(&to).unwrap();
            a.send_bytes(&to, b"hello");
            assert_eq!(
                b.expect(1),
                [Got {
                    bytes: b"hello".to_vec(),
                    source: SocketAddr::new(ip(address), source_port),
                    destination: ip(address),
                    destination_port: port,
                    traffic_class,
                    hop_limit: 9,
                    local: true,
                    forwarded: false,
                }]
            );
        }
        a.expect_nothing();
    }
}

#[test]
fn a_batch_arrives_as_the_datagrams_it_is_made_of() {
    for address in ["127.0.0.1", "::1"] {
        let port = free_port();
        let (mut a, mut b) = (device(port, &[address]), device(port, &[address]));
        acquaint(&mut a, &mut b, address);
        let to = a.to(&b, address);
        for (segment_len, total) in [(1, 64), (1040, 62 * 1040 + 1), (4112, 15 * 4112), (7, 20)] {
            assert!(a.segments_max(&to, segment_len) >= total / segment_len);
            let bytes: Vec<u8> = (0..total).map(|n| n as u8 ^ (n >> 8) as u8).collect();
            // Cut into fragments that respect no boundary, an empty one among them.
            let mut fragments = vec![Fragment::from(&[][..])];
            fragments.extend(bytes.chunks(1000).map(Fragment::from));
            let segments = total.div_ceil(segment_len);
            a.send(&to, &fragments, segment_len, segments).unwrap();
            let got: Vec<_> = b
                .expect(segments)
                .into_iter()
                .map(|got| got.bytes)
                .collect();
            let sent: Vec<_> = bytes.chunks(segment_len).map(<[u8]>::to_vec).collect();
            assert_eq!(got, sent, "{segment_len} of {total}");
        }
        let counters = a.counters();
        assert_eq!((counters.send_calls, counters.batches_out), (4, 4));
        assert_eq!(b.counters().batches_in, 4, "joined on loopback");
        assert_eq!(b.counters().datagrams_in, counters.datagrams_out);
        assert_eq!(b.counters().bytes_in, counters.bytes_out);
    }
}

#[test]
fn a_sender_that_knows_no_private_port_asks_for_it_once() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    let to = a.to(&b, "127.0.0.1");
    assert!(!a.peer_ready(&to));
    for _ in 0..5 {
        a.send_bytes(&to, b"early");
    }
    assert_eq!(a.counters().queries, 1);
    // What was sent to the shared port landed in either process and is handed on.
    let owner = b.slot();
    let start = Instant::now();
    let mut arrived = 0;
    while arrived < 5 {
        a.receive_ready(|_| Verdict::Forward(owner)).unwrap();
        arrived += b.receive_ready(|_| {}).unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    a.receive_ready(|_| {}).unwrap();
    assert!(a.peer_ready(&to));
    assert_eq!(
        a.peer_buffer(ip("127.0.0.1"), owner),
        Some(b.receive_buffer())
    );
    let forwarded = a.counters().forwarded_out;
    a.send_bytes(&to, b"late");
    assert!(!b.expect(1)[0].forwarded);
    assert_eq!(a.counters().forwarded_out, forwarded);
    assert_eq!(a.counters().queries, 1);
}

#[test]
fn what_lands_in_the_wrong_process_is_handed_on_with_its_header() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    // A device alone on the shared port gets everything.
    let owner = b.slot();
    b.remove_address(ip("127.0.0.1"));
    for number in 0..40u8 {
        stranger.send_to(&[number; 9], ("127.0.0.1", port)).unwrap();
    }
    let mut seen = 0;
    let start = Instant::now();
    while seen < 40 {
        seen += a.receive(|_| Verdict::Forward(owner)).unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(a.counters().forwarded_out, 40);
    let got = b.expect(40);
    for (number, got) in got.iter().enumerate() {
        assert_eq!(got.bytes, [number as u8; 9]);
        assert_eq!(got.source, stranger.local_addr().unwrap());
        assert_eq!(got.destination, ip("127.0.0.1"));
        assert_eq!(got.destination_port, port);
        assert!(got.forwarded && got.hop_limit > 0);
    }
    assert_eq!(b.counters().forwarded_in, 40);
}

#[test]
fn handing_on_to_nobody_drops_and_counts() {
    let port = free_port();
    let mut a = device(port, &["127.0.0.1"]);
    let gone = Slot::claim().unwrap();
    let owner = gone.number();
    drop(gone);
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    stranger.send_to(b"x", ("127.0.0.1", port)).unwrap();
    while a.receive(|_| Verdict::Forward(owner)).unwrap() == 0 {}
    assert_eq!(a.counters().forward_dropped, 1);
    assert_eq!(a.slots[0].send(owner, 0, b""), Err(SlotSendError::Absent));
}

// ---- what spinning costs -----------------------------------------------------------------------

#[test]
fn a_ping_pong_costs_one_receive_per_message_and_no_look_around() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    acquaint(&mut a, &mut b, "127.0.0.1");
    let (to_b, to_a) = (a.to(&b, "127.0.0.1"), b.to(&a, "127.0.0.1"));
    let before = (*a.counters(), *b.counters());
    const ROUNDS: u64 = 1000;
    for _ in 0..ROUNDS {
        a.send_bytes(&to_b, b"8 bytes.");
        // On loopback the datagram is there when the send returns.
        assert_eq!(b.receive(|_| {}).unwrap(), 1);
        b.send_bytes(&to_a, b"8 bytes.");
        assert_eq!(a.receive(|_| {}).unwrap(), 1);
    }
    for (net, before) in [(&a, before.0), (&b, before.1)] {
        let counters = net.counters();
        let looks = counters.poll_calls - before.poll_calls;
        assert_eq!(looks, ROUNDS / 16, "a look around every 16 messages");
        // A look around finds the usual socket empty and knows it without asking it.
        assert!(counters.receive_calls - before.receive_calls <= ROUNDS + looks);
    }
}

#[test]
fn another_socket_waits_for_a_few_empty_rounds_only() {
    let port = free_port();
    let mut net = device(port, &["127.0.0.1", "127.0.0.2"]);
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    for address in ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"] {
        stranger.send_to(b"x", (address, port)).unwrap();
        let rounds = (1..100).find(|_| net.receive(|_| {}).unwrap() > 0);
        assert!(rounds.unwrap() <= 8, "{rounds:?} rounds");
    }
    // And a busy one does not keep it waiting for long: neither small ones nor large ones do.
    for length in [8, 60_000] {
        stranger.send_to(b"x", ("127.0.0.1", port)).unwrap();
        net.expect(1);
        stranger.send_to(b"y", ("127.0.0.2", port)).unwrap();
        let mut rounds = 0;
        let mut seen = false;
        while !seen {
            stranger
                .send_to(&vec![0; length], ("127.0.0.1", port))
                .unwrap();
            net.receive(|datagram| seen |= datagram.bytes == b"y")
                .unwrap();
            rounds += 1;
            assert!(rounds <= 17);
        }
    }
}

#[test]
fn one_call_does_a_bounded_amount_of_work() {
    let port = free_port();
    let mut net = device(port, &["127.0.0.1"]);
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    for length in [1000, 60_000] {
        let mut sent = 0;
        // As much as the receive buffer takes, or three times what a call may take.
        for _ in 0..(3 << 20) / length {
            sent += stranger
                .send_to(&vec![0; length], ("127.0.0.1", port))
                .unwrap();
        }
        let mut most = 0;
        let mut all = 0;
        for _ in 0..10_000 {
            let mut bytes = 0;
            net.receive_ready(|datagram| bytes += datagram.bytes.len())
                .unwrap();
            most = most.max(bytes);
            all += bytes;
        }
        assert!(all <= sent && all > 0);
        let most_allowed = (256 << 10) + 16 * 65_535;
        assert!(most <= most_allowed, "{most} of {all} bytes in one call");
    }
}

#[test]
fn a_stream_of_batches_is_taken_a_batch_at_a_time() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    acquaint(&mut a, &mut b, "127.0.0.1");
    let to = a.to(&b, "127.0.0.1");
    let mut sizes = Vec::new();
    // Room for as many as a stream of single datagrams made room for.
    for _ in 0..64 {
        a.send_bytes(&to, &[0; 64]);
    }
    while b.receive(|_| {}).unwrap() > 0 {}
    for _ in 0..30 {
        a.send(&to, &[Fragment::from(&[0; 64 * 64][..])], 64, 64)
            .unwrap();
    }
    while sizes.iter().sum::<usize>() < 30 * 64 {
        sizes.push(b.receive(|_| {}).unwrap());
    }
    sizes.retain(|size| *size > 0);
    assert!(sizes[0] <= 16 * 64);
    assert!(sizes[1..].iter().all(|size| *size <= 2 * 64), "{sizes:?}");
}

// ---- errors of sending -------------------------------------------------------------------------

#[test]
fn requests_that_contradict_themselves_send_nothing() {
    let mut net = device(free_port(), &["127.0.0.1", "::1"]);
    let to = net.to(&net, "127.0.0.1");
    let fragment = [Fragment::from(&[0; 100][..])];
    for (segment_len, segments) in [(0, 1), (100, 0), (100, 2), (10, 9), (10, 11), (1, 100)] {
        let result = net.send(&to, &fragment, segment_len, segments);
        assert!(
            matches!(result, Err(SendError::Malformed(_))),
            "{segment_len} times {segments}: {result:?}"
        );
    }
    let many = vec![Fragment::from(&[0; 1][..]); 1025];
    assert!(matches!(
        net.send(&to, &many, 1025, 1),
        Err(SendError::Malformed(_))
    ));
    let large = vec![0; 65_508];
    assert!(matches!(
        net.send(&to, &[Fragment::from(&large[..])], 65_508, 1),
        Err(SendError::Malformed(_))
    ));
    let elsewhere = Destination {
        source: ip("127.0.0.7"),
        ..to
    };
    assert_eq!(
        net.send(&elsewhere, &fragment, 100, 1),
        Err(SendError::NoSource(ip("127.0.0.7")))
    );
    assert_eq!(net.counters().send_calls, 0);
    assert_eq!(net.counters().datagrams_out, 0);
}

#[test]
fn the_longest_datagram_and_the_longest_batch_arrive() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    acquaint(&mut a, &mut b, "127.0.0.1");
    let to = a.to(&b, "127.0.0.1");
    let bytes = vec![7; 65_507];
    a.send_bytes(&to, &bytes);
    assert_eq!(b.expect(1)[0].bytes, bytes);
    let segment_len = 65_507usize.div_ceil(64);
    let fragments: Vec<_> = bytes.chunks(65).map(Fragment::from).collect();
    assert_eq!(a.segments_max(&to, segment_len), 63);
    a.send(&to, &fragments, segment_len, 64).unwrap();
    assert_eq!(b.expect(64).len(), 64);
}

#[test]
fn a_kernel_that_does_not_cut_batches_gets_single_datagrams() {
    for address in ["127.0.0.1", "::1"] {
        let port = free_port();
        let (mut a, mut b) = (device(port, &[address]), device(port, &[address]));
        acquaint(&mut a, &mut b, address);
        let to = a.to(&b, address);
        // With checksums switched off the kernel refuses to cut: EINVAL.
        let token = a.local[0].private;
        let fd = a.sockets[token].fd.as_fd();
        let (level, no_checksum) = match ip(address) {
            IpAddr::V4(_) => (libc::SOL_SOCKET, libc::SO_NO_CHECK),
            IpAddr::V6(_) => (libc::SOL_UDP, libc::UDP_NO_CHECK6_TX),
        };
        sys::set_int(fd, level, no_checksum, 1).unwrap();
        if ip(address).is_ipv6() {
            // Only there are datagrams without a checksum dropped.
            let fd = b.sockets[b.local[0].private].fd.as_fd();
            sys::set_int(fd, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1).unwrap();
        }
        let bytes: Vec<u8> = (0..=255).collect();
        let fragments: Vec<_> = bytes.chunks(30).map(Fragment::from).collect();
        for round in 1..3 {
            assert_eq!(a.send(&to, &fragments, 100, 3), Ok(()));
            let got: Vec<_> = b.expect(3).into_iter().map(|got| got.bytes).collect();
            assert_eq!(got, bytes.chunks(100).collect::<Vec<_>>());
            assert_eq!(a.segments_max(&to, 100), 1);
            assert_eq!(a.counters().datagrams_out, 3 * round);
        }
        assert_eq!(a.counters().unsegmented, 1);
        assert_eq!(a.counters().batches_out, 0);
        // Others are not affected.
        let other = Destination {
            destination: ip(if address == "::1" {
                "fd00::1"
            } else {
                "127.0.0.2"
            }),
            ..to
        };
        assert_eq!(a.segments_max(&other, 100), 64);
    }
}

#[test]
fn a_leased_flow_label_elsewhere_costs_the_labels_and_nothing_else() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["::1"]), device(port, &["::1"]));
    acquaint(&mut a, &mut b, "::1");
    let other = UdpSocket::bind("[::1]:0").unwrap();
    // The kernel keeps a lease for some seconds after its socket is closed.
    let label = 0x5_0000 | (std::process::id() & 0xffff);
    sys::lease_flow_label(other.as_fd(), "::1".parse().unwrap(), label);
    let to = Destination {
        flow_label: 0x12345,
        ..a.to(&b, "::1")
    };
    let bytes = [7; 300];
    for _ in 0..3 {
        a.send(&to, &[Fragment::from(&bytes[..])], 100, 3).unwrap();
    }
    b.expect(9);
    assert_eq!(a.counters().send_calls, 4, "one was in vain");
    assert_eq!(a.counters().unsegmented, 0);
}

#[test]
fn unmapped_memory_is_a_fault_of_the_buffer_and_sends_nothing() {
    let mut net = device(free_port(), &["127.0.0.1"]);
    let to = net.to(&net, "127.0.0.1");
    let fragments = [
        Fragment::from(&b"header"[..]),
        sys::unmapped_fragment(64),
        Fragment::from(&b"sum"[..]),
    ];
    let length = 6 + 64 + 3;
    assert_eq!(net.send(&to, &fragments, length, 1), Err(SendError::Fault));
    net.expect_nothing();
}

// ---- addresses, ports, flows -------------------------------------------------------------------

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn an_address_can_come_and_go() {
    let port = free_port();
    let mut net = device(port, &["127.0.0.1"]);
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    net.add_address(ip("127.0.0.5")).unwrap();
    net.add_address(ip("127.0.0.5")).unwrap();
    assert_eq!(net.addresses().count(), 2);
    stranger.send_to(b"x", ("127.0.0.5", port)).unwrap();
    assert_eq!(net.expect(1)[0].destination, ip("127.0.0.5"));
    net.prefer_flow(ip("127.0.0.5"), stranger.local_addr().unwrap())
        .unwrap();
    net.remove_address(ip("127.0.0.5"));
    net.remove_address(ip("127.0.0.5"));
    stranger.send_to(b"y", ("127.0.0.5", port)).unwrap();
    net.expect_nothing();
    // Gone with all its sockets, so that another program can have the port.
    let _other = UdpSocket::bind(("127.0.0.5", port)).unwrap();
    let refused = net.add_address(ip("127.0.0.5")).unwrap_err();
    assert!(matches!(refused, OpenError::PortInUse { .. }), "{refused}");
    let nowhere = net.add_address(ip("192.0.2.1")).unwrap_err();
    assert!(matches!(nowhere, OpenError::AddressUnavailable(_)));
    assert_eq!(net.addresses().collect::<Vec<_>>(), [ip("127.0.0.1")]);
}

#[test]
fn source_ports_spread_toward_other_hosts_only_and_stay_the_same() {
    let net = device(free_port(), &["127.0.0.1"]);
    let mut to = net.to(&net, "127.0.0.1");
    let ports = |to: &mut Destination| -> Vec<u16> {
        let mut ports = Vec::new();
        for entropy in 0..16 {
            to.entropy = entropy;
            ports.push(net.source_port(to).unwrap());
        }
        ports
    };
    assert!(
        ports(&mut to)
            .iter()
            .all(|port| *port == net.local[0].private_port)
    );
    to.destination = ip("192.0.2.1");
    let first = ports(&mut to);
    assert_eq!(first, ports(&mut to));
    assert_eq!(first[..8], first[8..]);
    let mut distinct = first.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), ENTROPY_PORTS);
    to.destination = ip("239.1.1.1");
    assert!(
        ports(&mut to)
            .iter()
            .all(|port| *port == net.local[0].private_port)
    );
}

#[test]
fn a_preferred_flow_beats_every_other_socket_of_the_port() {
    let port = free_port();
    let mut nets: Vec<_> = (0..4).map(|_| device(port, &["127.0.0.1"])).collect();
    let owner = 2;
    for flow in 0..16 {
        let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
        let peer = stranger.local_addr().unwrap();
        nets[owner].prefer_flow(ip("127.0.0.1"), peer).unwrap();
        stranger.send_to(&[flow], ("127.0.0.1", port)).unwrap();
        let got = nets[owner].expect(1);
        assert_eq!((&got[0].bytes[..], got[0].source), (&[flow][..], peer));
    }
    nets.iter_mut().for_each(Net::expect_nothing);
    assert_eq!(nets[owner].counters().flows_opened, 16);
    let unknown = nets[owner].prefer_flow(ip("127.0.0.8"), "10.0.0.1:9".parse().unwrap());
    assert!(matches!(unknown, Err(OpenError::AddressUnavailable(_))));
}

#[test]
fn flows_are_bounded_and_the_silent_ones_give_way() {
    let port = free_port();
    let mut net = configured(NetConfig {
        udp_port: port,
        addresses: vec![ip("127.0.0.1")],
        flows_max: 3,
        ..NetConfig::default()
    });
    let peer = |number: u16| SocketAddr::new(ip("127.0.0.9"), 20_000 + number);
    for number in 0..3 {
        net.prefer_flow(ip("127.0.0.1"), peer(number)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    // Asking again is a use.
    net.prefer_flow(ip("127.0.0.1"), peer(0)).unwrap();
    assert_eq!(net.counters().flows_opened, 3);
    net.prefer_flow(ip("127.0.0.1"), peer(3)).unwrap();
    let kept: Vec<_> = (0..4)
        .filter(|number| net.find_flow(ip("127.0.0.1"), peer(*number)).is_some())
        .collect();
    assert_eq!(kept, [0, 2, 3]);
    // Strangers cannot push out what is in use, nor open sockets at will.
    for number in 10..200 {
        net.adopt_flow(ip("127.0.0.1"), peer(number));
    }
    assert_eq!(net.flows.len(), 3);
    assert_eq!(net.counters().flows_opened, 4);
}

#[test]
fn opening_and_closing_leaves_no_descriptor_behind() {
    // In one process with other tests: theirs come and go, ours would pile up.
    let before = open_files();
    for _ in 0..300 {
        let mut net = device(free_port(), &["127.0.0.1", "::1"]);
        net.join(ip("239.1.2.3")).unwrap();
        let to = Destination {
            destination: ip("192.0.2.1"),
            entropy: 1,
            ..net.to(&net, "127.0.0.1")
        };
        net.source_port(&to).unwrap();
        net.prefer_flow(ip("127.0.0.1"), "127.0.0.9:9".parse().unwrap())
            .unwrap();
    }
    let after = open_files();
    assert!(after < before + 250, "{before} files before, {after} after");
}

#[test]
fn a_group_on_loopback_reaches_its_members_and_their_verdict_is_final() {
    // IPv6 has no multicast on loopback unless someone adds a route for it.
    let (address, group) = ("127.0.0.1", "239.7.7.7");
    let port = free_port();
    let (mut a, mut b) = (device(port, &[address]), device(port, &[address]));
    a.join(ip(group)).unwrap();
    b.join(ip(group)).unwrap();
    let to = Destination {
        destination: ip(group),
        slot: None,
        ..a.to(&b, address)
    };
    a.send_bytes(&to, b"to all");
    for net in [&mut a, &mut b] {
        let got = net.expect(1);
        assert_eq!(
            (got[0].destination, got[0].destination_port),
            (ip(group), port)
        );
    }
    // A member that says "not mine" does not make it arrive twice elsewhere.
    a.send_bytes(&to, b"to all");
    let (slot_a, slot_b) = (a.slot(), b.slot());
    while a.receive_ready(|_| Verdict::Forward(slot_b)).unwrap() == 0 {}
    while b.receive_ready(|_| Verdict::Forward(slot_a)).unwrap() == 0 {}
    a.expect_nothing();
    b.expect_nothing();
    let refused = device(free_port(), &[]).join(ip("127.0.0.1"));
    assert!(refused.is_err(), "not a group");
}

#[test]
fn what_does_not_fit_the_receive_buffer_is_counted() {
    let port = free_port();
    let mut net = device(port, &["127.0.0.1"]);
    let fd = net.sockets[net.local[0].shared].fd.as_fd();
    sys::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).unwrap();
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    for _ in 0..100 {
        stranger.send_to(&[0; 1000], ("127.0.0.1", port)).unwrap();
    }
    let mut arrived = 0;
    while arrived == 0 {
        arrived = net.receive_ready(|_| {}).unwrap();
    }
    // The count comes with the next datagram.
    stranger.send_to(b"x", ("127.0.0.1", port)).unwrap();
    let start = Instant::now();
    while net.counters().overflowed == 0 {
        arrived += net.receive_ready(|_| {}).unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(arrived as u64 + net.counters().overflowed, 101);
}

#[test]
fn an_error_message_of_the_network_does_not_end_receiving() {
    let port = free_port();
    let mut net = device(port, &["127.0.0.1"]);
    let stranger = UdpSocket::bind("127.0.0.9:0").unwrap();
    let peer = stranger.local_addr().unwrap();
    net.prefer_flow(ip("127.0.0.1"), peer).unwrap();
    // A connected socket gets "connection refused" when what left by it found nobody; the socket
    // of a flow sends nothing, so it is made to here.
    let flow = net.sockets[net.flows[0]].fd.as_fd().try_clone_to_owned();
    let flow = UdpSocket::from(flow.unwrap());
    drop(stranger);
    flow.send(b"x").unwrap();
    assert_eq!(net.receive_ready(|_| {}).unwrap(), 0);
    let stranger = UdpSocket::bind(peer).unwrap();
    stranger.send_to(b"y", ("127.0.0.1", port)).unwrap();
    assert_eq!(net.expect(1)[0].bytes, b"y");
}

// ---- a bad network -----------------------------------------------------------------------------

#[test]
fn an_impaired_device_loses_repeats_and_delays_what_it_receives() {
    let port = free_port();
    let impairment = "loss=10%,dup=5%,reorder=10%,corrupt=5%,delay=1ms,seed=42";
    let mut a = device(port, &["127.0.0.1"]);
    let mut b = configured(NetConfig {
        udp_port: port,
        addresses: vec![ip("127.0.0.1")],
        impairment: Some(impairment.parse().unwrap()),
        ..NetConfig::default()
    });
    acquaint(&mut a, &mut b, "127.0.0.1");
    let to = a.to(&b, "127.0.0.1");
    let mut got: Vec<Got> = Vec::new();
    for batch in 0..64u8 {
        let bytes: Vec<u8> = (0..64).flat_map(|n| [batch, n, 0, 0, 0, 0, 0, 0]).collect();
        a.send(&to, &[Fragment::from(&bytes[..])], 8, 64).unwrap();
        b.receive_ready(|datagram| got.push(datagram.into()))
            .unwrap();
    }
    // It is told when to look again, without anything arriving.
    let start = Instant::now();
    let offered = |net: &Net| net.impairment_counts().unwrap().offered;
    while offered(&b) < 4096 || b.impaired.as_ref().unwrap().is_waiting() {
        assert!(sys::wait_readable(b.poll_fd(), PATIENCE), "no timer");
        b.receive_ready(|datagram| got.push(datagram.into()))
            .unwrap();
        assert!(start.elapsed() < PATIENCE);
    }
    let counts = b.impairment_counts().unwrap();
    assert_eq!(
        got.len() as u64,
        counts.offered - counts.lost + counts.duplicated
    );
    assert!(counts.lost > 250 && counts.duplicated > 100, "{counts:?}");
    assert!(
        counts.corrupted > 100 && counts.reordered > 250,
        "{counts:?}"
    );
    assert_eq!(b.counters().datagrams_in, got.len() as u64);
    let order: Vec<_> = got.iter().map(|got| (got.bytes[0], got.bytes[1])).collect();
    assert!(!order.is_sorted());
    // Single datagrams of a batch are hit, not the batch.
    let first_batch = order.iter().filter(|(batch, _)| *batch == 0).count();
    assert!((30..64 + 20).contains(&first_batch), "{first_batch}");
    assert!(
        got.iter()
            .all(|got| got.local && got.source.ip() == ip("127.0.0.1"))
    );
}

#[test]
fn a_bundle_arrives_as_the_datagrams_in_it_and_is_for_this_host_only() {
    let port = free_port();
    let (mut a, mut b) = (device(port, &["127.0.0.1"]), device(port, &["127.0.0.1"]));
    let to_b = a.to(&b, "127.0.0.1");
    assert_eq!(a.bundle_room(&to_b, 9), None, "no private port is known");
    acquaint(&mut a, &mut b, "127.0.0.1");
    assert!(a.bundle_room(&to_b, 9).is_some_and(|bytes| bytes > 9));
    let datagrams: [&[u8]; 3] = [b"short", b"somewhat longer", &[7; 20_000]];
    let mut bytes = bundle::HEAD.to_vec();
    for datagram in datagrams {
        bytes.extend(bundle::prefix(datagram.len() as u16));
        bytes.extend(datagram);
    }
    let lengths = datagrams.map(|datagram| datagram.len() as u16);
    a.send_bundle(&to_b, &[Fragment::from(&bytes[..])], &lengths)
        .unwrap();
    let got = b.expect(3);
    let came: Vec<_> = got.iter().map(|got| &got.bytes[..]).collect();
    assert_eq!(came, datagrams);
    assert_eq!((a.counters().bundles_out, b.counters().bundles_in), (1, 1));
    let elsewhere = Destination {
        destination: ip("192.0.2.1"),
        ..to_b
    };
    assert_eq!(a.bundle_room(&elsewhere, 9), None);
}
