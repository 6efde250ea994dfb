use super::{BindError, BindRequest, WindowType};
use crate::testing::{Mapping, PD};
use crate::{
    Access, AccessError, Change, Claim, DeregisterError, InvalidateFault, Key, LocalUse, Memory,
    PdId, RemoteFault, ReregisterError, Table,
};
use WindowType::{One, Two};

const OTHER_PD: PdId = PdId(8);
const QP: u32 = 17;
const OTHER_QP: u32 = 18;
const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);
const BOTH: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

/// A table with a bindable region of one page and a window.
struct Fixture {
    table: Table,
    mapping: Mapping,
    region: Key,
    window: Key,
    kind: WindowType,
}

impl Fixture {
    fn new(kind: WindowType) -> Self {
        Self::with_access(kind, BINDABLE)
    }

    fn with_access(kind: WindowType, access: Access) -> Self {
        let mut table = Table::new();
        let mapping = Mapping::new(1);
        let region = mapping.register(&mut table, access);
        let window = table.alloc_window(PD, kind).expect("room");
        Self {
            table,
            mapping,
            region,
            window,
            kind,
        }
    }

    /// A bind of 200 bytes from 100 under the next tag, that succeeds unless it is changed.
    fn request(&self) -> BindRequest {
        BindRequest {
            pd: PD,
            qp: QP,
            window: self.window,
            window_type: self.kind,
            tag: self.window.tag().wrapping_add(1),
            region: self.region,
            address: self.mapping.iova() + 100,
            length: 200,
            access: BOTH,
        }
    }

    #[track_caller]
    fn bind(&mut self) {
        self.window = self.table.bind(&self.request()).expect("binds");
    }

    /// What a peer of queue pair `qp` gets of the window's `len` bytes from `offset` on.
    fn write(&self, qp: u32, key: Key, offset: u64, len: usize) -> Result<(), RemoteFault> {
        let address = (self.mapping.iova() + 100).wrapping_add(offset);
        self.table
            .remote(PD, qp, key, address, len, Access::REMOTE_WRITE)
            .map(|grant| grant.write(&vec![0xee; len]).expect("mapped"))
    }

    fn claim(&self, key: Key, len: u64) -> Claim {
        Claim {
            key,
            address: self.mapping.iova() + 100,
            length: len,
        }
    }
}

#[test]
fn a_window_grants_its_part_only() {
    for kind in [One, Two] {
        let mut fixture = Fixture::new(kind);
        fixture.bind();
        let key = fixture.window;
        assert_eq!(fixture.write(QP, key, 0, 200), Ok(()));
        assert!(fixture.write(QP, key, 1, 200).is_err());
        assert!(fixture.write(QP, key, u64::MAX, 2).is_err());
        let outside = RemoteFault::OutOfRange(fixture.claim(key, 201));
        assert_eq!(fixture.write(QP, key, 0, 201), Err(outside));
        let bytes = fixture.mapping.bytes();
        assert_eq!(
            (bytes[99], bytes[100], bytes[299], bytes[300]),
            (0, 0xee, 0xee, 0)
        );
        let whole = fixture.table.remote_whole(PD, QP, key, Access::REMOTE_READ);
        assert_eq!(whole.expect("bound").len(), 200);
        // The region itself is none of the peer's business, and a window no L_Key.
        assert!(fixture.write(QP, fixture.region, 0, 8).is_err());
        let address = fixture.mapping.iova() + 100;
        let local = fixture.table.local(PD, key, address, 8, LocalUse::Read);
        assert!(local.is_err());
    }
}

#[test]
fn a_window_gives_the_rights_it_was_bound_with() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ]
    .into_iter()
    .chain([Access::FLUSH_GLOBAL, Access::FLUSH_PERSISTENT]);
    for granted in rights.clone() {
        let fixture = Fixture::new(Two);
        let request = BindRequest {
            access: granted,
            ..fixture.request()
        };
        let key = fixture.table.bind(&request).expect("binds");
        for wanted in rights.clone() {
            let grant = fixture
                .table
                .remote(PD, QP, key, request.address, 8, wanted);
            assert_eq!(grant.is_ok(), wanted == granted, "{wanted} under {granted}");
        }
    }
}

