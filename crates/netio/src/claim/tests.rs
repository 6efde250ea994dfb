use super::*;

/// Port spaces of their own, so that tests that run at the same time do not meet.
fn space() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id() as u16;
    process.wrapping_mul(64) ^ NEXT.fetch_add(1, Ordering::Relaxed)
}

fn at(ip: &str) -> Place {
    let (ip, scope) = ip.split_once('%').unwrap_or((ip, "0"));
    Place::new(ip.parse().unwrap(), scope.parse().unwrap(), false)
}

fn only(ip: &str) -> Place {
    Place::new(ip.parse().unwrap(), 0, true)
}

#[track_caller]
fn assert_taken(result: Result<Claim, ClaimError>) {
    assert!(
        matches!(result, Err(ClaimError::Taken { .. })),
        "{result:?}"
    );
}

#[test]
fn overlaps_are_those_of_tcp() {
    let table = [
        (at("10.0.0.1"), at("10.0.0.1"), true),
        (at("10.0.0.1"), at("10.0.0.2"), false),
        (at("10.0.0.1"), at("0.0.0.0"), true),
        (at("10.0.0.1"), at("::"), true),
        (at("10.0.0.1"), only("::"), false),
        (at("10.0.0.1"), at("::ffff:10.0.0.1"), true),
        (at("10.0.0.1"), at("2001:db8::1"), false),
        (at("0.0.0.0"), at("::"), true),
        (at("0.0.0.0"), only("::"), false),
        (at("2001:db8::1"), at("::"), true),
        (at("2001:db8::1"), only("::"), true),
        (at("2001:db8::1"), at("2001:db8::2"), false),
        (at("fe80::1%2"), at("fe80::1%3"), false),
        (at("fe80::1%2"), at("fe80::1%2"), true),
    ];
    for (a, b, expected) in table {
        assert_eq!(a.overlaps(&b), expected, "{a:?} {b:?}");
        assert_eq!(b.overlaps(&a), expected, "{b:?} {a:?}");
    }
}

#[test]
fn a_claim_excludes_what_overlaps_until_it_is_dropped() {
    let service = Service::Port {
        space: space(),
        port: 7,
    };
    let wildcard = Claim::new(service, at("0.0.0.0"), false).unwrap();
    assert_taken(Claim::new(service, at("0.0.0.0"), false));
    assert_taken(Claim::new(service, at("10.0.0.1"), false));
    assert_taken(Claim::new(service, at("::"), false));
    assert_taken(Claim::new(service, at("10.0.0.1"), true));
    let v6 = Claim::new(service, only("::"), false).unwrap();
    drop(wildcard);
    let one = Claim::new(service, at("10.0.0.1"), false).unwrap();
    let _two = Claim::new(service, at("10.0.0.2"), false).unwrap();
    assert_taken(Claim::new(service, at("0.0.0.0"), false));
    drop((v6, one));
}

#[test]
fn ports_that_allow_reuse_coexist_until_one_listens() {
    let service = Service::Whole(0x1_0000_0000 + u64::from(space()));
    let mut first = Claim::new(service, at("10.0.0.1"), true).unwrap();
    let mut second = Claim::new(service, at("10.0.0.1"), true).unwrap();
    let mut wildcard = Claim::new(service, at("0.0.0.0"), true).unwrap();
    assert_taken(Claim::new(service, at("10.0.0.1"), false));
    first.listen().unwrap();
    first.listen().unwrap();
    assert!(matches!(second.listen(), Err(ClaimError::Taken { .. })));
    assert!(matches!(wildcard.listen(), Err(ClaimError::Taken { .. })));
    assert_taken(Claim::new(service, at("10.0.0.1"), true));
    drop(first);
    wildcard.listen().unwrap();
    assert!(matches!(second.listen(), Err(ClaimError::Taken { .. })));
}

