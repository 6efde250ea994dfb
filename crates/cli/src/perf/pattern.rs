//! The bytes of a test: where a message lies in a buffer and what it must contain.
//!
//! A message ends with its number, and everything before follows from the seed, so that the
//! receiver alone can tell a missing, old, torn or misplaced message. The bytes around messages
//! are [`BLANK`] at the receiver and must stay so.

use anyhow::{Result, bail};
use feroce_verbs::{Access, Buffer, ProtectionDomain, Remote, Sge};
use std::fmt;

/// What a receiving buffer holds before a run, and between messages after it.
const BLANK: u8 = 0xa5;

/// Bytes that a message number takes at the end of a message, if there is room.
const NUMBER_LEN: usize = 8;

/// Distance of slots is a multiple of this many bytes: a cache line.
const STRIDE_ALIGN: usize = 64;

/// Bytes in one registered buffer at most; more slots take more buffers. The longest buffer
/// that a protection domain allocates.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// The longest message, in bytes: it must fit one buffer.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 20;

/// Where messages of one size lie. Both ends compute the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a message.
    size: usize,
    /// Bytes before the message in its slot. Messages end, and are looked at, at a multiple of 4.
    lead: usize,
    /// Bytes from slot to slot.
    stride: usize,
}

impl Layout {
    /// For messages of `size` bytes, 1..=[`MESSAGE_BYTES_MAX`].
    pub(super) const fn new(size: u32) -> Self {
        let size = size as usize;
        let end = if size < NUMBER_LEN {
            NUMBER_LEN
        } else {
            size.next_multiple_of(4)
        };
        Self {
            size,
            lead: end - size,
            stride: end.next_multiple_of(STRIDE_ALIGN),
        }
    }

    /// Bytes of a message.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Bytes from slot to slot.
    pub(super) const fn stride(&self) -> usize {
        self.stride
    }

    const fn end(&self) -> usize {
        self.lead + self.size
    }

    const fn slots_per_buffer(&self) -> usize {
        let slots = BUFFER_BYTES_MAX / self.stride;
        if slots == 0 { 1 } else { slots }
    }

    /// Index of the buffer, and bytes from its start, of a slot.
    const fn place(&self, slot: usize) -> (usize, usize) {
        let per_buffer = self.slots_per_buffer();
        (slot / per_buffer, slot % per_buffer * self.stride)
    }

    /// The message of a slot in the memory of the peer that gave `rkeys`; nothing if the peer
    /// has no such slot.
    pub(super) fn remote(&self, rkeys: &[u32], slot: usize) -> Option<Remote> {
        let (buffer, offset) = self.place(slot);
        let rkey = *rkeys.get(buffer)?;
        Some(Remote {
            address: (offset + self.lead) as u64,
            rkey,
        })
    }
}

/// Which bytes a message consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Seed of the run and direction.
    pub(super) seed: u64,
    /// Queue pair, from 0.
    pub(super) lane: usize,
    /// Slot that the message was sent from.
    pub(super) source_slot: usize,
    /// Number of the message.
    pub(super) number: u64,
}