#[test]
fn a_zero_based_window_counts_from_its_start() {
    for kind in [One, Two] {
        let fixture = Fixture::new(kind);
        let request = BindRequest {
            access: BOTH | Access::ZERO_BASED,
            ..fixture.request()
        };
        let key = fixture.table.bind(&request).expect("binds");
        let write = |address, len| {
            fixture
                .table
                .remote(PD, QP, key, address, len, Access::REMOTE_WRITE)
        };
        write(0, 4).expect("inside").write(b"head").expect("mapped");
        assert!(write(196, 4).is_ok());
        assert!(write(197, 4).is_err());
        assert!(write(request.address, 4).is_err());
        assert_eq!(fixture.mapping.bytes()[100..104], *b"head");
    }
}

#[test]
fn an_unbound_window_grants_nothing() {
    for kind in [One, Two] {
        let fixture = Fixture::new(kind);
        let unbound = RemoteFault::Unbound(fixture.claim(fixture.window, 8));
        assert_eq!(fixture.write(QP, fixture.window, 0, 8), Err(unbound));
    }
}

#[test]
fn type_1_is_for_every_queue_pair_of_the_domain_and_type_2_for_one() {
    let mut fixture = Fixture::new(One);
    fixture.bind();
    assert_eq!(fixture.write(OTHER_QP, fixture.window, 0, 8), Ok(()));

    let mut fixture = Fixture::new(Two);
    fixture.bind();
    let claim = fixture.claim(fixture.window, 8);
    let wrong = RemoteFault::WrongQp(claim, QP);
    assert_eq!(fixture.write(OTHER_QP, fixture.window, 0, 8), Err(wrong));

    for kind in [One, Two] {
        let mut fixture = Fixture::new(kind);
        fixture.bind();
        let claim = fixture.claim(fixture.window, 8);
        let grant = fixture.table.remote(
            OTHER_PD,
            QP,
            claim.key,
            claim.address,
            8,
            Access::REMOTE_WRITE,
        );
        assert_eq!(
            grant.expect_err("other domain"),
            RemoteFault::WrongPd(claim, PD)
        );
    }
}

#[test]
fn type_1_is_bound_again_at_any_time_and_its_old_key_dies() {
    let mut fixture = Fixture::new(One);
    fixture.bind();
    let old = fixture.window;
    fixture.bind();
    assert_ne!(fixture.window, old);
    let unknown = RemoteFault::UnknownKey(fixture.claim(old, 8));
    assert_eq!(fixture.write(QP, old, 0, 8), Err(unknown));
    assert_eq!(fixture.write(QP, fixture.window, 0, 8), Ok(()));
    let same = BindRequest {
        tag: fixture.window.tag(),
        ..fixture.request()
    };
    let error = fixture.table.bind(&same);
    assert_eq!(error, Err(BindError::KeyNotNew(fixture.window)));
    // However often it was bound, the region counts it once.
    let error = fixture.table.deregister(fixture.region);
    assert_eq!(error, Err(DeregisterError::Busy(fixture.region, 1)));
}

#[test]
fn type_1_is_unbound_by_binding_no_bytes() {
    let mut fixture = Fixture::new(One);
    fixture.bind();
    let request = BindRequest {
        length: 0,
        region: Key(0),
        ..fixture.request()
    };
    let unbound = fixture.table.bind(&request).expect("unbinds");
    assert_eq!(unbound.tag(), fixture.window.tag() + 1);
    assert!(fixture.write(QP, fixture.window, 0, 8).is_err());
    assert!(fixture.write(QP, unbound, 0, 8).is_err());
    assert_eq!(fixture.table.deregister(fixture.region), Ok(()));
    // To unbind what is not bound is no error.
    fixture.window = unbound;
    let request = BindRequest {
        length: 0,
        ..fixture.request()
    };
    assert!(fixture.table.bind(&request).is_ok());
}

