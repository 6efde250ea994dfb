use crate::limits::STAGING_BYTES;
use crate::sys::page_bytes;
use crate::testing::{Mapping, PD};
use crate::{Access, Grant, GrantFault, Key, LocalUse, Memory, Table, as_iovecs};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// A table with one region over some pages.
struct Fixture {
    mapping: Mapping,
    table: Table,
    key: Key,
}

impl Fixture {
    fn new(pages: usize, access: Access) -> Self {
        let mapping = Mapping::new(pages);
        let mut table = Table::new();
        let key = mapping.register(&mut table, access);
        Self {
            mapping,
            table,
            key,
        }
    }

    #[track_caller]
    fn local(&self, offset: usize, len: usize, usage: LocalUse) -> Grant<'_> {
        self.table
            .local(
                PD,
                self.key,
                self.mapping.iova() + offset as u64,
                len,
                usage,
            )
            .expect("granted")
    }

    #[track_caller]
    fn remote(&self, offset: usize, len: usize, access: Access) -> Grant<'_> {
        self.table
            .remote(
                PD,
                1,
                self.key,
                self.mapping.iova() + offset as u64,
                len,
                access,
            )
            .expect("granted")
    }
}

fn crc_bytes(grant: &Grant<'_>) -> Result<Vec<u8>, GrantFault> {
    let mut bytes = Vec::new();
    grant.crc(|piece| bytes.extend_from_slice(piece))?;
    Ok(bytes)
}

#[test]
fn every_way_of_reading_sees_what_was_written() {
    for access in [ALL, ALL | Access::ON_DEMAND] {
        let fixture = Fixture::new(4, access);
        let data: Vec<u8> = (0..2 * STAGING_BYTES + 5)
            .map(|i| ((i * 7) >> 3) as u8)
            .collect();
        let written = fixture.remote(3, data.len(), Access::REMOTE_WRITE);
        written.write(&data).expect("writes");

        let grant = fixture.local(3, data.len(), LocalUse::Read);
        let mut filled = vec![0; data.len()];
        grant.read_into(&mut filled).expect("reads");
        let mut appended = b"before".to_vec();
        grant.append_to(&mut appended).expect("reads");
        assert_eq!(filled, data, "{access}");
        assert_eq!(appended, [b"before", &data[..]].concat(), "{access}");
        assert_eq!(crc_bytes(&grant), Ok(data), "{access}");
        let whole = fixture.mapping.bytes();
        assert_eq!((whole[2], whole[3 + grant.len()]), (0, 0), "{access}");
    }
}

#[test]
fn a_slice_is_inside_its_grant() {
    let fixture = Fixture::new(1, ALL);
    let grant = fixture.local(100, 10, LocalUse::Write);
    grant
        .slice(8, 2)
        .expect("inside")
        .write(b"xy")
        .expect("writes");
    assert_eq!(fixture.mapping.bytes()[107..111], [0, b'x', b'y', 0]);
    assert!(grant.slice(10, 0).expect("inside").is_empty());
    for (offset, len) in [(9, 2), (11, 0), (usize::MAX, 2)] {
        let fault = grant.slice(offset, len).expect_err("outside");
        assert!(matches!(fault, GrantFault::WrongLength { granted: 10, .. }));
    }
}

#[test]
fn bytes_and_grant_have_one_length() {
    let fixture = Fixture::new(1, ALL);
    let grant = fixture.local(0, 8, LocalUse::Write);
    let wrong = |wanted| GrantFault::WrongLength { granted: 8, wanted };
    assert_eq!(grant.write(&[1; 7]), Err(wrong(7)));
    assert_eq!(grant.read_into(&mut [0; 9]), Err(wrong(9)));
    let atomic = fixture.remote(0, 16, Access::REMOTE_ATOMIC).fetch_add(1);
    let fault = GrantFault::WrongLength {
        granted: 16,
        wanted: 8,
    };
    assert_eq!(atomic, Err(fault));
    assert_eq!(fixture.mapping.bytes()[..16], [0; 16]);
}

