//! The bytes of a program's call: one buffer or many, gone through from front to back.

use std::ffi::c_void;

use super::sys::Pages;
use crate::guard::Failure;

/// Most buffers of one call, as in the kernel.
const BUFFERS_MAX: usize = 1024;

/// Buffers of a program and how far a call has come in them.
#[derive(Clone, Debug)]
pub(crate) struct Buffers<'a> {
    buffers: &'a [libc::iovec],
    /// Bytes of the first buffer that are done.
    offset: usize,
    rest: usize,
}

impl<'a> Buffers<'a> {
    /// Buffers in an array of a program.
    ///
    /// # Errors
    /// EINVAL for a negative or too large count or a sum that does not fit, EFAULT for a null
    /// pointer with a length.
    ///
    /// # Safety
    /// `buffers` has `count` elements, each with as many bytes as it says, through `'a`: readable
    /// ones for a call that sends, writable ones for a call that receives.
    pub(crate) unsafe fn new(buffers: *const libc::iovec, count: usize) -> Result<Self, Failure> {
        if count > BUFFERS_MAX {
            return Err(Failure::invalid(format!(
                "{count} buffers, {BUFFERS_MAX} at most"
            )));
        }
        if count == 0 || buffers.is_null() {
            return Ok(Self {
                buffers: &[],
                offset: 0,
                rest: 0,
            });
        }
        // SAFETY: the caller's contract.
        let buffers = unsafe { std::slice::from_raw_parts(buffers, count) };
        let mut rest = 0usize;
        for buffer in buffers {
            if buffer.iov_base.is_null() && buffer.iov_len > 0 {
                return Err(Failure::new(libc::EFAULT, "a buffer is a null pointer"));
            }
            rest = rest
                .checked_add(buffer.iov_len)
                .filter(|&sum| isize::try_from(sum).is_ok())
                .ok_or_else(|| Failure::invalid("the buffers' lengths do not add up"))?;
        }
        Ok(Self {
            buffers,
            offset: 0,
            rest,
        })
    }

    /// Bytes that are left.
    pub(crate) fn rest(&self) -> usize {
        self.rest
    }

    /// The next bytes that lie together, at most `limit`, which are done then.
    fn next(&mut self, limit: usize) -> Option<(*mut u8, usize)> {
        loop {
            let first = self.buffers.first()?;
            let length = (first.iov_len - self.offset).min(limit);
            if length > 0 {
                let start = first.iov_base.cast::<u8>().wrapping_add(self.offset);
                self.offset += length;
                self.rest -= length;
                return Some((start, length));
            }
            if limit == 0 {
                return None;
            }
            self.buffers = &self.buffers[1..];
            self.offset = 0;
        }
    }

    /// Copies the next `length` bytes of a program that sends, to where `place` says: it is called
    /// with the position and the bytes of each part.
    fn take(&mut self, length: usize, mut place: impl FnMut(usize, &[u8])) {
        let mut done = 0;
        while let Some((start, count)) = self.next(length - done) {
            // SAFETY: readable by the contract of `new`. The program may not change the bytes
            // during its call.
            place(done, unsafe { std::slice::from_raw_parts(start, count) });
            done += count;
        }
    }

    /// Copies the next bytes into `to`, which they fill.
    pub(crate) fn take_into(&mut self, to: &mut [u8]) {
        self.take(to.len(), |at, bytes| {
            to[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    /// Copies the next `length` bytes into pages.
    pub(crate) fn take_into_pages(&mut self, pages: &mut Pages, offset: usize, length: usize) {
        self.take(length, |at, bytes| pages.write(offset + at, bytes));
    }

    /// Copies `length` bytes of pages to a program that receives, or as many as there is room for.
    pub(crate) fn put_from_pages(&mut self, pages: &Pages, offset: usize, length: usize) -> usize {
        let mut done = 0;
        while let Some((start, count)) = self.next(length - done) {
            // SAFETY: writable by the contract of `new`, and nobody else's during the call.
            let to = unsafe { std::slice::from_raw_parts_mut(start, count) };
            pages.read(offset + done, to);
            done += count;
        }
        done
    }

    /// Copies bytes to a program that receives, or as many as there is room for.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while let Some((start, count)) = self.next(bytes.len() - done) {
            // SAFETY: as above.
            let to = unsafe { std::slice::from_raw_parts_mut(start, count) };
            to.copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        done
    }
}

/// The one buffer of a call that has one.
pub(crate) fn single(start: *const c_void, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: start.cast_mut(),
        iov_len: length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(parts: &mut [Vec<u8>]) -> Vec<libc::iovec> {
        let buffer = |part: &mut Vec<u8>| single(part.as_mut_ptr().cast(), part.len());
        parts.iter_mut().map(buffer).collect()
    }

    #[test]
    fn bytes_are_taken_across_buffers_and_empty_ones_are_passed_over() {
        let mut parts = [b"ab".to_vec(), vec![], b"cdef".to_vec()];
        let parts = buffers(&mut parts);
        // SAFETY: the parts live through the test.
        let mut buffers = unsafe { Buffers::new(parts.as_ptr(), parts.len()) }.unwrap();
        assert_eq!(buffers.rest(), 6);
        let mut three = [0; 3];
        buffers.take_into(&mut three);
        assert_eq!((&three, buffers.rest()), (b"abc", 3));
        let mut pages = Pages::new(10).unwrap();
        buffers.take_into_pages(&mut pages, 1, 3);
        assert_eq!(buffers.rest(), 0);
        let mut four = [0; 4];
        pages.read(0, &mut four);
        assert_eq!(&four, b"\0def");
    }

    #[test]
    fn bytes_are_put_as_far_as_there_is_room() {
        let mut parts = [vec![0; 1], vec![0; 3]];
        let raw = buffers(&mut parts);
        // SAFETY: as above.
        let mut buffers = unsafe { Buffers::new(raw.as_ptr(), raw.len()) }.unwrap();
        let mut pages = Pages::new(10).unwrap();
        pages.write(0, b"xy");
        assert_eq!(buffers.put_from_pages(&pages, 0, 2), 2);
        assert_eq!(buffers.put(b"0123"), 2);
        assert_eq!(parts, [b"x".to_vec(), b"y01".to_vec()]);
    }

    #[test]
    fn buffers_that_cannot_be_are_refused() {
        let refuse = |parts: &[libc::iovec]| {
            // SAFETY: refused before a look at the bytes.
            unsafe { Buffers::new(parts.as_ptr(), parts.len()) }
                .unwrap_err()
                .errno
        };
        assert_eq!(refuse(&[single(std::ptr::null(), 1)]), libc::EFAULT);
        let huge = single(std::ptr::dangling(), isize::MAX as usize);
        assert_eq!(refuse(&[huge, huge]), libc::EINVAL);
        assert_eq!(refuse(&vec![huge; 1025]), libc::EINVAL);
    }
}
