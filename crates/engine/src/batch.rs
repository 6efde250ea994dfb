//! Packets for one peer gathered for one `sendmsg`.
//!
//! Headers, trailers and small payloads are staged in an arena; large payloads stay in place and
//! are gathered by the kernel. On the way to another host a batch is packets of one flow, which
//! the kernel cuts (`UDP_SEGMENT`): all of one length, except that the last may be shorter. For a
//! process of this host it is a bundle ([`feroce_netio::bundle`]): packets of any flow and length.

use feroce_mem::{Fragment, FragmentList};
use feroce_netio::bundle;
use feroce_proto::Envelope;
use feroce_wire::icrc;

/// Payloads up to this many bytes are copied: cheaper than an iovec entry for each.
pub(crate) const STAGE_MAX: usize = 512;

/// The largest UDP datagram over IPv4, so the most one batch can hold.
const DATAGRAM_MAX: usize = 65_507;

/// Arena bytes: a full batch of staged packets. It never grows beyond.
const ARENA_BYTES: usize = DATAGRAM_MAX;

/// Packets of one bundle. More save nothing, and the receiver should get to answer.
const BUNDLE_PACKETS_MAX: usize = 128;

/// iovec entries of one `sendmsg` (the kernel's `UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

/// What may share a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// So many packets of one flow and length.
    Cut { segments_max: usize },
    /// Packets to one process of this host, so many bytes in all.
    Bundle { bytes_max: usize },
}

/// How the bytes of a finished batch are to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape<'a> {
    Cut { segment_len: usize, segments: usize },
    Bundle { lengths: &'a [u16] },
}

impl Shape<'_> {
    pub(crate) const fn packets(&self) -> usize {
        match self {
            Self::Cut { segments, .. } => *segments,
            Self::Bundle { lengths } => lengths.len(),
        }
    }
}

/// One part of the bytes of the batch, in order.
#[derive(Clone, Copy)]
enum Piece {
    /// Bytes of the arena, up to this end.
    StagedTo(usize),
    /// The next fragment of the in-place list.
    InPlace,
}

/// Storage of a batch, kept between rounds so that the steady state allocates nothing.
#[derive(Default)]
pub(crate) struct Storage {
    arena: Vec<u8>,
    pieces: Vec<Piece>,
    in_place: FragmentList<'static>,
    gathered: FragmentList<'static>,
    lengths: Vec<u16>,
}

/// The batch that is being put together.
pub(crate) struct Batch<'t> {
    arena: Vec<u8>,
    pieces: Vec<Piece>,
    in_place: FragmentList<'t>,
    gathered: FragmentList<'static>,
    to: Option<Envelope>,
    /// The UDP port it leaves from.
    source_port: u16,
    form: Form,
    segment_len: usize,
    segments: usize,
    /// Bytes of all finished packets.
    bytes: usize,
    /// Length of each finished packet of a bundle.
    lengths: Vec<u16>,
    /// The sum over the pseudo header of packets of one length in a bundle.
    seed: Option<(usize, icrc::Seed)>,
    /// A shorter packet was added: nothing may follow.
    closed: bool,
}

/// A state of the batch to return to when a packet turns out to be impossible.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    arena: usize,
    pieces: usize,
    in_place: usize,
}

impl<'t> Batch<'t> {
    pub(crate) fn new(storage: &mut Storage) -> Self {
        let Storage {
            mut arena,
            pieces,
            in_place,
            gathered,
            lengths,
        } = std::mem::take(storage);
        arena.reserve(ARENA_BYTES);
        Self {
            arena,
            pieces,
            in_place: in_place.cleared(),
            gathered,
            to: None,
            source_port: 0,
            form: Form::Cut { segments_max: 0 },
            segment_len: 0,
            segments: 0,
            bytes: 0,
            lengths,
            seed: None,
            closed: false,
        }
    }

