//! A checked claim: the only thing that can copy from or to application memory.
//!
//! What it is not: exclusive. By RDMA's design the program and other peers may use the same
//! bytes at the same time, so a grant never makes a reference to them that outlives a call.

use crate::limits::STAGING_BYTES;
use crate::{Fragment, GrantFault, Table, sys};
use core::sync::atomic::{AtomicU64, Ordering, fence};
use core::{fmt, marker::PhantomData, mem::MaybeUninit, ptr};

/// A range of memory that a lookup has granted, with the rights that were asked for.
///
/// It borrows the [`Table`], so that no region can go while it lives. Binding and invalidating
/// windows is possible meanwhile; the grant then still stands, as the access it is for had
/// begun before.
#[derive(Clone, Copy)]
pub struct Grant<'t> {
    /// For on-demand memory an address only, never dereferenced without asking the kernel.
    start: *mut u8,
    len: usize,
    backing: Backing,
    rights: Rights,
    table: PhantomData<&'t Table>,
}

/// How the bytes of a grant are reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Mapped, by the promise of registration or because it is ours.
    Direct,
    /// Perhaps not mapped: the kernel copies.
    OnDemand,
    /// Zeros in, nothing out.
    Null,
}

/// What a grant may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights(u8);

impl Rights {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const WRITE: Self = Self(2);
    pub(crate) const ATOMIC: Self = Self(4);

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl<'t> Grant<'t> {
    /// A grant of `len` bytes from `start`.
    ///
    /// # Safety
    /// For [`Backing::Direct`], the range lies inside memory that stays mapped, and writable if
    /// `rights` allow to change it, as long as the table is borrowed. For
    /// [`Backing::OnDemand`], its owner agreed to these accesses.
    #[inline]
    pub(crate) const unsafe fn new(
        start: *mut u8,
        len: usize,
        backing: Backing,
        rights: Rights,
    ) -> Self {
        Self {
            start,
            len,
            backing,
            rights,
            table: PhantomData,
        }
    }

    /// No bytes, which anybody may read and write.
    #[inline]
    pub(crate) const fn empty() -> Self {
        Self {
            start: ptr::null_mut(),
            len: 0,
            backing: Backing::Null,
            rights: Rights::READ.with(Rights::WRITE),
            table: PhantomData,
        }
    }

    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address in this process of the first byte.
    #[cfg(fuzzing)]
    pub(crate) fn address(&self) -> usize {
        self.start.addr()
    }

    /// The part of `len` bytes from `offset`.
    ///
    /// # Errors
    /// [`GrantFault::WrongLength`] if it is not all inside.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Result<Self, GrantFault> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(Self {
                start: self.start.wrapping_add(offset),
                len,
                ..*self
            }),
            end => Err(GrantFault::WrongLength {
                granted: self.len,
                wanted: end.unwrap_or(usize::MAX),
            }),
        }
    }

    /// Copies `data`, which has the grant's length, into place.
    ///
    /// # Errors
    /// [`GrantFault::NotMapped`] for on-demand memory that is not there; bytes before the
    /// refusing page may have been written. [`GrantFault::NotGranted`],
    /// [`GrantFault::WrongLength`].
    #[inline]
    pub fn write(&self, data: &[u8]) -> Result<(), GrantFault> {
        self.check(Rights::WRITE, data.len())?;
        match self.backing {
            Backing::Direct => {
                // SAFETY: `new` was promised that these `len` bytes are mapped and writable while
                // the table is borrowed, and `check` proved `data.len() == len` and the right.
                // The program may touch the bytes at the same time, so no `&mut [u8]` is made.
                // `data` is no registered memory: nobody holds references into that.
                unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start, self.len) };
                Ok(())
            }
            // SAFETY: `new` was promised that the owner agreed; `check` proved the right.
            Backing::OnDemand => unsafe { sys::copy_in(self.start.addr(), data) }.map_err(refused),
            Backing::Null => Ok(()),
        }
    }

    /// Fills `data`, which has the grant's length.
    ///
    /// # Errors
    /// As for [`Grant::write`].
    #[inline]
    pub fn read_into(&self, data: &mut [u8]) -> Result<(), GrantFault> {
        self.check(Rights::READ, data.len())?;
        let data = ptr::from_mut(data) as *mut [MaybeUninit<u8>];
        // SAFETY: initialised bytes may be seen as perhaps uninitialised ones, and `copy_out`
        // only ever stores initialised ones.
        self.copy_out(unsafe { &mut *data })
    }

    /// Appends all bytes to `buffer`, whose length is then what it was plus the grant's.
    ///
    /// Allocates if the buffer has no room: the caller bounds the grant.
    ///
    /// # Errors
    /// As for [`Grant::write`]; then `buffer` is as it was.
    #[inline]
    pub fn append_to(&self, buffer: &mut Vec<u8>) -> Result<(), GrantFault> {
        self.check(Rights::READ, self.len)?;
        buffer.reserve(self.len);
        self.copy_out(&mut buffer.spare_capacity_mut()[..self.len])?;
        // SAFETY: `reserve` made room for `len` more bytes and `copy_out` initialised them.
        unsafe { buffer.set_len(buffer.len() + self.len) };
        Ok(())
    }

    /// Hands all bytes, in order and in pieces, to a checksum.
    ///
    /// `update` must use each byte once, for arithmetic only: the program may change the bytes
    /// while it looks, and any value it then comes to is right (what is sent may differ from it,
    /// and the receiver drops such a packet).
    ///
    /// # Errors
    /// As for [`Grant::write`]; some bytes may have been handed out already.
    #[inline]
    pub fn crc(&self, mut update: impl FnMut(&[u8])) -> Result<(), GrantFault> {
        self.check(Rights::READ, self.len)?;
        match self.backing {
            Backing::Direct => {
                // SAFETY: `new` was promised that these `len` bytes are mapped. The one liberty
                // taken: the program may store to them while this reference lives, and the
                // compiler is told it does not. A checksum, see above, does not branch on
                // values nor read them twice, so that a torn read can only give another sum. The
                // lifetime of `update`'s argument keeps the reference from outliving the call.
                update(unsafe { core::slice::from_raw_parts(self.start, self.len) });
                Ok(())
            }
            Backing::OnDemand | Backing::Null => self.crc_staged(&mut update),
        }
    }

    #[cold]
    fn crc_staged(&self, update: &mut dyn FnMut(&[u8])) -> Result<(), GrantFault> {
        let mut staging = [0; STAGING_BYTES];
        let mut done = 0;
        while done < self.len {
            let piece = self.slice(done, STAGING_BYTES.min(self.len - done))?;
            let bytes = &mut staging[..piece.len];
            piece.read_into(bytes)?;
            update(bytes);
            done += piece.len;
        }
        Ok(())
    }

    /// The bytes in place, for the kernel to read; `None` if they must be staged by
    /// [`Grant::append_to`] (on-demand and null memory, or a grant not for reading).
    #[inline]
    pub fn fragment(&self) -> Option<Fragment<'t>> {
        if self.len == 0 {
            return Some(Fragment::EMPTY);
        }
        if self.backing != Backing::Direct || !self.allows(Rights::READ) {
            return None;
        }
        // SAFETY: `new` was promised that these bytes are mapped while the table is borrowed,
        // which is `'t`.
        Some(unsafe { Fragment::from_raw(self.start, self.len) })
    }

    /// Adds `value`, wrapping, to the eight bytes as a number in host byte order; returns the
    /// number before. Atomic against every other processor.
    ///
    /// # Errors
    /// [`GrantFault::Misaligned`]; else as for [`Grant::write`].
    pub fn fetch_add(&self, value: u64) -> Result<u64, GrantFault> {
        let cell = self.atomic(Rights::ATOMIC)?;
        Ok(cell.map_or(0, |cell| cell.fetch_add(value, Ordering::SeqCst)))
    }

    /// Stores `new` in the eight bytes if they hold `expected`; returns the number before.
    /// Numbers are in host byte order. Atomic against every other processor.
    ///
    /// # Errors
    /// As for [`Grant::fetch_add`].
    pub fn compare_swap(&self, expected: u64, new: u64) -> Result<u64, GrantFault> {
        let cell = self.atomic(Rights::ATOMIC)?;
        Ok(cell.map_or(0, |cell| {
            match cell.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(before) | Err(before) => before,
            }
        }))
    }

    /// Stores eight bytes, a number in host byte order, so that nobody sees a part of them
    /// (ATOMIC WRITE, IBTA annex A19). All earlier writes are visible to who sees it.
    ///
    /// # Errors
    /// As for [`Grant::fetch_add`].
    pub fn write_u64_atomic(&self, value: u64) -> Result<(), GrantFault> {
        if let Some(cell) = self.atomic(Rights::WRITE)? {
            cell.store(value, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Makes earlier writes through any grant visible to all processors before later ones.
    ///
    /// That is all there is to global visibility, and the most that can be done for persistence:
    /// this memory is as volatile as the process.
    #[inline]
    pub fn flush(&self) {
        fence(Ordering::SeqCst);
    }

    /// Faults all pages in for the access that was granted (`ibv_advise_mr`).
    ///
    /// # Errors
    /// [`GrantFault::NotMapped`] if some page cannot be had.
    pub fn populate(&self) -> Result<(), GrantFault> {
        if self.backing == Backing::Null {
            return Ok(());
        }
        sys::populate(self.start.addr(), self.len, self.allows(Rights::WRITE)).map_err(refused)
    }

    /// The eight bytes, as what atomics work on; `None` for null memory.
    fn atomic(&self, right: Rights) -> Result<Option<&AtomicU64>, GrantFault> {
        self.check(right, size_of::<u64>())?;
        let address = self.start.addr();
        if self.backing == Backing::Null {
            return Ok(None);
        }
        if !address.is_multiple_of(size_of::<u64>()) {
            return Err(GrantFault::Misaligned { address });
        }
        let start = match self.backing {
            Backing::OnDemand => {
                sys::ensure_writable(address, size_of::<u64>()).map_err(refused)?;
                ptr::with_exposed_provenance_mut(address)
            }
            _ => self.start,
        };
        // SAFETY: eight aligned bytes, mapped and writable: for direct memory `new` was promised
        // so; for on-demand memory the kernel just made them so, and the program promised
        // (`Memory::from_raw`) to leave them so during an atomic. Plain accesses to them by the
        // program at the same time are its own races, as with any RDMA atomic.
        Ok(Some(unsafe { AtomicU64::from_ptr(start.cast()) }))
    }

    /// Fills `out`, whose length is the grant's; the caller has checked the right to read.
    #[inline]
    fn copy_out(&self, out: &mut [MaybeUninit<u8>]) -> Result<(), GrantFault> {
        debug_assert_eq!(out.len(), self.len);
        match self.backing {
            Backing::Direct => {
                // SAFETY: as in `write`, the other way round; any mixture of old and new bytes
                // is a right answer. `out.len() == len`: both callers made it so.
                unsafe { ptr::copy_nonoverlapping(self.start.cast(), out.as_mut_ptr(), self.len) };
                Ok(())
            }
            Backing::OnDemand => sys::copy_out(self.start.addr(), out).map_err(refused),
            Backing::Null => {
                out.fill(MaybeUninit::new(0));
                Ok(())
            }
        }
    }

    #[inline]
    fn check(&self, right: Rights, wanted: usize) -> Result<(), GrantFault> {
        if !self.allows(right) {
            return Err(GrantFault::NotGranted);
        }
        if wanted != self.len {
            return Err(GrantFault::WrongLength {
                granted: self.len,
                wanted,
            });
        }
        Ok(())
    }

    #[inline]
    const fn allows(&self, right: Rights) -> bool {
        self.rights.0 & right.0 == right.0
    }
}

impl fmt::Debug for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("start", &self.start)
            .field("len", &self.len)
            .field("backing", &self.backing)
            .field("rights", &self.rights)
            .finish()
    }
}

#[cold]
fn refused(refusal: sys::Refusal) -> GrantFault {
    GrantFault::NotMapped {
        address: refusal.address,
        errno: refusal.errno,
    }
}

#[cfg(test)]
mod tests;
