use super::{Change, DeregisterError, LocalUse, ReregisterError, Table};
use crate::limits::{QUARANTINE_SLOTS, REGION_BYTES_MAX};
use crate::sys::page_bytes;
use crate::testing::{Mapping, PD};
use crate::{
    Access, AccessError, Claim, DeviceMemory, Key, LocalFault, Memory, PdId, RegisterError,
    RemoteFault, WindowType,
};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

const OTHER_PD: PdId = PdId(8);
const RW: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// Memory that is registered but never touched: on demand, so that it need not be there.
fn phantom(len: usize) -> Memory {
    // SAFETY: no test reads or writes under these keys.
    unsafe { Memory::from_raw(4096 as *mut u8, len) }
}

const PHANTOM: Access = RW.union(Access::ON_DEMAND);

fn claim(key: Key, address: u64, length: u64) -> Claim {
    Claim {
        key,
        address,
        length,
    }
}

#[test]
fn a_registered_range_is_granted_and_nothing_around_it() {
    let mut table = Table::new();
    let key = table
        .register(PD, phantom(100), 1000, PHANTOM)
        .expect("registers");
    for (address, len) in [(1000, 100), (1000, 1), (1099, 1), (1050, 50)] {
        let local = table.local(PD, key, address, len, LocalUse::Write);
        assert_eq!(local.expect("inside").len(), len);
        let remote = table.remote(PD, 1, key, address, len, Access::REMOTE_READ);
        assert_eq!(remote.expect("inside").len(), len);
    }
    for (address, len) in [
        (999, 1),
        (999, 2),
        (1099, 2),
        (1100, 1),
        (1000, 101),
        (0, 1),
    ] {
        let outside = claim(key, address, len as u64);
        let local = table.local(PD, key, address, len, LocalUse::Read);
        assert_eq!(local.expect_err("outside"), LocalFault::OutOfRange(outside));
        let remote = table.remote(PD, 1, key, address, len, Access::REMOTE_READ);
        assert_eq!(
            remote.expect_err("outside"),
            RemoteFault::OutOfRange(outside)
        );
    }
}

#[test]
fn rights_are_those_of_the_region() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ]
    .into_iter()
    .chain([Access::FLUSH_GLOBAL, Access::FLUSH_PERSISTENT]);
    let mut table = Table::new();
    for granted in rights.clone() {
        let access = Access::LOCAL_WRITE | Access::ON_DEMAND | granted;
        let key = table
            .register(PD, phantom(8), 0, access)
            .expect("registers");
        for wanted in rights.clone() {
            let grant = table.remote(PD, 1, key, 0, 8, wanted);
            assert_eq!(grant.is_ok(), wanted == granted, "{wanted} under {granted}");
            let whole = table.remote_whole(PD, 1, key, wanted);
            assert_eq!(whole.is_ok(), wanted == granted, "{wanted} under {granted}");
        }
        assert!(table.remote(PD, 1, key, 0, 8, Access::NONE).is_err());
        assert!(table.remote(PD, 1, key, 0, 8, Access::LOCAL_WRITE).is_err());
    }
    let key = table
        .register(PD, phantom(8), 0, Access::ON_DEMAND)
        .expect("registers");
    assert!(table.local(PD, key, 0, 8, LocalUse::Read).is_ok());
    let write = table.local(PD, key, 0, 8, LocalUse::Write);
    let fault = LocalFault::NotPermitted(claim(key, 0, 8));
    assert_eq!(write.expect_err("no LOCAL_WRITE"), fault);
}

#[test]
fn a_region_works_in_its_protection_domain_only() {
    let mut table = Table::new();
    let key = table
        .register(PD, phantom(8), 0, PHANTOM)
        .expect("registers");
    let local = table.local(OTHER_PD, key, 0, 8, LocalUse::Read);
    let fault = LocalFault::WrongPd(claim(key, 0, 8), PD);
    assert_eq!(local.expect_err("other domain"), fault);
    let remote = table.remote(OTHER_PD, 1, key, 0, 8, Access::REMOTE_READ);
    let fault = RemoteFault::WrongPd(claim(key, 0, 8), PD);
    assert_eq!(remote.expect_err("other domain"), fault);
    assert!(table.is_pd_in_use(PD));
    assert!(!table.is_pd_in_use(OTHER_PD));
}

