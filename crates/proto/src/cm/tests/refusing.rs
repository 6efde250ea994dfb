//! Every kind of no.

use super::bench::{Bench, PORT, QP_A, RESPONSE_TIME, Side, events, name_of, service};
use crate::cm::{
    Accept, CmError, CmEvent, Connect, Listen, ListenAddress, Reject, Route, SidrReply,
    SidrRequest, refuse,
};
use core::time::Duration;
use feroce_wire::cm::{
    AprStatus, AttributeId, CmMad, Ece, IpCmHeader, Lap, Message, PathFields, RejectReason,
    SidrStatus, Transport,
};
use feroce_wire::mad::Mad;
use feroce_wire::{DEFAULT_PKEY, Psn, Qpn};
use std::vec::Vec;

/// The one message that a side sends.
#[track_caller]
fn sent(side: &mut Side) -> Mad {
    let (_, mad) = side.cm.poll_transmit().expect("a message");
    assert!(side.cm.poll_transmit().is_none());
    mad
}

/// What becomes of a request of `a` after `change`.
fn verdict(change: impl FnOnce(&mut Connect<'static>)) -> Vec<std::string::String> {
    let mut bench = Bench::new();
    let mut request = bench.request();
    change(&mut request);
    bench.a.cm.connect(bench.now, &request).unwrap();
    bench.settle();
    for millis in [50, 250] {
        bench.wait(Duration::from_millis(millis));
        bench.settle();
    }
    assert!(events(&mut bench.b).is_empty());
    bench.b.expect_empty();
    events(&mut bench.a)
}

#[test]
fn who_asks_a_little_too_early_is_heard_nevertheless() {
    let mut bench = Bench::new();
    bench.b.cm.unlisten(bench.listener);
    bench.connect();
    bench.settle();
    assert!(events(&mut bench.a).is_empty());
    let listen = Listen {
        service_id: service(PORT),
        address: ListenAddress::Any,
        backlog: 1,
    };
    bench.listener = bench.b.cm.listen(listen).unwrap();
    bench.a_sends(&[]);
    bench.wait(Duration::from_millis(50));
    bench.a_sends(&["REQ"]);
    bench.requested();
}

#[test]
fn nobody_listens_and_a_kind_of_connection_that_does_not_exist() {
    assert_eq!(
        verdict(|r| r.service_id = service(PORT + 1)),
        ["Rejected 8"]
    );
    assert_eq!(verdict(|r| r.transport = Transport::Rd), ["Rejected 9"]);
    assert_eq!(
        verdict(|r| r.transport = Transport::Reserved(5)),
        ["Rejected 9"]
    );
}

#[test]
fn a_path_mtu_that_does_not_exist() {
    let mut bench = Bench::new();
    bench.connect();
    let mut mad = sent(&mut bench.a);
    // The path MTU is the upper half of byte 50 behind the header.
    mad[24 + 50] = 0x60 | (mad[24 + 50] & 0xf);
    bench.inject_to_b(&mad);
    bench.b_sends(&["REJ 26"]);
}

#[test]
fn the_no_of_the_program_carries_its_data_and_is_repeated() {
    let mut bench = Bench::new();
    bench.connect();
    bench.collect();
    let req = *bench.to_b.front().unwrap();
    let at_b = bench.requested();
    let reject = Reject {
        reason: RejectReason(28),
        information: b"more",
        private_data: b"no",
    };
    bench.b.cm.reject(bench.now, at_b, &reject).unwrap();
    bench.collect();
    bench.to_a.clear();
    // It was lost.
    bench.inject_to_b(&req);
    bench.deliver_to_a();
    match bench.a.cm.poll_event() {
        Some(CmEvent::Rejected { reject, .. }) => {
            assert_eq!(reject.reason, RejectReason::CONSUMER_DEFINED);
            assert_eq!(reject.additional_information(), b"more");
            assert_eq!(&reject.private_data[..3], b"no\0");
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.a.cm.poll_event().is_none());
}

#[test]
fn the_active_side_may_refuse_the_reply() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    let reject = Reject::by_program(b"changed my mind");
    bench.a.cm.reject(bench.now, at_a, &reject).unwrap();
    bench.collect();
    bench.to_b.clear();
    // The REP comes again, because the REJ was lost.
    bench.wait(RESPONSE_TIME);
    bench.deliver_to_a();
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Rejected 28"]);
    assert_eq!(events(&mut bench.a), ["Reply"]);
}

#[test]
fn a_full_backlog_refuses_until_the_program_answers() {
    let mut bench = Bench::new();
    let mut at_b = Vec::new();
    for qpn in 1..=5 {
        let request = Connect::new(
            bench.route_of_a(),
            service(PORT),
            Qpn::new(qpn),
            Psn::new(0),
        );
        bench.a.cm.connect(bench.now, &request).unwrap();
        bench.deliver_to_b();
        if let Some(CmEvent::Request { connection, .. }) = bench.b.cm.poll_event() {
            at_b.push(connection);
        }
    }
    assert_eq!(at_b.len(), 4);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Rejected 3"]);
    let accept = Accept::new(Qpn::new(9), Psn::new(0));
    bench.b.cm.accept(bench.now, at_b[0], &accept).unwrap();
    bench.connect();
    bench.requested();
}

#[test]
fn a_full_device_refuses_its_own_program_and_its_peers() {
    let mut bench = Bench::new();
    bench.a.limit_open(1);
    bench.b.limit_open(1);
    bench.connect();
    let request = bench.request();
    let full = bench.a.cm.connect(bench.now, &request);
    assert_eq!(full, Err(CmError::Full(1)));
    bench.requested();
    let other = Connect {
        qpn: Qpn::new(7),
        ..request
    };
    bench.a.limit_open(2);
    bench.a.cm.connect(bench.now, &other).unwrap();
    bench.settle();
    assert_eq!(events(&mut bench.a), ["Rejected 3"]);
}

#[test]
fn what_is_too_long_is_refused_with_the_limit() {
    let mut bench = Bench::new();
    let too_long = |message, len, max| CmError::TooLong {
        what: "private data",
        message,
        len,
        max,
    };
    let mut request = Connect {
        private_data: &[1; 93],
        ..bench.request()
    };
    let refused = bench.a.cm.connect(bench.now, &request);
    assert_eq!(refused, Err(too_long(AttributeId::Req, 93, 92)));
    request.private_data = &[1; 57];
    request.ip = Some(IpCmHeader {
        source: [10, 0, 0, 1].into(),
        source_port: 1,
        destination: [10, 0, 0, 2].into(),
    });
    let refused = bench.a.cm.connect(bench.now, &request);
    assert_eq!(refused, Err(too_long(AttributeId::Req, 57, 56)));
    request.private_data = &[1; 56];
    bench.a.cm.connect(bench.now, &request).unwrap();
    bench.deliver_to_b();
    let Some(CmEvent::Request {
        connection,
        request,
        ..
    }) = bench.b.cm.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(request.consumer_data(), [1; 56]);
    assert_eq!(request.ip_header().unwrap().source_port, 1);
    let accept = Accept {
        private_data: &[2; 197],
        ..Accept::new(Qpn::new(1), Psn::new(0))
    };
    let refused = bench.b.cm.accept(bench.now, connection, &accept);
    assert_eq!(refused, Err(too_long(AttributeId::Rep, 197, 196)));
}

#[test]
fn an_alternate_path_is_refused_politely() {
    let mut bench = Bench::new();
    let (at_a, at_b) = bench.connected();
    let mut lap = Lap {
        local_comm_id: at_a.0,
        remote_comm_id: at_b.0,
        remote_qpn: super::bench::QP_B,
        remote_cm_response_timeout: 20,
        path: PathFields::default(),
        private_data: [0; 168],
    };
    for (remote, status) in [
        (at_b.0, AprStatus::UNSUPPORTED),
        (7, AprStatus::INVALID_COMM_ID),
    ] {
        lap.remote_comm_id = remote;
        let mad = CmMad {
            transaction_id: 5,
            message: Message::Lap(lap),
        }
        .encode();
        bench.inject_to_b(&mad);
        let answer = CmMad::parse(&sent(&mut bench.b)).unwrap();
        let Message::Apr(apr) = answer.message else {
            panic!("{answer}");
        };
        assert_eq!((answer.transaction_id, apr.status), (5, status));
        assert_eq!((apr.remote_comm_id, apr.local_comm_id), (at_a.0, remote));
    }
    // The connection does not mind.
    assert!(events(&mut bench.b).is_empty());
}

#[test]
fn a_device_without_a_manager_refuses_requests_and_agrees_to_ends() {
    let mut bench = Bench::new();
    bench.connect();
    let req = sent(&mut bench.a);
    let rej = refuse(&req).unwrap();
    assert_eq!(name_of(&rej), "REJ 8");
    for millis in [50, 250] {
        bench.inject_to_a(&rej);
        bench.wait(Duration::from_millis(millis));
        bench.a_sends(&["REQ"]);
        bench.to_b.clear();
    }
    bench.inject_to_a(&rej);
    assert_eq!(events(&mut bench.a), ["Rejected 8"]);
    assert_eq!(refuse(&rej), None);
    let (at_a, _) = bench.connected();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    let drep = refuse(&sent(&mut bench.a)).unwrap();
    bench.inject_to_a(&drep);
    assert_eq!(events(&mut bench.a), ["Disconnected Answered"]);
    assert_eq!(refuse(&[0; 256]), None);
    assert_eq!(refuse(&req[..255]), None);
}

#[test]
fn a_rep_for_nobody_ends_the_peers_wait() {
    let mut bench = Bench::new();
    bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    let rep = bench.to_a.pop_front().unwrap();
    let rej = refuse(&rep).unwrap();
    bench.inject_to_b(&rej);
    assert_eq!(events(&mut bench.b), ["Rejected 6"]);
}

/// A request for a datagram queue pair at `b`, and how `b` answers.
fn sidr(route: Route) -> SidrRequest<'static> {
    SidrRequest {
        route,
        service_id: service(PORT),
        ip: None,
        pkey: DEFAULT_PKEY,
        response_timeout: 20,
        max_cm_retries: 1,
        private_data: b"who",
    }
}