impl Content {
    /// Writes the bytes of the message.
    fn fill(&self, message: &mut [u8]) {
        let mut state = self.seed ^ (self.lane as u64) << 48 ^ (self.source_slot as u64) << 32;
        for chunk in message.chunks_mut(8) {
            let word = next_random(&mut state).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        let number = self.number.to_be_bytes();
        let len = message.len();
        let taken = len.min(NUMBER_LEN);
        message[len - taken..].copy_from_slice(&number[NUMBER_LEN - taken..]);
    }
}

/// SplitMix64: all its numbers follow from the state, 64 bits each.
const fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Registered memory cut into slots, one message each.
#[derive(Debug)]
pub(super) struct Slots {
    layout: Layout,
    buffers: Vec<Buffer>,
    count: usize,
}

impl Slots {
    /// `count` blank slots that peers may read, write and do atomics on.
    pub(super) fn new(pd: &ProtectionDomain, layout: Layout, count: usize) -> Result<Self> {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let per_buffer = layout.slots_per_buffer();
        let mut buffers = Vec::new();
        let mut left = count;
        while left > 0 {
            let slots = left.min(per_buffer);
            buffers.push(pd.alloc_buffer(slots * layout.stride, access)?);
            left -= slots;
        }
        let slots = Self {
            layout,
            buffers,
            count,
        };
        let blank = vec![BLANK; layout.stride];
        for slot in 0..count {
            slots.write(slot, 0, &blank)?;
        }
        Ok(slots)
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Keys for the peer, one for each buffer.
    pub(super) fn rkeys(&self) -> Vec<u32> {
        self.buffers.iter().map(Buffer::rkey).collect()
    }

    /// The message of a slot as a local entry of a work request.
    pub(super) fn sge(&self, slot: usize) -> Sge {
        let (buffer, offset) = self.layout.place(slot);
        let length = u32::try_from(self.layout.size).unwrap_or(u32::MAX);
        self.buffers[buffer].sge((offset + self.layout.lead) as u64, length)
    }

    /// Fills every slot with its message; the number of each is that of the slot.
    pub(super) fn fill(&self, seed: u64, lane: usize) -> Result<()> {
        let mut bytes = vec![BLANK; self.layout.stride];
        let Layout { lead, .. } = self.layout;
        for slot in 0..self.count {
            let content = Content {
                seed,
                lane,
                source_slot: slot,
                number: slot as u64,
            };
            content.fill(&mut bytes[lead..self.layout.end()]);
            self.write(slot, 0, &bytes)?;
        }
        Ok(())
    }

    /// Puts a number at the end of the message in a slot.
    pub(super) fn put_number(&self, slot: usize, number: u64) -> Result<()> {
        self.write(slot, self.layout.end() - NUMBER_LEN, &number.to_be_bytes())
    }

    /// Makes the number of a message unreadable, so that only a new message brings one.
    pub(super) fn blank_number(&self, slot: usize) -> Result<()> {
        self.write(slot, self.layout.end() - NUMBER_LEN, &[BLANK; NUMBER_LEN])
    }

    /// Whether the message in a slot has a number, as far as the message has room for one.
    pub(super) fn has_number(&self, slot: usize, number: u64) -> Result<bool> {
        let mut found = [0; NUMBER_LEN];
        self.read(slot, self.layout.end() - NUMBER_LEN, &mut found)?;
        let from = NUMBER_LEN - self.layout.size.min(NUMBER_LEN);
        Ok(found[from..] == number.to_be_bytes()[from..])
    }

    /// Eight bytes of a slot as a number of this machine: an atomic's operand or result.
    pub(super) fn word(&self, slot: usize) -> Result<u64> {
        let mut word = [0; 8];
        self.read(slot, 0, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Sets what [`word`](Self::word) gives.
    pub(super) fn set_word(&self, slot: usize, word: u64) -> Result<()> {
        self.write(slot, 0, &word.to_ne_bytes())
    }

    /// Compares every byte of every slot with what `expected` says of it; `None`: untouched.
    ///
    /// # Errors
    /// [`Wrong`] names the first wrong byte.
    pub(super) fn verify(&self, expected: impl Fn(usize) -> Option<Content>) -> Result<()> {
        let Layout { lead, stride, .. } = self.layout;
        let mut wanted = vec![BLANK; stride];
        let mut found = vec![0; stride];
        for slot in 0..self.count {
            let message = &mut wanted[lead..self.layout.end()];
            let content = expected(slot);
            match content {
                Some(content) => content.fill(message),
                None => message.fill(BLANK),
            }
            self.read(slot, 0, &mut found)?;
            if let Some(at) = (0..stride).find(|&at| found[at] != wanted[at]) {
                bail!(Wrong(
                    self.describe(slot, at, wanted[at], found[at], content)
                ));
            }
        }
        Ok(())
    }

    fn describe(
        &self,
        slot: usize,
        at: usize,
        wanted: u8,
        found: u8,
        content: Option<Content>,
    ) -> String {
        let Layout { lead, size, .. } = self.layout;
        let place = match content {
            Some(Content { number, lane, .. }) if (lead..lead + size).contains(&at) => {
                format!(
                    "byte {} of message {number} of queue pair {lane}",
                    at - lead
                )
            }
            Some(_) => format!("a byte {} after the start of a message, outside of it,", at),
            None => format!("byte {at} of an untouched message"),
        };
        format!("{place} in slot {slot} is {found:#04x} instead of {wanted:#04x}")
    }

    fn read(&self, slot: usize, at: usize, into: &mut [u8]) -> Result<()> {
        let (buffer, offset) = self.layout.place(slot);
        Ok(self.buffers[buffer].read(offset + at, into)?)
    }

    fn write(&self, slot: usize, at: usize, from: &[u8]) -> Result<()> {
        let (buffer, offset) = self.layout.place(slot);
        Ok(self.buffers[buffer].write(offset + at, from)?)
    }
}

/// Data is not what it should be.
#[derive(Debug)]
pub(super) struct Wrong(pub(super) String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// What a verdict on data means for a run: the problem, or none. Any other error ends the run.
pub(super) fn problem_of(verdict: Result<()>) -> Result<Option<String>> {
    match verdict {
        Ok(()) => Ok(None),
        Err(error) if error.is::<Wrong>() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// The last of `messages` messages, numbered from 0, that went to `slot` of `slots` by turns.
pub(super) fn last_in_slot(messages: u64, slot: usize, slots: usize) -> Option<u64> {
    let (slot, slots) = (slot as u64, slots as u64);
    let after_first = messages.checked_sub(slot + 1)?;
    Some(after_first / slots * slots + slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_at_a_multiple_of_four_and_leave_room_for_a_number() {
        for size in [
            1,
            2,
            3,
            4,
            7,
            8,
            9,
            63,
            64,
            65,
            4096,
            65_537,
            MESSAGE_BYTES_MAX,
        ] {
            let layout = Layout::new(size);
            assert_eq!(layout.end() % 4, 0, "{size}");
            assert!(layout.end() >= NUMBER_LEN, "{size}");
            assert!(layout.stride >= layout.end(), "{size}");
            assert_eq!(layout.end() - layout.lead, size as usize);
            let (buffer, offset) = layout.place(1000);
            assert_eq!(
                buffer * layout.slots_per_buffer() + offset / layout.stride,
                1000
            );
        }
    }

    #[test]
    fn a_slot_that_the_peer_has_not_exposed_has_no_remote_address() {
        let layout = Layout::new(MESSAGE_BYTES_MAX);
        assert_eq!(
            layout.remote(&[7], 0),
            Some(Remote {
                address: 0,
                rkey: 7
            })
        );
        assert_eq!(layout.remote(&[7], 1), None);
        assert_eq!(
            Layout::new(1).remote(&[7], 1),
            Some(Remote {
                address: 64 + 7,
                rkey: 7
            })
        );
    }

    #[test]
    fn contents_differ_by_seed_lane_slot_and_number() {
        let one = Content {
            seed: 1,
            lane: 0,
            source_slot: 0,
            number: 0,
        };
        let bytes = |content: Content| {
            let mut message = [0; 32];
            content.fill(&mut message);
            message
        };
        let others = [
            Content { seed: 2, ..one },
            Content { lane: 1, ..one },
            Content {
                source_slot: 1,
                ..one
            },
            Content { number: 1, ..one },
        ];
        for other in others {
            assert_ne!(bytes(one), bytes(other), "{other:?}");
        }
        assert_eq!(bytes(one), bytes(one));
    }

    #[test]
    fn short_messages_end_with_the_low_bytes_of_their_number() {
        let content = Content {
            seed: 1,
            lane: 0,
            source_slot: 0,
            number: 0x0102_0304,
        };
        let mut message = [0; 2];
        content.fill(&mut message);
        assert_eq!(message, [3, 4]);
    }

    #[test]
    fn slots_are_taken_by_turns() {
        assert_eq!(last_in_slot(0, 0, 4), None);
        assert_eq!(last_in_slot(3, 3, 4), None);
        assert_eq!(last_in_slot(4, 3, 4), Some(3));
        assert_eq!(last_in_slot(4, 0, 4), Some(0));
        assert_eq!(last_in_slot(5, 0, 4), Some(4));
        assert_eq!(last_in_slot(1001, 1, 4), Some(997));
    }
}
