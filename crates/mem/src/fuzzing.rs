//! Memory for fuzz targets, which have no `unsafe` of their own. Only there with `--cfg fuzzing`.

use crate::{Grant, Memory};
use core::cell::Cell;
use core::ops::Range;

/// Bytes that live as long as the process, for one thread.
#[derive(Clone, Copy, Debug)]
pub struct Arena(&'static [Cell<u64>]);

impl Arena {
    /// Makes one, never to be freed, of `words` times eight bytes.
    pub fn leak(words: usize) -> Self {
        Self(vec![Cell::new(0); words].leak())
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.0.len() * 8
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// A part of it, or `None` if it is not all inside.
    pub fn memory(&self, offset: usize, len: usize) -> Option<Memory> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        let start = self.0.as_ptr().cast::<u8>().cast_mut().wrapping_add(offset);
        // SAFETY: the bytes are inside the arena (see above), which is never freed and may be
        // changed through a shared reference, as its words are cells. Neither it nor, in a fuzz
        // target, the table gets to another thread, and no reference to a word is ever handed out.
        Some(unsafe { Memory::from_raw(start, len) })
    }

    /// Where in it a grant lies, or `None` if not all of it does.
    pub fn place_of(&self, grant: &Grant<'_>) -> Option<Range<usize>> {
        let start = grant.address().checked_sub(self.0.as_ptr().addr())?;
        let end = start.checked_add(grant.len())?;
        (end <= self.len()).then_some(start..end)
    }

    /// What the bytes are now.
    pub fn bytes(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|word| word.get().to_ne_bytes())
            .collect()
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        self.0
            .iter()
            .for_each(|word| word.set(u64::from_ne_bytes([byte; 8])));
    }
}