const HERE: SidrReply<'_> = SidrReply {
    status: SidrStatus::SUCCESS,
    qpn: QP_A,
    qkey: 0x0123_4567,
    ece: Ece {
        vendor_id: 0,
        options: 0,
    },
    information: &[],
    private_data: b"me",
};

#[test]
fn sidr_req_sidr_rep() {
    let mut bench = Bench::new();
    let request = sidr(bench.route_of_a());
    let at_a = bench.a.cm.sidr_request(bench.now, &request).unwrap();
    let req = sent(&mut bench.a);
    bench.inject_to_b(&req);
    // A repetition that is faster than the program is nothing new.
    bench.inject_to_b(&req);
    let Some(CmEvent::SidrRequest {
        request_id,
        request,
        ..
    }) = bench.b.cm.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(&request.private_data[..4], b"who\0");
    assert!(bench.b.cm.poll_event().is_none());
    bench.b.cm.sidr_reply(bench.now, request_id, &HERE).unwrap();
    assert!(bench.b.cm.sidr_reply(bench.now, request_id, &HERE).is_err());
    let rep = sent(&mut bench.b);
    bench.inject_to_b(&req);
    assert_eq!(sent(&mut bench.b), rep);
    bench.inject_to_a(&rep);
    bench.inject_to_a(&rep);
    match bench.a.cm.poll_event() {
        Some(CmEvent::SidrReply { request_id, reply }) => {
            assert_eq!(request_id, at_a);
            assert_eq!((reply.qpn, reply.qkey), (QP_A, 0x0123_4567));
            assert_eq!(&reply.private_data[..3], b"me\0");
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.a.cm.poll_event().is_none());
    bench.wait(Duration::from_secs(11));
    bench.expect_empty();
}

#[test]
fn sidr_refused_abandoned_and_unanswered() {
    let mut bench = Bench::new();
    let mut request = sidr(bench.route_of_a());
    request.service_id = service(PORT + 1);
    request.max_cm_retries = 2;
    bench.a.cm.sidr_request(bench.now, &request).unwrap();
    // Too early, perhaps: it is repeated twice.
    for millis in [50, 250] {
        bench.settle();
        assert!(events(&mut bench.a).is_empty());
        bench.wait(Duration::from_millis(millis));
        bench.a_sends(&["SIDRREQ"]);
    }
    bench.settle();
    assert_eq!(events(&mut bench.a), ["SidrReply 1"]);
    request.max_cm_retries = 1;
    request.service_id = service(PORT);
    bench.a.cm.sidr_request(bench.now, &request).unwrap();
    bench.deliver_to_b();
    let Some(CmEvent::SidrRequest { request_id, .. }) = bench.b.cm.poll_event() else {
        panic!("no request");
    };
    bench.b.cm.sidr_abandon(bench.now, request_id);
    bench.settle();
    assert_eq!(events(&mut bench.a), ["SidrReply 2"]);
    bench.a.cm.sidr_request(bench.now, &request).unwrap();
    bench.a_sends(&["SIDRREQ"]);
    bench.wait(RESPONSE_TIME);
    bench.a_sends(&["SIDRREQ", "SIDRREQ"]);
    bench.wait(RESPONSE_TIME);
    assert_eq!(events(&mut bench.a), ["SidrUnreachable"]);
    bench.wait(Duration::from_secs(11));
    bench.expect_empty();
}

#[test]
fn the_listener_of_the_address_that_was_asked_for() {
    let mut bench = Bench::new();
    let exact = Listen {
        service_id: service(PORT),
        address: ListenAddress::Exactly([10, 0, 0, 3].into()),
        backlog: 1,
    };
    let exact = bench.b.cm.listen(exact).unwrap();
    let mut request = bench.request();
    for (destination, expected) in [(3, exact), (2, bench.listener)] {
        request.qpn = Qpn::new(destination.into());
        request.ip = Some(IpCmHeader {
            source: [10, 0, 0, 1].into(),
            source_port: 1,
            destination: [10, 0, 0, destination].into(),
        });
        bench.a.cm.connect(bench.now, &request).unwrap();
        bench.deliver_to_b();
        match bench.b.cm.poll_event() {
            Some(CmEvent::Request { listener, .. }) => assert_eq!(listener, expected),
            other => panic!("{other:?}"),
        }
    }
}
