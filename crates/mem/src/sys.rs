//! System calls on this process's own memory: is it there, and copy it without trusting that.
//!
//! What it is not: a way to other processes. Every call names this process.

use core::mem::MaybeUninit;
use std::sync::OnceLock;

/// Why a range cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// First address known to be affected.
    pub(crate) address: usize,
    /// What the kernel said.
    pub(crate) errno: i32,
}

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: sysconf reads no memory of ours.
        let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(answer).unwrap_or(4096)
    })
}

/// Whether every page of the range is mapped, whatever its protection.
///
/// `msync(MS_ASYNC)` does nothing on Linux but walk the mappings, so that the cost follows
/// their number, not the length. `mincore` answers the same, but page by page.
pub(crate) fn check_mapped(address: usize, len: usize) -> Result<(), Refusal> {
    let start = page_of(address);
    // SAFETY: with MS_ASYNC the kernel neither reads nor changes the range.
    let answer = unsafe { libc::msync(start as *mut _, len + (address - start), libc::MS_ASYNC) };
    if answer == 0 {
        return Ok(());
    }
    match errno() {
        errno @ libc::ENOMEM => Err(Refusal { address, errno }),
        // Forbidden by a sandbox, say: then nothing is known against the range.
        _ => Ok(()),
    }
}

/// Faults the pages of the range in, for reading or for writing, without changing a byte.
///
/// A kernel that cannot do that (before 5.14) says nothing about the range: the answer is `Ok`.
pub(crate) fn populate(address: usize, len: usize, write: bool) -> Result<(), Refusal> {
    if !can_populate() {
        return Ok(());
    }
    let start = page_of(address);
    match madvise_populate(start, len + (address - start), write) {
        // EAGAIN, EPERM and the like tell about the system, not about the range.
        Err(errno @ (libc::EFAULT | libc::EINVAL | libc::ENOMEM | libc::EHWPOISON)) => {
            Err(Refusal { address, errno })
        }
        _ => Ok(()),
    }
}

/// As [`populate`] for writing, but any doubt is a refusal: who asks would die of a fault.
pub(crate) fn ensure_writable(address: usize, len: usize) -> Result<(), Refusal> {
    let start = page_of(address);
    madvise_populate(start, len + (address - start), true)
        .map_err(|errno| Refusal { address, errno })
}

/// Whether [`populate`] can tell anything here.
pub(crate) fn can_populate() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let witness = 0u8;
        let page = page_of(&raw const witness as usize);
        madvise_populate(page, page_bytes(), true).is_ok()
    })
}

/// Whether [`copy_in`] and [`copy_out`] work here; sandboxes can forbid them.
pub(crate) fn check_copy() -> Result<(), Refusal> {
    let witness = 0x5au8;
    copy_out(&raw const witness as usize, &mut [MaybeUninit::uninit()])
}

/// Copies memory of this process that may be unmapped or protected into `into`.
pub(crate) fn copy_out(address: usize, into: &mut [MaybeUninit<u8>]) -> Result<(), Refusal> {
    transfer(address, into.len(), |done, remote| {
        let rest = &mut into[done..];
        let local = libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        };
        // SAFETY: `local` is a live exclusive slice; the kernel checks every page of `remote`,
        // and the process is this one, so no foreign memory is read.
        unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, remote, 1, 0) }
    })
}

/// Copies `from` to memory of this process that may be unmapped or protected.
///
/// # Safety
/// Whoever owns the range, if it is mapped, must have agreed to this write.
pub(crate) unsafe fn copy_in(address: usize, from: &[u8]) -> Result<(), Refusal> {
    transfer(address, from.len(), |done, remote| {
        let rest = &from[done..];
        let local = libc::iovec {
            iov_base: rest.as_ptr().cast_mut().cast(),
            iov_len: rest.len(),
        };
        // SAFETY: `local` is a live slice that the kernel only reads; it checks every page of
        // `remote`, which the caller may write.
        unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, remote, 1, 0) }
    })
}

/// Repeats `call(done, remote)` until `len` bytes are moved or a page refuses.
///
/// The process id is asked for each time: a remembered one would, in a forked child, name the
/// parent's memory.
fn transfer(
    address: usize,
    len: usize,
    mut call: impl FnMut(usize, &libc::iovec) -> isize,
) -> Result<(), Refusal> {
    let mut done = 0;
    while done < len {
        let remote = libc::iovec {
            iov_base: (address + done) as *mut _,
            iov_len: len - done,
        };
        match call(done, &remote) {
            moved @ 1.. => done += moved.unsigned_abs(),
            failed => {
                return Err(Refusal {
                    address: address + done,
                    errno: if failed < 0 { errno() } else { libc::EFAULT },
                });
            }
        }
    }
    Ok(())
}

fn madvise_populate(start: usize, len: usize, write: bool) -> Result<(), i32> {
    let advice = if write {
        libc::MADV_POPULATE_WRITE
    } else {
        libc::MADV_POPULATE_READ
    };
    // SAFETY: populating faults pages in as an access would, but changes no byte of them and
    // reports what an access would die of.
    match unsafe { libc::madvise(start as *mut _, len, advice) } {
        0 => Ok(()),
        _ => Err(errno()),
    }
}

fn page_of(address: usize) -> usize {
    address & !(page_bytes() - 1)
}

fn errno() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::{Refusal, check_copy, check_mapped, copy_in, copy_out, page_bytes, populate};
    use crate::testing::Mapping;
    use core::mem::MaybeUninit;

    #[test]
    fn a_hole_is_found_wherever_it_is() {
        let mapping = Mapping::new(4);
        let (start, page) = (mapping.address(), page_bytes());
        assert_eq!(check_mapped(start + 1, 4 * page - 2), Ok(()));
        mapping.unmap(2);
        assert_eq!(check_mapped(start, 2 * page), Ok(()));
        assert!(check_mapped(start, 2 * page + 1).is_err());
        assert!(check_mapped(start + 3 * page - 1, 1).is_err());
        assert_eq!(check_mapped(start + 3 * page, page), Ok(()));
        assert!(check_mapped(usize::MAX - 4095, 4095).is_err());
    }

    #[test]
    fn populating_tells_protection_and_changes_nothing() {
        if !super::can_populate() {
            return;
        }
        let mapping = Mapping::new(2);
        let address = mapping.address() + 100;
        mapping.fill(0x77);
        assert_eq!(populate(address, 1, true), Ok(()));
        assert_eq!(mapping.bytes(), vec![0x77; 2 * page_bytes()]);
        mapping.protect(0, libc::PROT_READ);
        assert_eq!(populate(address, 1, false), Ok(()));
        assert!(populate(address, 1, true).is_err());
        mapping.protect(0, libc::PROT_NONE);
        assert!(populate(address, 1, false).is_err());
    }

    #[test]
    fn a_copy_stops_at_the_page_that_refuses() {
        check_copy().expect("process_vm_readv on oneself");
        let mapping = Mapping::new(3);
        let (start, page) = (mapping.address(), page_bytes());
        mapping.fill(1);
        mapping.unmap(2);
        let mut out = vec![MaybeUninit::new(0); page];
        assert_eq!(copy_out(start + page, &mut out), Ok(()));
        let refusal = Refusal {
            address: start + 2 * page,
            errno: libc::EFAULT,
        };
        assert_eq!(copy_out(start + page + 1, &mut out), Err(refusal));
        mapping.protect(1, libc::PROT_READ);
        // SAFETY: the mapping is this test's own.
        let written = unsafe { copy_in(start + page - 1, &[9; 2]) };
        assert_eq!(written.expect_err("read-only").address, start + page);
    }
}
