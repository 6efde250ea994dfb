//! What is counted: part 10 of the specification.

use super::pair::{OK, Setup, write};
use crate::metaroce::EndpointCounters;
use std::collections::BTreeSet;
use std::format;
use std::string::String;

const SPECIFICATION: &str = include_str!("../../../../../docs/spec/metaroce/counters.md");

//= MR-CNT-001 type=test
#[test]
fn the_specification_names_what_is_counted() {
    let rows = SPECIFICATION
        .lines()
        .filter_map(|line| line.strip_prefix("| "));
    let names = rows.filter_map(|row| row.split(" |").next());
    let written: BTreeSet<String> = names
        .filter(|&name| name != "counter")
        .flat_map(|names| names.split(", "))
        .map(String::from)
        .collect();
    let counters = format!("{:?}", EndpointCounters::default());
    let fields = counters
        .trim_start_matches("EndpointCounters { ")
        .trim_end_matches(" }");
    let counted: BTreeSet<String> = fields
        .split(", ")
        .filter_map(|field| field.split(':').next())
        .map(String::from)
        .collect();
    assert_eq!(written, counted);
}

//= MR-CNT-001 type=test
#[test]
fn a_write_is_counted_on_both_sides() {
    let mut pair = Setup::default().connect();
    let (a, b) = (*pair.a.endpoint.counters(), *pair.b.endpoint.counters());
    pair.a.post(pair.now, write(1, 1 << 19, 0, 4096));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    let (a_now, b_now) = (pair.a.endpoint.counters(), pair.b.endpoint.counters());
    assert_eq!(a_now.tx_bytes - a.tx_bytes, 4096);
    assert_eq!(
        a_now.tx_packets - a.tx_packets,
        b_now.rx_packets - b.rx_packets
    );
    assert_eq!(
        b_now.acks_sent - b.acks_sent,
        a_now.acks_received - a.acks_received
    );
    assert_eq!(a_now.retransmissions, 0);
}
