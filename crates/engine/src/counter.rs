//! Counters by name: ours, and the names under which the drivers of other devices show the same
//! counts, which programs look for in `/sys/class/infiniband/DEVICE/ports/1`.
//!
//! Not here: the counting.

use crate::device::Device;

/// Names in `counters`, which every device has, and what they stand for here.
const PORT: [(&str, Meaning); 6] = [
    // Of data, the specification counts units of four bytes.
    ("port_rcv_data", Meaning::Quarter("received_bytes")),
    (
        "port_rcv_errors",
        Meaning::Sum(&["icrc_errors", "malformed_packets"]),
    ),
    ("port_rcv_packets", Meaning::Same("received_packets")),
    ("port_xmit_data", Meaning::Quarter("sent_bytes")),
    ("port_xmit_discards", Meaning::Same("send_dropped")),
    ("port_xmit_packets", Meaning::Same("sent_packets")),
];

/// Names in `hw_counters` that drivers use for what has another name here.
const HARDWARE: [(&str, Meaning); 9] = [
    ("out_of_seq_request", Meaning::Same("out_of_sequence")),
    ("rcvd_pkts", Meaning::Same("received_packets")),
    ("rcvd_rnr_err", Meaning::Same("rnr_nak_received")),
    ("rcvd_seq_err", Meaning::Same("packet_seq_err")),
    ("retry_exceeded_err", Meaning::Same("req_retries_exceeded")),
    ("retry_rnr_exceeded_err", Meaning::Same("rnr_nak_retry_err")),
    ("send_err", Meaning::Same("send_errors")),
    ("send_rnr_err", Meaning::Same("out_of_buffer")),
    ("sent_pkts", Meaning::Same("sent_packets")),
];

#[derive(Clone, Copy)]
enum Meaning {
    Same(&'static str),
    Quarter(&'static str),
    Sum(&'static [&'static str]),
}

/// The counters of a port that every device has, by name.
pub fn port_counter_names() -> Vec<&'static str> {
    PORT.iter().map(|(name, _)| *name).collect()
}

/// The counters of this device, by name.
pub fn hardware_counter_names() -> Vec<&'static str> {
    let engine = crate::Counters::default().fields();
    let protocol = feroce_proto::Counters::default().fields();
    let network = feroce_netio::Counters::default().fields();
    let own = engine.iter().chain(&protocol).chain(&network);
    let others = HARDWARE.iter().map(|(name, _)| *name);
    own.map(|(name, _)| *name).chain(others).collect()
}

/// The present value of a counter of a device that this process has open.
pub fn counter(device: &str, name: &str) -> Option<u64> {
    let device = Device::opened(device)?;
    value(&device.named_counters(), name)
}

fn value(counters: &[(&str, u64)], name: &str) -> Option<u64> {
    let own = |wanted: &str| {
        let found = counters.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| *value)
    };
    let mut foreign = PORT.iter().chain(&HARDWARE);
    match foreign.find(|(other, _)| *other == name) {
        Some((_, Meaning::Same(ours))) => own(ours),
        Some((_, Meaning::Quarter(ours))) => own(ours).map(|bytes| bytes / 4),
        Some((_, Meaning::Sum(parts))) => parts.iter().map(|part| own(part)).sum(),
        None => own(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_one_counter() {
        let mut names = port_counter_names();
        names.extend(hardware_counter_names());
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        // Each own counter has a value of its own, so that every name must find one.
        let own: Vec<_> = hardware_counter_names()
            .into_iter()
            .filter(|name| HARDWARE.iter().all(|(other, _)| other != name))
            .zip(100..)
            .collect();
        for name in names {
            assert!(value(&own, name).is_some(), "{name} stands for nothing");
        }
    }

    #[test]
    fn foreign_names_read_our_counts() {
        let counts = [
            ("received_bytes", 4103),
            ("sent_packets", 7),
            ("icrc_errors", 2),
            ("malformed_packets", 3),
        ];
        assert_eq!(value(&counts, "sent_pkts"), Some(7));
        assert_eq!(value(&counts, "sent_packets"), Some(7));
        assert_eq!(value(&counts, "port_rcv_data"), Some(1025));
        assert_eq!(value(&counts, "port_rcv_errors"), Some(5));
        assert_eq!(value(&counts, "link_downed"), None);
    }
}