#[test]
fn no_bytes_need_no_key() {
    let table = Table::new();
    let junk = Key(0xdead_beef);
    let local = table
        .local(PD, junk, u64::MAX, 0, LocalUse::Write)
        .expect("no bytes");
    local.write(&[]).expect("no bytes");
    let remote = table
        .remote(PD, 1, junk, u64::MAX, 0, Access::REMOTE_READ)
        .expect("no bytes");
    remote.read_into(&mut []).expect("no bytes");
    assert!(
        table
            .remote_whole(PD, 1, junk, Access::FLUSH_GLOBAL)
            .is_err()
    );
}

#[test]
fn a_region_of_no_bytes_grants_none() {
    let mut table = Table::new();
    // SAFETY: no bytes, nothing to promise.
    let memory = unsafe { Memory::from_raw(core::ptr::null_mut(), 0) };
    let key = table.register(PD, memory, 77, RW).expect("registers");
    assert!(table.local(PD, key, 77, 0, LocalUse::Read).is_ok());
    assert!(table.local(PD, key, 77, 1, LocalUse::Read).is_err());
    assert!(table.deregister(key).is_ok());
}

/// W12: the end of a claim must not wrap to a small number.
#[test]
fn the_end_of_a_claim_does_not_wrap() {
    const TOP: u64 = 0xffff_ffff_ffff_fc00;
    let mut table = Table::new();
    let low = table
        .register(PD, phantom(0x1000), 0, PHANTOM)
        .expect("registers");
    let high = table
        .register(PD, phantom(0x3ff), TOP, PHANTOM)
        .expect("registers");
    // SAFETY: no test reads or writes under this key.
    let everything = unsafe { Memory::address_space() };
    let everything = table
        .register(PD, everything, 0, PHANTOM)
        .expect("registers");
    for key in [low, high, everything] {
        for (address, len) in [(TOP, 0x400), (TOP, 0x401), (TOP + 1, 0x3ff), (u64::MAX, 1)] {
            let outside = claim(key, address, len as u64);
            let remote = table.remote(PD, 1, key, address, len, Access::REMOTE_READ);
            assert_eq!(remote.expect_err("wraps"), RemoteFault::OutOfRange(outside));
            let local = table.local(PD, key, address, len, LocalUse::Read);
            assert_eq!(local.expect_err("wraps"), LocalFault::OutOfRange(outside));
        }
    }
    assert!(
        table
            .remote(PD, 1, high, TOP, 0x3ff, Access::REMOTE_READ)
            .is_ok()
    );
    assert!(
        table
            .remote(PD, 1, everything, TOP, 0x3ff, Access::REMOTE_READ)
            .is_ok()
    );
}

#[test]
fn a_region_must_not_wrap() {
    let mut table = Table::new();
    let error = table.register(PD, phantom(0x400), u64::MAX - 0x3ff, PHANTOM);
    let wraps = RegisterError::AddressWraps {
        address: u64::MAX - 0x3ff,
        length: 0x400,
    };
    assert_eq!(error, Err(wraps));
    // SAFETY: not registered.
    let memory = unsafe { Memory::from_raw((usize::MAX - 7) as *mut u8, 8) };
    let error = table.register(PD, memory, 0, PHANTOM);
    assert!(matches!(error, Err(RegisterError::AddressWraps { .. })));
    let length = REGION_BYTES_MAX + 1;
    let error = table.register(PD, phantom(length as usize), 0, PHANTOM);
    assert_eq!(error, Err(RegisterError::TooLong { length }));
}

