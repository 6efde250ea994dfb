//! Scatter-gather entries for `sendmsg`, whose lifetimes prove that the bytes are still there.

use core::{fmt, marker::PhantomData, mem::ManuallyDrop, ptr};

/// One entry of an I/O vector: bytes that stay mapped for `'t`.
///
/// Made from a [`Grant`](crate::Grant) or a slice only. Its bytes may be changed by the program
/// at any time, so that only the kernel may look at them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Fragment<'t>(libc::iovec, PhantomData<&'t [u8]>);

// SAFETY: a fragment is an address and a length; the bytes may be read from any thread, which
// `Memory::from_raw` demands and slices are.
unsafe impl Send for Fragment<'_> {}
// SAFETY: as above, and nothing in it changes.
unsafe impl Sync for Fragment<'_> {}

impl<'t> Fragment<'t> {
    /// No bytes.
    pub const EMPTY: Self = Self(
        libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        },
        PhantomData,
    );

    /// The `len` bytes from `start`.
    ///
    /// # Safety
    /// They stay mapped and readable for `'t`.
    #[inline]
    pub(crate) const unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        let entry = libc::iovec {
            iov_base: start.cast(),
            iov_len: len,
        };
        Self(entry, PhantomData)
    }

    /// Bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Whether there is no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// The part of `len` bytes from `offset`, or `None` if it is not all inside.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= self.len()).then(|| {
            let start = self.0.iov_base.cast::<u8>().wrapping_add(offset);
            // SAFETY: a part of bytes that stay mapped for `'t`.
            unsafe { Self::from_raw(start, len) }
        })
    }
}

impl<'t> From<&'t [u8]> for Fragment<'t> {
    #[inline]
    fn from(bytes: &'t [u8]) -> Self {
        // SAFETY: the slice lives for `'t`; the kernel only reads what `sendmsg` is given.
        unsafe { Self::from_raw(bytes.as_ptr().cast_mut(), bytes.len()) }
    }
}

impl fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Fragment({:p}, {} bytes)",
            self.0.iov_base, self.0.iov_len
        )
    }
}

/// The same entries, as `msg_iov` wants them. Whoever makes the call may only read the bytes.
#[inline]
pub const fn as_iovecs(fragments: &[Fragment<'_>]) -> *const libc::iovec {
    // `Fragment` is `repr(transparent)` over `iovec`.
    fragments.as_ptr().cast()
}

/// A growing list of fragments whose storage outlives them: see [`FragmentList::cleared`].
#[derive(Debug, Default)]
pub struct FragmentList<'t>(Vec<Fragment<'t>>);

impl<'t> FragmentList<'t> {
    /// An empty list with room for `capacity` fragments.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    /// Adds one at the end.
    #[inline]
    pub fn push(&mut self, fragment: Fragment<'t>) {
        self.0.push(fragment);
    }

    /// All of them, in order.
    #[inline]
    pub fn as_slice(&self) -> &[Fragment<'t>] {
        &self.0
    }

    /// How many there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many fit before the storage grows.
    pub const fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Drops the entries from `len` on: a packet that was begun and is not to be sent.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// The same storage, empty, for fragments of another lifetime: between two batches it can
    /// be kept as `FragmentList<'static>` while nothing is borrowed.
    #[must_use]
    pub fn cleared<'n>(self) -> FragmentList<'n> {
        let mut entries = ManuallyDrop::new(self.0);
        entries.clear();
        let (start, capacity) = (entries.as_mut_ptr(), entries.capacity());
        // SAFETY: the parts of a vector that is not used or dropped any more. The element type
        // differs in a lifetime only, so layout and allocation are the same, and no element is
        // left whose lifetime would change.
        FragmentList(unsafe { Vec::from_raw_parts(start.cast(), 0, capacity) })
    }
}

impl<'t> Extend<Fragment<'t>> for FragmentList<'t> {
    fn extend<I: IntoIterator<Item = Fragment<'t>>>(&mut self, fragments: I) {
        self.0.extend(fragments);
    }
}

#[cfg(test)]
mod tests {
    use super::{Fragment, FragmentList, as_iovecs};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_takes_fragments_as_they_are() {
        let (sender, mut receiver) = UnixStream::pair().expect("socket pair");
        let parts: [&[u8]; 3] = [b"one ", b"", b"two three"];
        let mut list = FragmentList::with_capacity(4);
        list.extend(parts.map(Fragment::from));
        list.push(Fragment::from(parts[2]).slice(3, 2).expect("inside"));
        // SAFETY: as many entries as the list has, all of live slices, only read by writev.
        let sent = unsafe { libc::writev(sender.as_raw_fd(), as_iovecs(list.as_slice()), 4) };
        assert_eq!(sent, 15);
        drop(sender);
        let mut received = String::new();
        receiver.read_to_string(&mut received).expect("utf-8");
        assert_eq!(received, "one two three t");
    }

    #[test]
    fn a_part_must_be_inside() {
        let fragment = Fragment::from(&b"1234"[..]);
        assert_eq!(fragment.slice(1, 3).map(|part| part.len()), Some(3));
        assert_eq!(fragment.slice(4, 0).map(|part| part.len()), Some(0));
        assert!(fragment.slice(1, 4).is_none());
        assert!(fragment.slice(usize::MAX, 2).is_none());
    }

    #[test]
    fn clearing_keeps_the_storage_and_frees_the_borrow() {
        let mut kept: FragmentList<'static> = FragmentList::with_capacity(10);
        let storage = as_iovecs(kept.as_slice());
        for round in 0..3u8 {
            let bytes = vec![round; 10];
            let mut list = kept.cleared();
            for byte in bytes.chunks(1) {
                list.push(Fragment::from(byte));
            }
            list.truncate(9);
            assert_eq!(list.len(), 9);
            kept = list.cleared();
            drop(bytes);
        }
        assert!(kept.is_empty());
        assert_eq!(as_iovecs(kept.as_slice()), storage);
        assert_eq!(kept.capacity(), 10);
    }
}