#[test]
fn a_grant_does_only_what_was_asked_for() {
    let fixture = Fixture::new(1, ALL);
    let refused = GrantFault::NotGranted;

    let gather = fixture.local(0, 8, LocalUse::Read);
    assert_eq!(gather.write(&[1; 8]), Err(refused));
    assert_eq!(gather.write_u64_atomic(1), Err(refused));

    let write = fixture.remote(0, 8, Access::REMOTE_WRITE);
    assert_eq!(write.read_into(&mut [0; 8]), Err(refused));
    assert_eq!(write.append_to(&mut Vec::new()), Err(refused));
    assert_eq!(crc_bytes(&write), Err(refused));
    assert!(write.fragment().is_none());
    assert_eq!(write.fetch_add(1), Err(refused));
    assert_eq!(write.write_u64_atomic(0), Ok(()));

    let atomic = fixture.remote(0, 8, Access::REMOTE_ATOMIC);
    assert_eq!(atomic.write(&[1; 8]), Err(refused));
    assert_eq!(atomic.fetch_add(1), Ok(0));

    let read = fixture.remote(0, 8, Access::REMOTE_READ);
    assert_eq!(read.write(&[1; 8]), Err(refused));
    assert_eq!(read.compare_swap(1, 2), Err(refused));
    assert_eq!(fixture.mapping.bytes()[..8], 1u64.to_ne_bytes());
}

#[test]
fn atomics_return_the_number_before() {
    for access in [ALL, ALL | Access::ON_DEMAND] {
        let fixture = Fixture::new(1, access);
        let grant = fixture.remote(8, 8, Access::REMOTE_ATOMIC);
        assert_eq!(grant.fetch_add(5), Ok(0));
        assert_eq!(grant.fetch_add(u64::MAX), Ok(5), "wraps to 4");
        assert_eq!(grant.compare_swap(5, 9), Ok(4), "not equal, not stored");
        assert_eq!(grant.compare_swap(4, 9), Ok(4));
        assert_eq!(grant.compare_swap(9, 1), Ok(9));
        let write = fixture.remote(16, 8, Access::REMOTE_WRITE);
        assert_eq!(write.write_u64_atomic(0x0102_0304), Ok(()));
        write.flush();
        let bytes = fixture.mapping.bytes();
        assert_eq!(bytes[8..16], 1u64.to_ne_bytes());
        assert_eq!(bytes[16..24], 0x0102_0304u64.to_ne_bytes());
    }
}

#[test]
fn atomics_need_alignment() {
    for access in [ALL, ALL | Access::ON_DEMAND] {
        let fixture = Fixture::new(1, access);
        for offset in [1, 4, 7] {
            let address = fixture.mapping.address() + offset;
            let fault = GrantFault::Misaligned { address };
            let grant = fixture.remote(offset, 8, Access::REMOTE_ATOMIC);
            assert_eq!(grant.fetch_add(1), Err(fault));
            assert_eq!(grant.compare_swap(0, 1), Err(fault));
            let grant = fixture.remote(offset, 8, Access::REMOTE_WRITE);
            assert_eq!(grant.write_u64_atomic(1), Err(fault));
        }
        assert_eq!(fixture.mapping.bytes()[..16], [0; 16]);
    }
}

#[test]
fn atomics_add_up_beside_the_program_own() {
    const ROUNDS: u64 = 20_000;
    let shared = AtomicU64::new(0);
    let mut table = Table::new();
    // SAFETY: `shared` outlives the table and tolerates concurrent changes.
    let memory = unsafe { Memory::from_raw(shared.as_ptr().cast(), 8) };
    let key = table.register(PD, memory, 0, ALL).expect("registers");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                shared.fetch_add(1, Ordering::SeqCst);
            }
        });
        for i in 0..ROUNDS {
            let grant = table
                .remote(PD, 1, key, 0, 8, Access::REMOTE_ATOMIC)
                .expect("granted");
            if i % 2 == 0 {
                grant.fetch_add(1).expect("aligned");
            } else {
                let mut seen = grant.fetch_add(0).expect("aligned");
                while let before = grant.compare_swap(seen, seen + 1).expect("aligned")
                    && before != seen
                {
                    seen = before;
                }
            }
        }
    });
    assert_eq!(shared.load(Ordering::SeqCst), 2 * ROUNDS);
}

