//! A ring of bytes as positions only: where the next bytes go and where the oldest lie. The bytes
//! themselves are registered memory, which is not here.

/// Bytes of a ring in order; those behind its end go on at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Where the first part begins.
    pub(crate) offset: u32,
    /// Its length.
    pub(crate) first: u32,
    /// Length of the second part, which begins at 0.
    pub(crate) second: u32,
}

impl Span {
    /// Bytes of both parts.
    pub(crate) fn len(&self) -> u32 {
        self.first + self.second
    }

    /// Both parts as ranges of the ring's memory; the second may be empty.
    pub(crate) fn ranges(&self) -> [std::ops::Range<usize>; 2] {
        let (offset, first) = (self.offset as usize, self.first as usize);
        [offset..offset + first, 0..self.second as usize]
    }
}

/// The positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    size: u32,
    oldest: u32,
    used: u32,
}

impl Ring {
    /// An empty ring of `size` bytes, at least 1.
    pub(crate) fn new(size: u32) -> Self {
        assert!(size > 0, "a ring without room");
        Self {
            size,
            oldest: 0,
            used: 0,
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Bytes not in use.
    pub(crate) fn free(&self) -> u32 {
        self.size - self.used
    }

    /// Takes `length` bytes behind the youngest; there must be as many.
    pub(crate) fn push(&mut self, length: u32) -> Span {
        assert!(length <= self.free(), "a ring is overrun");
        let offset = self.wrap(u64::from(self.oldest) + u64::from(self.used));
        self.used += length;
        self.span(offset, length)
    }

    /// The oldest bytes in use, `skip` of them left out, at most `limit`.
    pub(crate) fn peek(&self, skip: u32, limit: u32) -> Span {
        let skip = skip.min(self.used);
        let offset = self.wrap(u64::from(self.oldest) + u64::from(skip));
        self.span(offset, limit.min(self.used - skip))
    }

    /// Gives the oldest `length` bytes back; as many must be in use.
    pub(crate) fn pop(&mut self, length: u32) {
        assert!(length <= self.used, "a ring gives back what it has not");
        self.oldest = self.wrap(u64::from(self.oldest) + u64::from(length));
        self.used -= length;
    }

    fn wrap(&self, position: u64) -> u32 {
        // Lossless: a remainder of a 32-bit number.
        (position % u64::from(self.size)) as u32
    }

    fn span(&self, offset: u32, length: u32) -> Span {
        let first = length.min(self.size - offset);
        Span {
            offset,
            first,
            second: length - first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_go_on_at_the_start() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.push(7).ranges(), [0..7, 0..0]);
        ring.pop(5);
        assert_eq!(ring.push(6).ranges(), [7..10, 0..3]);
        assert_eq!((ring.used(), ring.free()), (8, 2));
        assert_eq!(ring.peek(0, 100).ranges(), [5..10, 0..3]);
        assert_eq!(ring.peek(6, 1).ranges(), [1..2, 0..0]);
        assert_eq!(ring.peek(9, 1).len(), 0);
        ring.pop(8);
        assert_eq!(ring.used(), 0);
    }

    #[test]
    #[should_panic(expected = "overrun")]
    fn a_ring_is_never_overrun() {
        Ring::new(4).push(5);
    }
}