#[test]
fn rights_that_make_no_sense_are_refused() {
    let mut table = Table::new();
    let mapping = Mapping::new(1);
    let access = Access::REMOTE_WRITE;
    let error = table.register(PD, mapping.memory(), 0, access);
    assert_eq!(error, Err(AccessError::NeedsLocalWrite(access).into()));
}

#[test]
fn unmapped_memory_is_not_registered() {
    let mut table = Table::new();
    let mapping = Mapping::new(3);
    mapping.unmap(1);
    let error = table.register(PD, mapping.memory(), mapping.iova(), RW);
    let not_mapped = RegisterError::NotMapped {
        address: mapping.address(),
        length: mapping.len(),
    };
    assert_eq!(error, Err(not_mapped));
    let access = RW | Access::ON_DEMAND;
    let on_demand = table.register(PD, mapping.memory(), mapping.iova(), access);
    assert!(on_demand.is_ok(), "on demand it need not be there yet");
}

#[test]
fn protected_memory_is_registered_for_what_it_allows() {
    if !crate::sys::can_populate() {
        return;
    }
    let mut table = Table::new();
    for page in [0, 2] {
        let mapping = Mapping::new(3);
        mapping.fill(0x5a);
        mapping.protect(page, libc::PROT_READ);
        let error = table.register(PD, mapping.memory(), 0, RW);
        let address = mapping.address() + if page == 0 { 0 } else { mapping.len() - 1 };
        assert_eq!(error, Err(RegisterError::NotWritable { address }));
        assert!(
            table
                .register(PD, mapping.memory(), 0, Access::REMOTE_READ)
                .is_ok()
        );
        assert_eq!(
            mapping.bytes(),
            vec![0x5a; mapping.len()],
            "probing changes nothing"
        );
        mapping.protect(page, libc::PROT_NONE);
        let error = table.register(PD, mapping.memory(), 0, Access::NONE);
        assert_eq!(error, Err(RegisterError::NotReadable { address }));
    }
}

#[test]
fn zero_based_addresses_count_from_zero() {
    let mut table = Table::new();
    let mapping = Mapping::new(1);
    mapping.fill(1);
    let key = mapping.register(&mut table, RW | Access::ZERO_BASED);
    let grant = table
        .local(PD, key, 0, mapping.len(), LocalUse::Write)
        .expect("from 0");
    grant
        .slice(0, 1)
        .expect("inside")
        .write(&[2])
        .expect("writes");
    assert_eq!(mapping.bytes()[..2], [2, 1]);
    assert!(
        table
            .local(PD, key, mapping.iova(), 1, LocalUse::Read)
            .is_err()
    );
}

#[test]
fn an_iova_names_memory_elsewhere() {
    let mut table = Table::new();
    let mapping = Mapping::new(1);
    let key = table
        .register(PD, mapping.memory(), 0x7000_0001, RW)
        .expect("registers");
    let grant = table
        .remote(PD, 1, key, 0x7000_0004, 2, Access::REMOTE_WRITE)
        .expect("inside");
    grant.write(b"ab").expect("writes");
    assert_eq!(mapping.bytes()[2..6], [0, b'a', b'b', 0]);
}

