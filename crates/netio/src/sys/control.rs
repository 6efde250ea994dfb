//! Control messages as bytes, in the layout of the kernel's `struct cmsghdr`.
//!
//! Written and read as plain bytes, so nothing here is unsafe: a length that does not fit ends
//! the walk instead of being followed.

/// `size_t` length, `int` level, `int` type.
const HEADER: usize = size_of::<usize>() + 8;

/// Bytes one control message with `payload` bytes takes, padding included.
const fn space(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(size_of::<usize>())
}

/// Control messages of one outgoing or incoming message.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> Control<N> {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; N],
            used: 0,
        }
    }

    /// Appends one message.
    ///
    /// # Panics
    /// If it does not fit: `N` is chosen for what we send.
    pub(super) fn push(&mut self, level: i32, kind: i32, payload: &[u8]) {
        let room = &mut self.bytes[self.used..self.used + space(payload.len())];
        room.fill(0);
        let length = HEADER + payload.len();
        room[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
        room[HEADER - 8..HEADER - 4].copy_from_slice(&level.to_ne_bytes());
        room[HEADER - 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER..length].copy_from_slice(payload);
        self.used += space(payload.len());
    }

    /// What was pushed.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// Walks the control messages in `bytes` as `(level, kind, payload)`.
pub(super) fn walk(mut bytes: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<HEADER>()?;
        let length = usize::from_ne_bytes(*header.first_chunk()?);
        let payload = bytes.get(HEADER..length)?;
        let level = i32::from_ne_bytes(*header[HEADER - 8..].first_chunk()?);
        let kind = i32::from_ne_bytes(*header[HEADER - 4..].first_chunk()?);
        bytes = bytes.get(space(payload.len())..).unwrap_or_default();
        Some((level, kind, payload))
    })
}

/// The `int` at the start of a payload.
pub(super) fn int(payload: &[u8]) -> Option<i32> {
    payload
        .first_chunk()
        .map(|bytes| i32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The same layout as libc's macros, or the kernel would read something else.
    const _: () = assert!(space(1) == 24 && space(4) == 24 && space(12) == 32);
    const _: () = assert!(HEADER == size_of::<libc::cmsghdr>());

    #[test]
    fn what_is_pushed_is_walked() {
        let mut control = Control::<96>::new();
        control.push(1, 2, &7i32.to_ne_bytes());
        control.push(3, 4, &[9]);
        control.push(5, 6, &[1; 12]);
        let seen: Vec<_> = walk(control.as_bytes()).collect();
        assert_eq!(
            seen,
            [
                (1, 2, &7i32.to_ne_bytes()[..]),
                (3, 4, &[9][..]),
                (5, 6, &[1; 12][..])
            ]
        );
        assert_eq!(int(seen[0].2), Some(7));
        assert_eq!(int(seen[1].2), None);
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_walk() {
        let mut control = Control::<24>::new();
        control.push(1, 2, &[0; 8]);
        let mut bytes = control.as_bytes().to_vec();
        for length in [0usize, 15, 25, usize::MAX] {
            bytes[..8].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(walk(&bytes).count(), 0, "length {length}");
        }
        assert_eq!(walk(&control.as_bytes()[..20]).count(), 0);
    }
}
