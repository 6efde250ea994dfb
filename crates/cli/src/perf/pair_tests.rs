//! Both ends in one process: what a verdict on data notices.

use super::client::{self, Limit};
use super::endpoint::{CLIENT, Endpoint, SERVER};
use super::pattern::problem_of;
use super::protocol::{Case, Mode, Test};
use feroce_verbs::Context;

const MESSAGES: u64 = 20;

/// Two connected ends, and a run of bandwidth from one to the other. Receives last for it.
struct Pair {
    client: Endpoint,
    server: Endpoint,
}

impl Pair {
    fn run(test: Test, size: u32) -> Self {
        let context = Context::open("roce_lo").unwrap();
        let case = Case {
            test,
            mode: Mode::Bandwidth,
            size,
            qps: 2,
            mtu: 1024,
            seed: 7,
        };
        let mut client = Endpoint::new(&context, 0, CLIENT, case).unwrap();
        let mut server = Endpoint::new(&context, 0, SERVER, case).unwrap();
        client.connect(&server.side().unwrap()).unwrap();
        server.connect(&client.side().unwrap()).unwrap();
        let measured = client::bandwidth(&mut client, Limit::Iterations(MESSAGES)).unwrap();
        assert_eq!(measured.messages, 2 * MESSAGES);
        assert_eq!(measured.problem, None);
        Self { client, server }
    }

    fn server_problem(&self, messages: &[u64]) -> Option<String> {
        problem_of(self.server.verify_target(messages)).unwrap()
    }
}

#[test]
fn written_and_sent_bytes_are_right_in_every_alignment() {
    for test in [Test::Write, Test::Send] {
        for size in [1, 3, 4, 5, 8, 13, 1023, 1024, 1025, 5000] {
            let pair = Pair::run(test, size);
            assert_eq!(pair.server_problem(&[MESSAGES; 2]), None, "{test} {size}");
        }
    }
}

#[test]
fn a_missing_message_is_noticed() {
    let pair = Pair::run(Test::Write, 64);
    let problem = pair.server_problem(&[MESSAGES, MESSAGES + 1]).unwrap();
    assert!(problem.contains("message 20 of queue pair 1"), "{problem}");
}

#[test]
fn a_message_too_many_is_noticed() {
    let pair = Pair::run(Test::Write, 64);
    let problem = pair.server_problem(&[MESSAGES - 1, MESSAGES]).unwrap();
    assert!(
        problem.contains("an untouched message in slot 19"),
        "{problem}"
    );
}

#[test]
fn one_wrong_byte_is_noticed() {
    for (size, message_byte) in [(64, "byte 56 of message 3 "), (5, "outside of it")] {
        let pair = Pair::run(Test::Send, size);
        // The number is longer than a message of 5 bytes: one before it changes as well.
        let number = 3 | 1 << 63;
        pair.server.lanes[0].target.put_number(3, number).unwrap();
        let problem = pair.server_problem(&[MESSAGES; 2]).unwrap();
        assert!(problem.contains(message_byte), "{problem}");
    }
}

#[test]
fn read_bytes_are_right_and_a_wrong_one_is_noticed() {
    let pair = Pair::run(Test::Read, 2000);
    let problem = || problem_of(pair.client.verify_read()).unwrap();
    assert_eq!(problem(), None);
    pair.client.lanes[1].target.set_word(2, 0).unwrap();
    assert!(problem().unwrap().contains("of message 2 of queue pair 1"));
}

#[test]
fn a_counter_that_others_changed_is_noticed() {
    let mut pair = Pair::run(Test::Atomic, 8);
    let total = 2 * MESSAGES;
    assert_eq!(pair.server.lanes[0].source.word(0).unwrap(), total);
    pair.server.lanes[0].source.set_word(0, total + 1).unwrap();
    let problem = problem_of(client::settle_counter(&mut pair.client, total)).unwrap();
    assert_eq!(
        problem.unwrap(),
        "after 40 additions of 1 the counter was 41"
    );
}
