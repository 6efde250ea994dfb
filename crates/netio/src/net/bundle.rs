//! Bundles: several datagrams on their way to the private socket of a process of this host, as one.
//!
//! What the kernel cuts must be of one length, so that a batch ends wherever a message does. A
//! bundle has no such rule: behind [`HEAD`] come the datagrams, of any length, each behind
//! its own length ([`prefix`]). That is a detail of delivery inside one host, as the private port
//! is: the receiver sees the datagrams as if each had come alone, and captures show them so.
//!
//! Bundles are told from datagrams as marks are: see `mark`.

use std::ops::Range;

use feroce_mem::Fragment;

/// What a bundle begins with; no transport opcode in use starts with 0xff.
pub const HEAD: [u8; 8] = *b"\xffFeBndl\x01";

/// Length of [`prefix`], in bytes.
pub const PREFIX_BYTES: usize = 2;

/// Bytes of a bundle that the kernel keeps in pages, so that they cost what they are; a shorter
/// one is rounded up like any datagram.
const PAGED_BYTES: usize = 16_384;

/// What stands before a datagram of `length` bytes.
#[must_use]
pub const fn prefix(length: u16) -> [u8; PREFIX_BYTES] {
    length.to_le_bytes()
}

/// Whether a bundle of so many bytes costs a receive buffer no more than a batch does.
pub(super) const fn is_paged(bytes: usize) -> bool {
    bytes > PAGED_BYTES
}

/// Where the datagrams of a received bundle lie; `None` if it is none.
#[inline]
pub(super) fn parse(bytes: &[u8]) -> Option<Ranges<'_>> {
    bytes.starts_with(&HEAD).then_some(Ranges {
        bytes,
        at: HEAD.len(),
    })
}

/// Ends at the first datagram that is not whole.
#[derive(Clone, Debug)]
pub(super) struct Ranges<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Ranges<'_> {
    /// Whether it ended where the bundle does.
    pub(super) const fn is_complete(&self) -> bool {
        self.at == self.bytes.len()
    }
}

impl Iterator for Ranges<'_> {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        let length = self.bytes.get(self.at..)?.first_chunk::<PREFIX_BYTES>()?;
        let start = self.at + PREFIX_BYTES;
        let end = start + usize::from(u16::from_le_bytes(*length));
        if end > self.bytes.len() {
            return None;
        }
        self.at = end;
        Some(start..end)
    }
}

/// Hands out the fragments of each datagram of a bundle, without what stands before it.
pub(super) fn for_each_datagram<'f>(
    fragments: &[Fragment<'f>],
    lengths: &[u16],
    mut sink: impl FnMut(&[Fragment<'f>], usize),
) {
    let mut rest = fragments.iter().copied();
    let mut current = rest.next();
    let mut take = |mut count: usize, into: &mut Vec<Fragment<'f>>| {
        while count > 0
            && let Some(fragment) = current
        {
            let taken = count.min(fragment.len());
            into.extend(fragment.slice(0, taken));
            count -= taken;
            current = fragment
                .slice(taken, fragment.len() - taken)
                .filter(|left| !left.is_empty())
                .or_else(|| rest.next());
        }
    };
    let (mut skipped, mut datagram) = (Vec::new(), Vec::new());
    take(HEAD.len(), &mut skipped);
    for &length in lengths {
        skipped.clear();
        datagram.clear();
        take(PREFIX_BYTES, &mut skipped);
        take(length.into(), &mut datagram);
        sink(&datagram, length.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(datagrams: &[&[u8]]) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        for datagram in datagrams {
            bytes.extend(prefix(datagram.len() as u16));
            bytes.extend(*datagram);
        }
        bytes
    }

    #[test]
    fn what_is_put_in_comes_out() {
        let bytes = bundle(&[b"one", b"", b"three"]);
        let mut ranges = parse(&bytes).unwrap();
        let out: Vec<_> = ranges.by_ref().map(|range| &bytes[range]).collect();
        assert_eq!(out, [&b"one"[..], b"", b"three"]);
        assert!(ranges.is_complete());
    }

    #[test]
    fn what_is_not_whole_ends_it() {
        let whole = bundle(&[b"one", b"two"]);
        for end in HEAD.len() + 6..whole.len() {
            let mut ranges = parse(&whole[..end]).unwrap();
            assert_eq!(ranges.by_ref().count(), 1, "{end}");
            assert!(!ranges.is_complete());
        }
        assert!(parse(&HEAD[..7]).is_none());
        assert!(parse(b"\x04FeBndl\x01").is_none());
    }

    #[test]
    fn a_bundle_falls_apart_wherever_its_fragments_end() {
        let whole = bundle(&[b"one", b"four", b"five5"]);
        for cut in 0..whole.len() {
            let (left, right) = whole.split_at(cut);
            let fragments = [Fragment::from(left), Fragment::from(right)];
            let mut lengths = Vec::new();
            for_each_datagram(&fragments, &[3, 4, 5], |pieces, length| {
                assert_eq!(pieces.iter().map(Fragment::len).sum::<usize>(), length);
                lengths.push(length);
            });
            assert_eq!(lengths, [3, 4, 5], "{cut}");
        }
    }
}
