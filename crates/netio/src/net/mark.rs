//! The datagrams by which two processes of one host keep each other's sockets from overflowing.
//!
//! A *mark* travels behind what it marks, from private socket to private socket, and comes back
//! as an *answer*; [`room`](super::room) says what for. Neither ever reaches the layers above. They
//! are told from what those send by their first byte, which is no opcode of RoCE's in use, by the
//! rest of the magic number, and by their length; and they are taken only from where they can come
//! from: a private socket of this host.

/// No transport opcode in use starts with 0xff.
const MAGIC: [u8; 8] = *b"\xffFeMark\x01";

const KIND_MARK: u8 = 0;
const KIND_ANSWER: u8 = 1;

/// A mark, or the answer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Answer this when everything before it is out of your socket.
    Mark(Mark),
    /// That mark was reached; from now on you may have so much under way.
    Answer(Mark, u64),
}

/// What a mark says; its answer repeats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The slot it was sent to.
    pub(super) slot: u16,
    /// Cost of everything the sender ever sent there, up to here.
    pub(super) position: u64,
}

impl Control {
    pub(super) const BYTES: usize = 32;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let (kind, mark, allowance) = match *self {
            Self::Mark(mark) => (KIND_MARK, mark, 0),
            Self::Answer(mark, allowance) => (KIND_ANSWER, mark, allowance),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = kind;
        bytes[10..12].copy_from_slice(&mark.slot.to_le_bytes());
        bytes[16..24].copy_from_slice(&mark.position.to_le_bytes());
        bytes[24..].copy_from_slice(&allowance.to_le_bytes());
        bytes
    }

    /// `None`: this is for the layers above.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        if *magic != MAGIC {
            return None;
        }
        let (&[kind, _, slot_low, slot_high, ..], rest) = rest.split_first_chunk::<8>()?;
        let (position, rest) = rest.split_first_chunk()?;
        let mark = Mark {
            slot: u16::from_le_bytes([slot_low, slot_high]),
            position: u64::from_le_bytes(*position),
        };
        match kind {
            KIND_MARK => Some(Self::Mark(mark)),
            KIND_ANSWER => {
                let allowance = u64::from_le_bytes(*rest.first_chunk()?);
                Some(Self::Answer(mark, allowance))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        slot: 0x0102,
        position: 0x0304_0506_0708_090a,
    };

    #[test]
    fn what_is_written_is_read_and_nothing_else_is() {
        for control in [Control::Mark(MARK), Control::Answer(MARK, 0x0b0c_0d0e_0f10)] {
            let bytes = control.encode();
            assert_eq!(Control::parse(&bytes), Some(control));
            assert_eq!(Control::parse(&bytes[..31]), None);
            assert_eq!(Control::parse(&[&bytes[..], &[0]].concat()), None);
            for at in 0..9 {
                let mut other = bytes;
                other[at] ^= 0x80;
                assert_eq!(Control::parse(&other), None, "byte {at}");
            }
        }
        assert_eq!(Control::parse(&[]), None);
    }
}
