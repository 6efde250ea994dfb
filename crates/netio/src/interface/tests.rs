use super::*;

const UP: u32 = IFF_UP | IFF_LOWER_UP;

fn link(flags: u32, operational_state: u8) -> Record {
    Record::Link(LinkRecord {
        index: 7,
        flags,
        name: "eth7".into(),
        mtu: 1500,
        mac: vec![2, 0, 0, 0, 0, 7],
        operational_state,
    })
}

fn address(ip: &str, prefix_len: u8, flags: u32) -> AddressRecord {
    AddressRecord {
        index: 7,
        ip: ip.parse().unwrap(),
        prefix_len,
        scope: 0,
        flags,
    }
}

/// A table with one link that is up, and what each record changes in it.
struct Watch(Table);

impl Watch {
    fn new() -> Self {
        let mut watch = Self(Table::default());
        watch.expect(link(UP, IF_OPER_UP), &[Change::LinkUp { index: 7 }]);
        watch
    }

    #[track_caller]
    fn expect(&mut self, record: Record, expected: &[Change]) {
        let mut changes = Vec::new();
        self.0.apply(record, &mut changes);
        assert_eq!(changes, expected);
    }
}

fn added(record: AddressRecord) -> Change {
    Change::AddressAdded {
        index: 7,
        address: Address::from_record(&record),
    }
}

#[test]
fn up_means_that_packets_can_pass() {
    let up = |flags, state| {
        let Record::Link(record) = link(flags, state) else {
            unreachable!();
        };
        Interface::from_record(&record).up
    };
    const DOWN: u8 = 2;
    const LOWER_LAYER_DOWN: u8 = 3;
    const DORMANT: u8 = 5;
    assert!(up(UP, IF_OPER_UP));
    assert!(up(UP, IF_OPER_UNKNOWN), "a tunnel tells no state");
    assert!(!up(IFF_UP, IF_OPER_UNKNOWN), "no carrier");
    assert!(!up(IFF_LOWER_UP, IF_OPER_UP), "switched off");
    for state in [DOWN, LOWER_LAYER_DOWN, DORMANT] {
        assert!(!up(UP, state), "state {state}");
    }
    assert!(up(IFF_UP | IFF_LOOPBACK, IF_OPER_UNKNOWN));
    assert!(!up(IFF_LOOPBACK, IF_OPER_UNKNOWN));
}

#[test]
fn a_link_reports_what_changed_and_nothing_else() {
    let mut watch = Watch::new();
    watch.expect(link(UP, IF_OPER_UP), &[]);
    watch.expect(link(IFF_UP, 2), &[Change::LinkDown { index: 7 }]);
    watch.expect(link(IFF_UP, 2), &[]);
    let Record::Link(record) = link(UP, IF_OPER_UP) else {
        unreachable!();
    };
    let jumbo = LinkRecord {
        mtu: 9000,
        ..record
    };
    watch.expect(
        Record::Link(jumbo),
        &[
            Change::Mtu {
                index: 7,
                mtu: 9000,
            },
            Change::LinkUp { index: 7 },
        ],
    );
    watch.expect(Record::LinkGone(7), &[Change::LinkRemoved { index: 7 }]);
    watch.expect(Record::LinkGone(7), &[]);
}

#[test]
fn an_address_is_usable_once_it_is_known_to_be_unique() {
    let mut watch = Watch::new();
    let tentative = address("fe80::1", 64, IFA_F_TENTATIVE);
    let settled = address("fe80::1", 64, 0);
    assert!(!Address::from_record(&tentative).is_usable());
    assert!(Address::from_record(&settled).is_usable());
    watch.expect(Record::Address(tentative), &[added(tentative)]);
    watch.expect(Record::Address(settled), &[added(settled)]);
    // Its lifetime is renewed every few minutes.
    watch.expect(Record::Address(settled), &[]);
    let old = address("fe80::1", 64, IFA_F_DEPRECATED);
    watch.expect(Record::Address(old), &[added(old)]);
    let usable = |flags| Address::from_record(&address("fe80::1", 64, flags)).is_usable();
    assert!(usable(IFA_F_TENTATIVE | IFA_F_OPTIMISTIC));
    assert!(!usable(IFA_F_TENTATIVE | IFA_F_DADFAILED));
}

#[test]
fn an_address_with_two_prefixes_is_gone_with_the_last() {
    let mut watch = Watch::new();
    let (wide, narrow) = (address("10.0.0.1", 8, 0), address("10.0.0.1", 24, 0));
    watch.expect(Record::Address(wide), &[added(wide)]);
    watch.expect(Record::Address(narrow), &[added(narrow)]);
    watch.expect(Record::AddressGone(wide), &[]);
    let removed = Change::AddressRemoved {
        index: 7,
        ip: narrow.ip,
    };
    watch.expect(Record::AddressGone(narrow), &[removed]);
    watch.expect(Record::AddressGone(narrow), &[]);
}

#[test]
fn addresses_of_links_that_are_not_there_are_nobodys() {
    let mut watch = Watch(Table::default());
    let stray = address("10.0.0.1", 8, 0);
    watch.expect(Record::Address(stray), &[]);
    watch.expect(Record::AddressGone(stray), &[]);
}

#[test]
fn a_link_that_changes_keeps_its_addresses() {
    let mut watch = Watch::new();
    let one = address("10.0.0.1", 8, 0);
    watch.expect(Record::Address(one), &[added(one)]);
    watch.expect(link(0, 2), &[Change::LinkDown { index: 7 }]);
    assert_eq!(watch.0.interfaces[&7].addresses.len(), 1);
}