    /// Gives the storage back. Packets that were not sent are forgotten.
    pub(crate) fn into_storage(mut self) -> Storage {
        self.clear();
        Storage {
            arena: self.arena,
            pieces: self.pieces,
            in_place: self.in_place.cleared(),
            gathered: self.gathered,
            lengths: self.lengths,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// The UDP port the batch leaves from.
    pub(crate) const fn source_port(&self) -> u16 {
        self.source_port
    }

    /// IPv4 identification of the next packet: of those that the kernel cuts, the index.
    pub(crate) fn next_id(&self) -> u16 {
        match self.form {
            // A batch has at most 64 packets.
            Form::Cut { .. } => u16::try_from(self.segments).unwrap_or(u16::MAX),
            Form::Bundle { .. } => 0,
        }
    }

    /// The sum over the pseudo header of the next packet, `make`d where it is a new one.
    pub(crate) fn seed(
        &mut self,
        len: usize,
        make: impl FnOnce(&Self) -> icrc::Seed,
    ) -> icrc::Seed {
        if let Some((seed_len, seed)) = &self.seed
            && *seed_len == len
        {
            return seed.clone();
        }
        let seed = make(self);
        if matches!(self.form, Form::Bundle { .. }) {
            self.seed = Some((len, seed.clone()));
        }
        seed
    }

    /// Whether a packet of `len` bytes and up to `pieces` pieces to `to` may join.
    #[inline]
    pub(crate) fn accepts(&self, to: &Envelope, len: usize, pieces: usize) -> bool {
        let Some(now) = &self.to else {
            return false;
        };
        if self.pieces.len() + pieces > PIECES_MAX {
            return false;
        }
        match self.form {
            Form::Cut { segments_max } => {
                !self.closed
                    && self.segments < segments_max
                    && len <= self.segment_len
                    && self.bytes + len <= DATAGRAM_MAX
                    && same_flow(now, to)
            }
            Form::Bundle { bytes_max } => {
                self.segments < BUNDLE_PACKETS_MAX
                    && bundle::HEAD.len() + self.bytes + bundle::PREFIX_BYTES + len <= bytes_max
                    && same_way(now, to)
            }
        }
    }

    /// Starts an empty batch with packets of `len` bytes.
    pub(crate) fn begin(&mut self, to: &Envelope, len: usize, form: Form, source_port: u16) {
        debug_assert!(self.is_empty());
        self.clear();
        self.to = Some(*to);
        self.form = form;
        self.source_port = source_port;
        self.segment_len = len;
        if matches!(form, Form::Bundle { .. }) {
            self.stage(&bundle::HEAD);
        }
    }

    /// Starts a packet of `len` bytes; what is staged from here on is the packet.
    pub(crate) fn begin_packet(&mut self, len: usize) {
        if matches!(self.form, Form::Bundle { .. }) {
            // At most DATAGRAM_MAX.
            self.stage(&bundle::prefix(u16::try_from(len).unwrap_or(u16::MAX)));
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            arena: self.arena.len(),
            pieces: self.pieces.len(),
            in_place: self.in_place.len(),
        }
    }

    /// Takes back everything since `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.arena.truncate(mark.arena);
        self.pieces.truncate(mark.pieces);
        self.in_place.truncate(mark.in_place);
        // The last staged piece may have been stretched.
        if let Some(Piece::StagedTo(end)) = self.pieces.last_mut() {
            *end = mark.arena;
        }
    }

    /// Copies bytes into the batch.
    #[inline]
    pub(crate) fn stage(&mut self, bytes: &[u8]) {
        self.arena.extend_from_slice(bytes);
        self.staged();
    }

    /// Lets `fill` append bytes to the batch and returns them.
    #[inline]
    pub(crate) fn stage_with<E>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<&[u8], E> {
        let start = self.arena.len();
        fill(&mut self.arena)?;
        self.staged();
        Ok(&self.arena[start..])
    }

    /// The bytes staged since `mark`: the whole packet when nothing of it is in place.
    pub(crate) fn staged_since(&self, mark: Mark) -> &[u8] {
        &self.arena[mark.arena..]
    }

    #[inline]
    fn staged(&mut self) {
        let end = self.arena.len();
        match self.pieces.last_mut() {
            Some(Piece::StagedTo(last)) => *last = end,
            _ => self.pieces.push(Piece::StagedTo(end)),
        }
    }

    /// Adds bytes that stay where they are.
    #[inline]
    pub(crate) fn in_place(&mut self, fragment: Fragment<'t>) {
        self.in_place.push(fragment);
        self.pieces.push(Piece::InPlace);
    }

    /// Ends a packet of `len` bytes.
    pub(crate) fn finish_packet(&mut self, len: usize) {
        self.segments += 1;
        self.bytes += len;
        match self.form {
            Form::Cut { .. } => {
                debug_assert!(len <= self.segment_len);
                self.closed = len < self.segment_len;
            }
            Form::Bundle { .. } => {
                self.bytes += bundle::PREFIX_BYTES;
                self.lengths.push(u16::try_from(len).unwrap_or(u16::MAX));
            }
        }
    }

    /// Hands the batch to `send` and empties it.
    pub(crate) fn flush<R>(
        &mut self,
        send: impl FnOnce(&Envelope, &[Fragment<'_>], Shape<'_>) -> R,
    ) -> Option<R> {
        let to = self.to.filter(|_| self.segments > 0)?;
        let mut list = std::mem::take(&mut self.gathered).cleared();
        let mut start = 0;
        let mut in_place = self.in_place.as_slice().iter();
        for piece in &self.pieces {
            match *piece {
                Piece::StagedTo(end) => {
                    list.push(Fragment::from(&self.arena[start..end]));
                    start = end;
                }
                Piece::InPlace => list.push(*in_place.next().expect("one for each piece")),
            }
        }
        let shape = match self.form {
            Form::Cut { .. } => Shape::Cut {
                segment_len: self.segment_len,
                segments: self.segments,
            },
            Form::Bundle { .. } => Shape::Bundle {
                lengths: &self.lengths,
            },
        };
        let result = send(&to, list.as_slice(), shape);
        self.gathered = list.cleared();
        self.clear();
        Some(result)
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.pieces.clear();
        self.in_place.truncate(0);
        self.lengths.clear();
        self.to = None;
        self.seed = None;
        self.segments = 0;
        self.bytes = 0;
        self.closed = false;
    }
}

/// Whether the kernel may cut two packets from one batch.
fn same_flow(a: &Envelope, b: &Envelope) -> bool {
    same_way(a, b) && a.entropy == b.entropy && a.flow_label == b.flow_label
}

/// Whether two packets go to one process with the same header fields. Inside one host there is
/// only one path: nothing depends on what picks one.
fn same_way(a: &Envelope, b: &Envelope) -> bool {
    a.destination == b.destination
        && a.source == b.source
        && a.traffic_class == b.traffic_class
        && a.hop_limit == b.hop_limit
        && crate::slot_of(a.dest_qp) == crate::slot_of(b.dest_qp)
}