#[test]
fn null_memory_reads_zeros_and_forgets() {
    let mut table = Table::new();
    let key = table
        .register(PD, Memory::null(), 0, Access::NONE)
        .expect("registers");
    for address in [0, 0x1234_5678, u64::MAX - 8] {
        let grant = table
            .local(PD, key, address, 8, LocalUse::Write)
            .expect("anywhere");
        grant.write(&[1; 8]).expect("writes");
        let mut bytes = vec![7];
        grant.append_to(&mut bytes).expect("reads");
        assert_eq!(bytes, [7, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut sum = 0;
        grant
            .crc(|piece| sum += piece.len() + usize::from(piece[0]))
            .expect("reads");
        assert_eq!(sum, 8);
        assert!(grant.fragment().is_none());
        assert_eq!(grant.populate(), Ok(()));
        assert_eq!(grant.write_u64_atomic(3), Ok(()));
    }
    assert!(
        table.remote(PD, 1, key, 0, 8, Access::REMOTE_READ).is_err(),
        "no R_Key"
    );
    for access in [Access::REMOTE_READ, Access::MW_BIND, RW] {
        let error = table.register(PD, Memory::null(), 0, access);
        assert_eq!(error, Err(RegisterError::NullIsLocal(access)));
    }
    let error = table.reregister(key, Change::default());
    assert_eq!(error, Err(ReregisterError::NullRegion(key)));
}

#[test]
fn device_memory_outlives_its_handle() {
    let mut table = Table::new();
    let memory = DeviceMemory::new(64, 64).expect("allocates");
    let part = || Memory::device(memory.clone(), 16, 32).expect("inside");
    let error = table.register(PD, part(), 0, RW);
    assert_eq!(error, Err(RegisterError::DeviceNotZeroBased));
    let access = RW | Access::ZERO_BASED | Access::REMOTE_ATOMIC;
    let key = table
        .register(PD, part(), 0x5555, access)
        .expect("registers");
    let grant = table
        .remote(PD, 1, key, 0, 4, Access::REMOTE_WRITE)
        .expect("from 0");
    grant.write(b"data").expect("writes");
    let mut bytes = [0; 12];
    memory.copy_from(12, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"\0\0\0\0data\0\0\0\0");
    assert!(
        table
            .remote(PD, 1, key, 0, 33, Access::REMOTE_WRITE)
            .is_err()
    );
    drop(memory);
    let grant = table
        .local(PD, key, 0, 4, LocalUse::Read)
        .expect("still there");
    assert!(grant.fragment().is_some());
    let atomic = table
        .remote(PD, 1, key, 8, 8, Access::REMOTE_ATOMIC)
        .expect("inside");
    assert_eq!(atomic.fetch_add(1), Ok(0));
}

#[test]
fn the_address_space_is_whatever_is_mapped() {
    let mut table = Table::new();
    // SAFETY: the test only touches its own mapping through it.
    let memory = || unsafe { Memory::address_space() };
    for (iova, access) in [(0, RW), (4096, PHANTOM)] {
        let error = table.register(PD, memory(), iova, access);
        assert_eq!(error, Err(RegisterError::AddressSpaceNotOnDemand));
    }
    let access = PHANTOM | Access::REMOTE_ATOMIC;
    let key = table.register(PD, memory(), 0, access).expect("registers");
    assert!(
        table
            .local(PD, key, 0, 8, LocalUse::Read)
            .expect("in range")
            .populate()
            .is_err()
    );
    let mapping = Mapping::new(2);
    let start = mapping.iova();
    let grant = table
        .local(PD, key, start + 1, 3, LocalUse::Write)
        .expect("in range");
    grant.write(b"abc").expect("mapped");
    assert_eq!(mapping.bytes()[..5], *b"\0abc\0");
    let atomic = table.remote(PD, 1, key, start + 8, 8, Access::REMOTE_ATOMIC);
    assert_eq!(atomic.expect("in range").fetch_add(3), Ok(0));
    assert_eq!(mapping.bytes()[8..16], 3u64.to_ne_bytes());
    mapping.unmap(0);
    assert!(grant.write(b"abc").is_err());
    mapping.protect(1, libc::PROT_NONE);
    let end = table.local(PD, key, start + page_bytes() as u64, 1, LocalUse::Read);
    assert!(end.expect("in range").read_into(&mut [0]).is_err());
}

#[test]
fn a_stale_key_names_nothing() {
    let mut table = Table::new();
    let key = table
        .register(PD, phantom(8), 0, PHANTOM)
        .expect("registers");
    assert_ne!(key, Key(0));
    table.deregister(key).expect("registered");
    let unknown = LocalFault::UnknownKey(claim(key, 0, 8));
    let local = |table: &Table, key| table.local(PD, key, 0, 8, LocalUse::Read).map(drop);
    assert_eq!(local(&table, key), Err(unknown));
    // Not even the tag that the slot will get names it while it is free.
    assert!(local(&table, key.with_tag(key.tag() + 1)).is_err());
    assert_eq!(table.deregister(key), Err(DeregisterError::UnknownKey(key)));
    assert!(table.is_empty());
    let fault = table
        .remote(PD, 1, key, 0, 8, Access::REMOTE_READ)
        .expect_err("stale");
    assert_eq!(
        fault.to_string(),
        "key 0x00000100, address 0x0, 8 bytes: the peer's R_Key names no region or window; was it \
         deregistered or rebound?"
    );
}

#[test]
fn a_slot_rests_before_it_is_used_again() {
    let mut table = Table::new();
    let mut last = std::collections::HashMap::new();
    for round in 0..20 * QUARANTINE_SLOTS {
        let key = table
            .register(PD, phantom(8), 0, PHANTOM)
            .expect("registers");
        if let Some((earlier, tag)) = last.insert(key.index(), (round, key.tag())) {
            assert!(round - earlier >= QUARANTINE_SLOTS, "slot {}", key.index());
            assert_eq!(key.tag(), tag + 1, "a new generation");
        }
        table.deregister(key).expect("registered");
    }
    assert!(
        table.slots().len() <= QUARANTINE_SLOTS + 2,
        "slots are used again"
    );
}

#[test]
fn a_full_table_says_so_and_goes_on() {
    let mut table = Table::with_limit(3);
    let register = |table: &mut Table| table.register(PD, phantom(8), 0, PHANTOM);
    let keys = [(); 3].map(|()| register(&mut table).expect("room"));
    let full = RegisterError::TableFull { limit: 3 };
    assert_eq!(register(&mut table), Err(full));
    assert_eq!(table.alloc_window(PD, WindowType::One), Err(full));
    assert_eq!(table.len(), 3);
    table.deregister(keys[1]).expect("registered");
    let again = register(&mut table).expect("room");
    assert_eq!(again.index(), keys[1].index());
    assert_ne!(again, keys[1]);
    assert_eq!(
        full.to_string(),
        "all 3 keys are used: deregister regions or deallocate windows"
    );
}

#[test]
fn reregistering_rights_or_domain_keeps_the_key() {
    let mut table = Table::new();
    let mapping = Mapping::new(1);
    let key = mapping.register(&mut table, Access::LOCAL_WRITE);
    let write = |table: &Table, pd| {
        table
            .remote(pd, 1, key, mapping.iova(), 8, Access::REMOTE_WRITE)
            .map(drop)
    };
    assert!(write(&table, PD).is_err());
    let change = Change {
        access: Some(RW),
        ..Change::default()
    };
    assert_eq!(table.reregister(key, change), Ok(key));
    assert_eq!(write(&table, PD), Ok(()));
    let change = Change {
        pd: Some(OTHER_PD),
        ..Change::default()
    };
    assert_eq!(table.reregister(key, change), Ok(key));
    assert!(write(&table, PD).is_err());
    assert_eq!(write(&table, OTHER_PD), Ok(()));
}

#[test]
fn reregistering_a_translation_changes_the_key() {
    let mut table = Table::new();
    let (old, new) = (Mapping::new(1), Mapping::new(2));
    let key = old.register(&mut table, RW);
    let change = Change {
        translation: Some((new.memory(), new.iova())),
        ..Change::default()
    };
    let moved = table.reregister(key, change).expect("registered");
    assert_eq!(moved.index(), key.index());
    assert!(table.local(PD, key, new.iova(), 1, LocalUse::Read).is_err());
    assert!(
        table
            .local(PD, moved, old.iova(), 1, LocalUse::Read)
            .is_err()
    );
    let grant = table
        .local(PD, moved, new.iova(), new.len(), LocalUse::Write)
        .expect("there");
    grant.write(&vec![3; new.len()]).expect("writes");
    assert_eq!((old.bytes()[0], new.bytes()[0]), (0, 3));
}

#[test]
fn a_refused_change_changes_nothing() {
    let mut table = Table::new();
    let mapping = Mapping::new(2);
    let key = mapping.register(&mut table, RW);
    let hole = Mapping::new(2);
    hole.unmap(0);
    let change = Change {
        translation: Some((hole.memory(), hole.iova())),
        pd: Some(OTHER_PD),
        access: None,
    };
    let error = table.reregister(key, change);
    assert!(matches!(
        error,
        Err(ReregisterError::Register(RegisterError::NotMapped { .. }))
    ));
    let change = Change {
        access: Some(Access::REMOTE_WRITE),
        ..Change::default()
    };
    assert!(table.reregister(key, change).is_err());
    let grant = table.remote(PD, 1, key, mapping.iova(), 8, Access::REMOTE_READ);
    assert!(grant.is_ok());
    let unknown = DeregisterError::UnknownKey(Key(1));
    let error = table.reregister(Key(1), Change::default());
    assert_eq!(error, Err(ReregisterError::Region(unknown)));
}

#[test]
fn losing_zero_based_gives_the_memory_its_own_address() {
    let mut table = Table::new();
    let mapping = Mapping::new(1);
    let key = mapping.register(&mut table, RW | Access::ZERO_BASED);
    let change = Change {
        access: Some(RW),
        ..Change::default()
    };
    assert_eq!(table.reregister(key, change), Ok(key));
    assert!(table.local(PD, key, 0, 1, LocalUse::Read).is_err());
    assert!(
        table
            .local(PD, key, mapping.iova(), 1, LocalUse::Read)
            .is_ok()
    );
}

#[test]
fn a_table_can_be_moved_between_threads() {
    fn check<T: Send>(_: &T) {}
    check(&Table::new());
}

/// Numbers whose sums and differences are at the edges of 64 bits, or anything.
fn edgy() -> impl Strategy<Value = u64> {
    let edge = prop_oneof![
        Just(0),
        Just(1 << 63),
        Just(u64::MAX),
        Just(u64::from(u32::MAX))
    ];
    prop_oneof![
        (edge, -0x500i64..0x500).prop_map(|(edge, near)| edge.wrapping_add_signed(near)),
        any::<u64>(),
    ]
}

proptest! {
    /// The oracle computes in 128 bits, where nothing wraps. Half of the claims end near the end
    /// of the region, half of them start near its start.
    #[test]
    fn bounds_are_those_of_wide_arithmetic(
        iova in edgy(), len in edgy(), address in edgy(), want in edgy(),
        start in option::of(-2i64..3), end in option::of(-2i64..3),
    ) {
        let mut table = Table::new();
        let registered = table.register(PD, phantom(len as usize), iova, PHANTOM);
        let fits = |start: u64, len: u64| u128::from(start) + u128::from(len) < 1 << 64;
        let possible = len <= REGION_BYTES_MAX && fits(iova, len) && fits(4096, len);
        prop_assert_eq!(registered.is_ok(), possible);
        if let Ok(key) = registered {
            let address = start.map_or(address, |near| iova.wrapping_add_signed(near));
            let left = iova.wrapping_add(len).wrapping_sub(address);
            let want = end.map_or(want, |near| left.wrapping_add_signed(near));
            let limit = u128::from(address) + u128::from(want);
            let inside = address >= iova && limit <= u128::from(iova) + u128::from(len);
            let local = table.local(PD, key, address, want as usize, LocalUse::Read);
            prop_assert_eq!(local.is_ok(), inside || want == 0);
            let remote = table.remote(PD, 1, key, address, want as usize, Access::REMOTE_READ);
            prop_assert_eq!(remote.is_ok(), inside || want == 0);
        }
    }
}
