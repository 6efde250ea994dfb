//! Packets of one flow gathered for one `sendmsg` with `UDP_SEGMENT`.
//!
//! Headers, trailers and small payloads are staged in an arena; large payloads stay in place and
//! are gathered by the kernel. All packets of a batch have one length, except that the last may be
//! shorter.

use feroce_mem::{Fragment, FragmentList};
use feroce_proto::Envelope;

/// Payloads up to this many bytes are copied: cheaper than an iovec entry for each.
pub(crate) const STAGE_MAX: usize = 512;

/// The largest UDP datagram over IPv4, so the most one batch can hold.
const DATAGRAM_MAX: usize = 65_507;

/// Arena bytes: a full batch of staged packets. It never grows beyond.
const ARENA_BYTES: usize = DATAGRAM_MAX;

/// iovec entries of one `sendmsg` (the kernel's `UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

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
}

/// The batch that is being put together.
pub(crate) struct Batch<'t> {
    arena: Vec<u8>,
    pieces: Vec<Piece>,
    in_place: FragmentList<'t>,
    gathered: FragmentList<'static>,
    to: Option<Envelope>,
    segment_len: usize,
    segments: usize,
    segments_max: usize,
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
        } = std::mem::take(storage);
        arena.reserve(ARENA_BYTES);
        Self {
            arena,
            pieces,
            in_place: in_place.cleared(),
            gathered,
            to: None,
            segment_len: 0,
            segments: 0,
            segments_max: 0,
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
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Index of the next packet, which the kernel makes its IPv4 identification.
    pub(crate) const fn next_index(&self) -> usize {
        self.segments
    }

    /// Whether a packet of `len` bytes and up to `pieces` pieces to `to` may join.
    pub(crate) fn accepts(&self, to: &Envelope, len: usize, pieces: usize) -> bool {
        !self.closed
            && self.segments < self.segments_max
            && len <= self.segment_len
            && self.segments * self.segment_len + len <= DATAGRAM_MAX
            && self.pieces.len() + pieces <= PIECES_MAX
            && self.to.as_ref().is_some_and(|now| same_flow(now, to))
    }

    /// Starts an empty batch with packets of `len` bytes.
    pub(crate) fn begin(&mut self, to: &Envelope, len: usize, segments_max: usize) {
        debug_assert!(self.is_empty());
        self.to = Some(*to);
        self.segment_len = len;
        self.segments_max = segments_max;
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
        debug_assert!(len <= self.segment_len);
        self.closed = len < self.segment_len;
        self.segments += 1;
    }

    /// Hands the batch to `send` (target, bytes, segment length, segments) and empties it.
    pub(crate) fn flush<R>(
        &mut self,
        send: impl FnOnce(&Envelope, &[Fragment<'_>], usize, usize) -> R,
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
        let result = send(&to, list.as_slice(), self.segment_len, self.segments);
        self.gathered = list.cleared();
        self.clear();
        Some(result)
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.pieces.clear();
        self.in_place.truncate(0);
        self.to = None;
        self.segments = 0;
        self.closed = false;
    }
}

/// Whether two packets may leave in one batch.
fn same_flow(a: &Envelope, b: &Envelope) -> bool {
    a.destination == b.destination
        && a.source == b.source
        && a.entropy == b.entropy
        && a.traffic_class == b.traffic_class
        && a.hop_limit == b.hop_limit
        && a.flow_label == b.flow_label
        && crate::slot_of(a.dest_qp) == crate::slot_of(b.dest_qp)
}