#[test]
fn type_2_is_bound_once_until_it_is_invalidated() {
    let mut fixture = Fixture::new(Two);
    fixture.bind();
    let key = fixture.window;
    let error = fixture.table.bind(&fixture.request());
    assert_eq!(error, Err(BindError::AlreadyBound(key)));
    assert_eq!(fixture.write(QP, key, 0, 8), Ok(()), "as it was");
    assert_eq!(fixture.table.invalidate(key, PD, QP), Ok(()));
    assert!(fixture.write(QP, key, 0, 8).is_err());
    let again = fixture.table.invalidate(key, PD, QP);
    assert_eq!(again, Err(InvalidateFault::Unbound(key)));
    // The program owns the tag, and may even choose the same one.
    let same = BindRequest {
        tag: key.tag(),
        ..fixture.request()
    };
    assert_eq!(fixture.table.bind(&same), Ok(key));
    let error = fixture.table.bind(&BindRequest {
        length: 0,
        ..fixture.request()
    });
    assert_eq!(error, Err(BindError::ZeroLength(key)));
}

#[test]
fn the_program_chooses_the_tag() {
    for kind in [One, Two] {
        let fixture = Fixture::new(kind);
        let request = BindRequest {
            tag: 0xa5,
            // A key of the window's slot under any tag.
            window: fixture.window.with_tag(0x77),
            ..fixture.request()
        };
        let key = fixture.table.bind(&request).expect("binds");
        assert_eq!(key, fixture.window.with_tag(0xa5));
        assert_eq!(fixture.write(QP, key, 0, 8), Ok(()));
    }
}

/// W16: window, region and queue pair are of one protection domain.
#[test]
fn a_bind_stays_in_one_protection_domain() {
    for kind in [One, Two] {
        let mut fixture = Fixture::new(kind);
        let (window, region) = (fixture.window, fixture.region);
        let foreign = BindRequest {
            pd: OTHER_PD,
            ..fixture.request()
        };
        let error = fixture.table.bind(&foreign);
        assert_eq!(error, Err(BindError::WindowPd(window, PD)));
        let region_elsewhere = fixture
            .table
            .register(
                OTHER_PD,
                fixture.mapping.memory(),
                fixture.mapping.iova(),
                BINDABLE,
            )
            .expect("registers");
        let request = BindRequest {
            region: region_elsewhere,
            ..fixture.request()
        };
        let error = fixture.table.bind(&request);
        assert_eq!(error, Err(BindError::RegionPd(region_elsewhere, OTHER_PD)));
        let unbind = BindRequest {
            length: 0,
            ..foreign
        };
        assert!(
            fixture.table.bind(&unbind).is_err(),
            "nor is it unbound from elsewhere"
        );
        assert_eq!(
            fixture.table.deregister(region),
            Ok(()),
            "nothing was bound"
        );
    }
}

#[test]
fn a_bind_needs_a_window_and_a_region() {
    let fixture = Fixture::new(Two);
    let stale = fixture
        .region
        .with_tag(fixture.region.tag().wrapping_add(1));
    for region in [Key(0), stale, fixture.window, Key(0x9999_9900)] {
        let request = BindRequest {
            region,
            ..fixture.request()
        };
        let error = fixture.table.bind(&request);
        assert_eq!(error, Err(BindError::UnknownRegion(region)));
    }
    for window in [Key(0), fixture.region, Key(0x9999_9900)] {
        let request = BindRequest {
            window,
            ..fixture.request()
        };
        let error = fixture.table.bind(&request);
        assert_eq!(error, Err(BindError::UnknownWindow(window)));
    }
    for (kind, other) in [(One, Two), (Two, One)] {
        let fixture = Fixture::new(kind);
        let request = BindRequest {
            window_type: other,
            ..fixture.request()
        };
        let error = fixture.table.bind(&request);
        assert_eq!(error, Err(BindError::WrongType(fixture.window)));
    }
}