#[test]
fn requests_go_to_the_best_listener() {
    let courier = Courier::new().unwrap();
    let service = Service::Port {
        space: space(),
        port: 18_515,
    };
    let deliver = |ip| courier.deliver(service, at(ip), b"request");
    let took = |claim: &Claim| {
        courier.take(claim.listener().unwrap(), |bytes| {
            assert_eq!(bytes, b"request");
        })
    };
    assert_eq!(deliver("10.0.0.1"), Delivery::Nobody);
    let mut one = Claim::new(service, at("10.0.0.1"), false).unwrap();
    assert_eq!(deliver("10.0.0.1"), Delivery::Early, "bound only");
    one.listen().unwrap();
    let mut two = Claim::new(service, only("::"), false).unwrap();
    two.listen().unwrap();
    assert_eq!(deliver("10.0.0.1"), Delivery::Delivered);
    assert_eq!(deliver("10.0.0.2"), Delivery::Nobody);
    assert_eq!(deliver("2001:db8::1"), Delivery::Delivered);
    assert!(took(&one) && !took(&one));
    assert!(took(&two) && !took(&two));
    drop((one, two));
    let mut all = Claim::new(service, at("::"), false).unwrap();
    all.listen().unwrap();
    assert_eq!(deliver("10.0.0.9"), Delivery::Delivered);
    assert_eq!(deliver("fe80::1%4"), Delivery::Delivered);
    assert!(took(&all) && took(&all) && !took(&all));
    for _ in 0..100_000 {
        if deliver("10.0.0.9") == Delivery::Full {
            return;
        }
    }
    panic!("a queue without an end");
}

#[test]
fn ephemeral_ports_are_free_ones() {
    let space = space();
    let taken: Vec<_> = (0..100)
        .map(|_| Claim::ephemeral(space, at("0.0.0.0"), false).unwrap())
        .collect();
    let ports: std::collections::HashSet<_> = taken
        .iter()
        .map(|claim| match claim.service() {
            Service::Port { port, .. } => port,
            Service::Whole(_) => panic!("a port"),
        })
        .collect();
    assert_eq!(ports.len(), 100);
    assert!(ports.iter().all(|port| EPHEMERAL_PORTS.contains(port)));
    let count = EPHEMERAL_PORTS.end() - EPHEMERAL_PORTS.start() + 1;
    let all: std::collections::HashSet<_> = ephemeral_ports().collect();
    assert_eq!(all.len(), usize::from(count));
}

#[test]
fn ports_to_connect_from_are_unique_and_come_back() {
    let space = space();
    let taken: Vec<_> = (0..1_000)
        .map(|_| ConnectPort::take(space).unwrap())
        .collect();
    let ports: std::collections::HashSet<_> = taken.iter().map(ConnectPort::port).collect();
    assert_eq!(ports.len(), 1_000);
    assert!(ports.iter().all(|port| EPHEMERAL_PORTS.contains(port)));
    drop(taken);
    let again = ConnectPort::take(space).unwrap();
    assert!(EPHEMERAL_PORTS.contains(&again.port()));
}

#[test]
fn foreign_names_are_no_claims() {
    let text = b"Num RefCount Protocol Flags Type St Inode Path\n\
        0000: 00000002 00000000 00000000 0002 01 1 @feroce/claim/0106:7/10.0.0.1/only\n\
        0000: 00000002 00000000 00000000 0002 01 2 @feroce/claim/0106:99999/10.0.0.1/only\n\
        0000: 00000002 00000000 00000000 0002 01 3 @feroce/claim/0106:7\n\
        0000: 00000002 00000000 00000000 0002 01 4 @feroce/claim/x/y/z\n\
        0000: 00000002 00000000 00000000 0002 01 5 /run/some@feroce/socket\n\
        0000: 00000002 00000000 00000000 0002 01 6 @\xff\xfe\n\
        0000: 00000002 00000000 00000000 0002 01 7 @feroce/listen/0/0106:7/10.0.0.1\n\
        0000: 00000002 00000000 00000000 0002 01 8 @feroce/listen/0/0106:7/";
    let listing = Listing::parse(text, None);
    assert_eq!(listing.claims.len(), 1);
    assert!(listing.claims[0].listens);
    assert_eq!(listing.listeners.len(), 1);
}
