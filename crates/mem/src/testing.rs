//! Pages for tests: mapped, protected and unmapped at will.

use crate::sys::page_bytes;
use crate::{Access, Key, Memory, PdId, Table};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::io::Error;

/// Anonymous pages of this process.
pub(crate) struct Mapping {
    start: *mut u8,
    pages: usize,
}

impl Mapping {
    pub(crate) fn new(pages: usize) -> Self {
        // Addresses of our own choice, far from where the kernel puts mappings: a page that one
        // test unmaps must stay unmapped, whatever the tests beside it map.
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let wanted = NEXT.fetch_add(1 << 30, Ordering::Relaxed);
        // SAFETY: NOREPLACE leaves what is mapped already alone.
        let start = unsafe {
            libc::mmap(
                wanted as *mut _,
                pages * page_bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_eq!(start as usize, wanted, "{}", Error::last_os_error());
        Self {
            start: start.cast(),
            pages,
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.start as usize
    }

    pub(crate) fn iova(&self) -> u64 {
        self.address() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.pages * page_bytes()
    }

    /// All of it, for registration.
    pub(crate) fn memory(&self) -> Memory {
        // SAFETY: tests keep the mapping longer than the table, or unmap pages only of
        // on-demand regions; nobody holds a reference into it.
        unsafe { Memory::from_raw(self.start, self.len()) }
    }

    pub(crate) fn register(&self, table: &mut Table, access: Access) -> Key {
        table
            .register(PD, self.memory(), self.iova(), access)
            .expect("registers")
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: our own pages; callers fill before they unmap or protect.
        unsafe { self.start.write_bytes(byte, self.len()) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len()];
        // SAFETY: our own pages, all readable where tests call this.
        unsafe {
            self.start
                .copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len())
        }
        copy
    }

    pub(crate) fn unmap(&self, page: usize) {
        // SAFETY: one of our own pages, used by nobody but on-demand regions.
        let answer = unsafe { libc::munmap(self.page(page).cast(), page_bytes()) };
        assert_eq!(answer, 0);
    }

    pub(crate) fn protect(&self, page: usize, protection: i32) {
        // SAFETY: one of our own pages.
        let answer = unsafe { libc::mprotect(self.page(page).cast(), page_bytes(), protection) };
        assert_eq!(answer, 0);
    }

    fn page(&self, page: usize) -> *mut u8 {
        assert!(page < self.pages);
        self.start.wrapping_add(page * page_bytes())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own pages; nothing else is ever mapped in their holes.
        unsafe { libc::munmap(self.start.cast(), self.len()) };
    }
}

/// The protection domain most tests use.
pub(crate) const PD: PdId = PdId(7);