/// Which rights a window can have over which region.
#[test]
fn rights_of_window_and_region_must_fit() {
    let w = Access::LOCAL_WRITE;
    let b = Access::MW_BIND;
    let (write, read, atomic) = (
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    );
    let needs = |access| BindError::RegionAccess(AccessError::NeedsLocalWrite(access));
    for kind in [One, Two] {
        for (region, window, expected) in [
            (w | b, write, None),
            (w | b, atomic, None),
            (w | b, read, None),
            (b, read, None),
            (b, w, None),
            (b, Access::NONE, None),
            (b | read, read | Access::FLUSH_GLOBAL, None),
            (b, write, Some(needs(write))),
            (b, atomic | read, Some(needs(atomic | read))),
            (
                w | write | read,
                read,
                Some(BindError::NotBindable(Key(0x100))),
            ),
            (w | b, read | b, Some(BindError::Access(read | b))),
            (
                w | b,
                Access::ON_DEMAND,
                Some(BindError::Access(Access::ON_DEMAND)),
            ),
            (
                w | b | Access::ZERO_BASED,
                read,
                Some(BindError::ZeroBasedRegion(Key(0x100))),
            ),
        ] {
            let fixture = Fixture::with_access(kind, region);
            let request = BindRequest {
                access: window,
                ..fixture.request()
            };
            let result = fixture.table.bind(&request).err();
            assert_eq!(result, expected, "{kind:?}: {window} over {region}");
        }
    }
}

#[test]
fn a_window_is_inside_its_region() {
    let fixture = Fixture::new(Two);
    let (start, len) = (fixture.mapping.iova(), fixture.mapping.len() as u64);
    for (address, length) in [
        (start - 1, 1),
        (start - 1, len),
        (start, len + 1),
        (start + len, 1),
        (start, u64::MAX),
        (u64::MAX, 1),
        (u64::MAX - 0x3ff, 0x400),
        (0, u64::MAX),
    ] {
        let request = BindRequest {
            address,
            length,
            ..fixture.request()
        };
        let outside = BindError::OutOfRange {
            region: fixture.region,
            address,
            length,
        };
        assert_eq!(fixture.table.bind(&request), Err(outside));
    }
    let all = BindRequest {
        address: start,
        length: len,
        ..fixture.request()
    };
    assert!(fixture.table.bind(&all).is_ok());
}

#[test]
fn only_the_owner_invalidates_and_only_type_2() {
    let mut fixture = Fixture::new(Two);
    fixture.bind();
    let key = fixture.window;
    let table = &fixture.table;
    let unknown = key.with_tag(key.tag().wrapping_add(1));
    let region = fixture.region;
    for (key, pd, qp, fault) in [
        (key, PD, OTHER_QP, InvalidateFault::WrongQp(key, QP)),
        (key, OTHER_PD, QP, InvalidateFault::WrongPd(key, PD)),
        (unknown, PD, QP, InvalidateFault::UnknownKey(unknown)),
        (Key(0), PD, QP, InvalidateFault::UnknownKey(Key(0))),
        (region, PD, QP, InvalidateFault::NotType2(region)),
    ] {
        assert_eq!(table.invalidate(key, pd, qp), Err(fault));
    }
    assert_eq!(fixture.write(QP, key, 0, 8), Ok(()), "still bound");

    let mut fixture = Fixture::new(One);
    fixture.bind();
    let key = fixture.window;
    let fault = InvalidateFault::NotType2(key);
    assert_eq!(fixture.table.invalidate(key, PD, QP), Err(fault));
}

#[test]
fn a_region_with_windows_cannot_go_or_change() {
    for kind in [One, Two] {
        let mut fixture = Fixture::new(kind);
        fixture.bind();
        let busy = DeregisterError::Busy(fixture.region, 1);
        assert_eq!(fixture.table.deregister(fixture.region), Err(busy));
        let error = fixture.table.reregister(fixture.region, Change::default());
        assert_eq!(error, Err(ReregisterError::Region(busy)));
        assert_eq!(
            fixture.table.deregister(fixture.window),
            Err(DeregisterError::UnknownKey(fixture.window))
        );
        fixture
            .table
            .dealloc_window(fixture.window)
            .expect("a window");
        assert_eq!(fixture.table.deregister(fixture.region), Ok(()));
        assert!(fixture.table.is_empty());
    }
}