#[test]
fn bytes_that_change_meanwhile_are_old_or_new() {
    let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
    let len = words.len() * 8;
    let mut table = Table::new();
    // SAFETY: `words` outlive the table and are only used as atomics.
    let memory = unsafe { Memory::from_raw(words.as_ptr().cast_mut().cast(), len) };
    let key = table.register(PD, memory, 0, ALL).expect("registers");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0;
            while !done.load(Ordering::Relaxed) {
                value = !value;
                for word in &words {
                    word.store(value, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..2_000 {
            let grant = table
                .local(PD, key, 0, len, LocalUse::Read)
                .expect("granted");
            let mut bytes = Vec::new();
            grant.append_to(&mut bytes).expect("reads");
            grant
                .crc(|piece| bytes.extend_from_slice(piece))
                .expect("reads");
            assert_eq!(bytes.len(), 2 * len);
            assert!(bytes.iter().all(|&byte| byte == 0 || byte == 0xff));
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_fragment_is_the_memory_itself() {
    let fixture = Fixture::new(1, ALL);
    let fragment = fixture
        .local(5, 10, LocalUse::Read)
        .fragment()
        .expect("in place");
    let list = [fragment];
    // SAFETY: one entry, alive in `list`.
    let entry = unsafe { *as_iovecs(&list) };
    assert_eq!(entry.iov_base as usize, fixture.mapping.address() + 5);
    assert_eq!((entry.iov_len, fragment.len()), (10, 10));
    let empty = fixture.local(5, 0, LocalUse::Read).fragment();
    assert!(empty.expect("no bytes are in place").is_empty());
    assert!(
        fixture
            .remote(5, 10, Access::REMOTE_READ)
            .fragment()
            .is_some()
    );
}

#[test]
fn on_demand_memory_is_staged_and_faults_instead_of_dying() {
    let fixture = Fixture::new(3, ALL | Access::ON_DEMAND);
    let page = page_bytes();
    fixture.mapping.fill(0x11);
    fixture.mapping.unmap(1);
    assert!(fixture.local(0, 8, LocalUse::Read).fragment().is_none());

    let hole = GrantFault::NotMapped {
        address: fixture.mapping.address() + page,
        errno: libc::EFAULT,
    };
    let across = fixture.local(page - 4, 8, LocalUse::Write);
    let mut buffer = vec![9; 3];
    assert_eq!(across.write(&[0x22; 8]), Err(hole));
    assert_eq!(across.read_into(&mut [0; 8]), Err(hole));
    assert_eq!(across.append_to(&mut buffer), Err(hole));
    assert_eq!(buffer, [9; 3]);
    assert_eq!(crc_bytes(&across), Err(hole));
    let atomic = fixture.remote(page + 8, 8, Access::REMOTE_ATOMIC);
    assert!(matches!(
        atomic.fetch_add(1),
        Err(GrantFault::NotMapped { .. })
    ));
    assert!(matches!(
        across.populate(),
        Err(GrantFault::NotMapped { .. })
    ));

    let beyond = fixture.local(2 * page, page, LocalUse::Write);
    assert_eq!(beyond.populate(), Ok(()));
    assert_eq!(beyond.write(&vec![0x33; page]), Ok(()));
}

#[test]
fn on_demand_memory_keeps_its_protection() {
    let fixture = Fixture::new(1, ALL | Access::ON_DEMAND);
    fixture.mapping.fill(0x44);
    fixture.mapping.protect(0, libc::PROT_READ);
    let grant = fixture.local(0, 8, LocalUse::Write);
    assert!(matches!(
        grant.write(&[0; 8]),
        Err(GrantFault::NotMapped { .. })
    ));
    let atomic = fixture.remote(0, 8, Access::REMOTE_ATOMIC);
    assert!(matches!(
        atomic.compare_swap(0, 1),
        Err(GrantFault::NotMapped { .. })
    ));
    let mut bytes = [0; 8];
    assert_eq!(grant.read_into(&mut bytes), Ok(()));
    assert_eq!(bytes, [0x44; 8]);
}

#[test]
fn faults_say_where_and_what_to_do() {
    let fault = GrantFault::NotMapped {
        address: 0x1000,
        errno: 14,
    };
    assert_eq!(
        fault.to_string(),
        "memory at 0x1000 cannot be used (errno 14): map it, or change its protection"
    );
}