#[test]
fn a_deallocated_window_is_gone() {
    for kind in [One, Two] {
        let mut fixture = Fixture::new(kind);
        fixture.bind();
        let key = fixture.window;
        fixture.table.dealloc_window(key).expect("a window");
        let unknown = RemoteFault::UnknownKey(fixture.claim(key, 8));
        assert_eq!(fixture.write(QP, key, 0, 8), Err(unknown));
        let error = fixture.table.bind(&fixture.request());
        assert_eq!(error, Err(BindError::UnknownWindow(key)));
        assert_eq!(
            fixture.table.dealloc_window(key),
            Err(BindError::UnknownWindow(key))
        );
        assert_eq!(
            fixture.table.dealloc_window(fixture.region),
            Err(BindError::UnknownWindow(fixture.region))
        );
    }
}

#[test]
fn a_grant_outlives_the_binding_it_came_from() {
    let mut fixture = Fixture::new(Two);
    fixture.bind();
    let address = fixture.mapping.iova() + 100;
    let grant = fixture
        .table
        .remote(PD, QP, fixture.window, address, 4, Access::REMOTE_WRITE)
        .expect("bound");
    fixture
        .table
        .invalidate(fixture.window, PD, QP)
        .expect("bound");
    grant.write(b"late").expect("mapped");
    assert_eq!(fixture.mapping.bytes()[100..104], *b"late");
}

#[test]
fn a_queue_pair_that_goes_takes_its_bindings_along() {
    let mut fixture = Fixture::new(Two);
    assert_eq!(fixture.table.release_qp(QP), 0);
    fixture.bind();
    let other = fixture.table.alloc_window(PD, Two).expect("room");
    let request = BindRequest {
        qp: OTHER_QP,
        window: other,
        ..fixture.request()
    };
    let other = fixture.table.bind(&request).expect("binds");
    let one = fixture.table.alloc_window(PD, One).expect("room");
    let request = BindRequest {
        window: one,
        window_type: One,
        ..fixture.request()
    };
    let one = fixture.table.bind(&request).expect("binds");
    assert_eq!(fixture.table.release_qp(QP), 1);
    assert!(fixture.write(QP, fixture.window, 0, 8).is_err());
    assert_eq!(fixture.write(OTHER_QP, other, 0, 8), Ok(()));
    assert_eq!(fixture.write(QP, one, 0, 8), Ok(()), "type 1 is nobody's");
    assert_eq!(fixture.table.release_qp(OTHER_QP), 1);
    assert_eq!(fixture.table.bound_type_2.get(), 0);
}

#[test]
fn windows_over_on_demand_memory_fault_like_it() {
    let fixture = Fixture::with_access(Two, BINDABLE | Access::ON_DEMAND);
    let key = fixture.table.bind(&fixture.request()).expect("binds");
    assert_eq!(fixture.write(QP, key, 0, 8), Ok(()));
    fixture.mapping.unmap(0);
    let grant = fixture
        .table
        .remote(
            PD,
            QP,
            key,
            fixture.mapping.iova() + 100,
            8,
            Access::REMOTE_WRITE,
        )
        .expect("bound");
    assert!(grant.write(&[1; 8]).is_err());
}

#[test]
fn null_regions_have_no_windows() {
    let mut fixture = Fixture::new(One);
    let null = fixture
        .table
        .register(PD, Memory::null(), 0, Access::NONE)
        .expect("registers");
    let request = BindRequest {
        region: null,
        ..fixture.request()
    };
    let error = fixture.table.bind(&request);
    assert_eq!(error, Err(BindError::NotBindable(null)));
}
