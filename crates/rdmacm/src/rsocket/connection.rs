//! One connected stream: the queue pair, its memory, and the [`Stream`] that says what to post.
//!
//! Nothing here waits or locks; that is [`socket`](super::socket)'s.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use super::gather::Buffers;
use super::options::Options;
use super::stream::{
    Buffer, CONTROL_RECEIVES, ControlWrite, Ending, Sizes, Stream, Tables, Work, Write,
};
use super::verbs::{self, Completions, Id, Region};
use super::wire::{ConnectionData, IoMap, Segment, TARGETS};
use crate::guard::Failure;

/// Most bytes that are sent inline; larger settings are cut to this.
pub(crate) const INLINE_MAX: u32 = 512;

/// Receives that are posted in one chain.
const RECEIVE_CHAIN: usize = 64;

/// Our end of a stream.
#[derive(Debug)]
pub(crate) struct Connection {
    /// What may be sent where, and what has arrived.
    pub(crate) stream: Stream,
    completions: Completions,
    send: Region,
    receive: Region,
    table: Region,
    qp: *mut abi::ibv_qp,
    /// Receives that completed and were not posted again.
    spent: usize,
}

// SAFETY: the queue pair may be used by any thread; it is there as long as the identifier that
// the owner keeps beside this and drops later.
unsafe impl Send for Connection {}

impl Connection {
    /// A queue pair for `id`, which has its device, with receives posted.
    pub(crate) fn new(id: &mut Id, options: &Options) -> Result<Self, Failure> {
        let sizes = options.stream_sizes();
        let receives = sizes.receive_queue + CONTROL_RECEIVES;
        let entries = c_int::from(sizes.send_queue) + c_int::from(receives);
        let completions = Completions::new(id.context()?, entries)?;
        let mut attr = abi::ibv_qp_init_attr {
            send_cq: completions.as_ptr(),
            recv_cq: completions.as_ptr(),
            qp_type: abi::IBV_QPT_RC,
            sq_sig_all: 1,
            cap: abi::ibv_qp_cap {
                max_send_wr: sizes.send_queue.into(),
                max_recv_wr: receives.into(),
                max_send_sge: 2,
                max_recv_sge: 1,
                // Table entries always go inline.
                max_inline_data: sizes.inline.max(IoMap::LEN as u32),
            },
            ..Default::default()
        };
        id.create_qp(&mut attr)?;
        let connection = Self::with_memory(id, sizes, completions);
        let mut connection = connection.inspect_err(|_| id.destroy_qp())?;
        let posted = connection.post_receives(receives.into());
        posted.inspect_err(|_| id.destroy_qp())?;
        Ok(connection)
    }

    fn with_memory(id: &Id, sizes: Sizes, completions: Completions) -> Result<Self, Failure> {
        const WRITABLE: c_int =
            (abi::IBV_ACCESS_LOCAL_WRITE | abi::IBV_ACCESS_REMOTE_WRITE) as c_int;
        let table = TARGETS * Segment::LEN + usize::from(sizes.io_maps) * IoMap::LEN;
        Ok(Self {
            stream: Stream::new(sizes),
            completions,
            send: Region::new(id.pd(), sizes.send_buffer as usize, 0)?,
            receive: Region::new(id.pd(), sizes.receive_buffer as usize, WRITABLE)?,
            table: Region::new(id.pd(), table, WRITABLE)?,
            qp: id.qp(),
            spent: 0,
        })
    }

    /// What the peer must know.
    pub(crate) fn data(&self) -> ConnectionData {
        let table = Segment {
            address: self.table.address(),
            key: self.table.registration().remote_key(),
            length: 0,
        };
        self.stream.connection_data(table, self.buffer())
    }

    /// The connection stands: tells the peer of the rest of our buffer.
    pub(crate) fn connected(&mut self, data: &ConnectionData) {
        self.stream.handle_connected(data);
        self.control();
    }

    /// The descriptor that becomes readable with a completion after [`Connection::arm`].
    pub(crate) fn fd(&self) -> c_int {
        self.completions.fd()
    }

    /// Wants to hear of the next completion.
    pub(crate) fn arm(&self) {
        self.completions.arm();
    }

    /// Takes notice of what the descriptor said.
    pub(crate) fn clear_events(&self) {
        self.completions.clear_events();
    }

    /// Looks at what has completed and posts what is due. Whether there was anything.
    pub(crate) fn progress(&mut self) -> bool {
        let mut any = false;
        loop {
            let taken = self.completions.poll();
            for completion in taken.entries() {
                self.complete(completion);
            }
            any |= !taken.entries().is_empty();
            if !taken.is_full() {
                break;
            }
        }
        if any {
            if self.stream.ending().is_none() {
                let posted = self.post_receives(self.spent);
                self.spent = 0;
                self.note(posted);
            }
            self.control();
        }
        any
    }

    fn complete(&mut self, completion: &abi::ibv_wc) {
        let work = Work::from_id(completion.wr_id);
        if completion.status != abi::IBV_WC_SUCCESS {
            self.stream.handle_sent(work);
            let ending = match completion.status {
                // The queue pair was taken down: the connection has ended.
                abi::IBV_WC_WR_FLUSH_ERR => Ending::Closed,
                abi::IBV_WC_RETRY_EXC_ERR | abi::IBV_WC_RNR_RETRY_EXC_ERR => Ending::Silence,
                _ => Ending::Failure,
            };
            if ending != Ending::Closed && self.stream.ending().is_none() {
                log::debug!(
                    "rsocket: a request failed with status {}",
                    completion.status
                );
            }
            return self.stream.handle_end(ending);
        }
        if work != Work::Receive {
            return self.stream.handle_sent(work);
        }
        self.spent += 1;
        let has_immediate = completion.wc_flags & abi::IBV_WC_WITH_IMM != 0;
        if has_immediate {
            // SAFETY: the flag says which member of the union it is.
            let immediate = u32::from_be(unsafe { completion.__bindgen_anon_1.imm_data });
            let tables = Table(&self.table);
            self.stream
                .handle_immediate(immediate, completion.byte_len, &tables);
        }
    }

    /// Sends as much as may be sent now. How much.
    pub(crate) fn send(&mut self, buffers: &mut Buffers<'_>) -> usize {
        let before = buffers.rest();
        while let Some(write) = self.stream.poll_send(buffers.rest()) {
            if !self.post(&write, buffers) {
                break;
            }
        }
        before - buffers.rest()
    }

    /// Writes as much as may be written now at an offset of the peer's mappings. How much.
    pub(crate) fn write_directly(&mut self, buffers: &mut Buffers<'_>, offset: u64) -> usize {
        let before = buffers.rest();
        loop {
            let done = before - buffers.rest();
            let place = offset.saturating_add(done as u64);
            let Some(write) = self.stream.poll_direct(buffers.rest(), place) else {
                return done;
            };
            if !self.post(&write, buffers) {
                return before - buffers.rest();
            }
        }
    }

    /// Gives a program what has arrived, as far as it has room; what it has read is gone unless it
    /// only peeks.
    pub(crate) fn read(&mut self, buffers: &mut Buffers<'_>, is_peek: bool) -> usize {
        let span = self.stream.peek(0, buffers.rest());
        for range in span.ranges() {
            let (offset, length) = (range.start, range.len());
            buffers.put_from_pages(self.receive.pages(), offset, length);
        }
        if !is_peek {
            self.stream.consume(span.len());
            self.control();
        }
        span.len() as usize
    }

    /// Tells the peer of a mapping. Whether that could be done now.
    pub(crate) fn tell_io_map(&mut self, index: u16, map: IoMap) -> bool {
        let write = self.stream.poll_io_map(index, map);
        write.is_some_and(|write| self.post_control(&write))
    }

    /// Gives a sign of life. Whether that could be done now.
    pub(crate) fn keep_alive(&mut self) -> bool {
        let write = self.stream.poll_keep_alive();
        write.is_some_and(|write| self.post_control(&write))
    }

    /// Posts what is due.
    pub(crate) fn control(&mut self) {
        while let Some(write) = self.stream.poll_control(self.buffer()) {
            if !self.post_control(&write) {
                return;
            }
        }
    }

    fn buffer(&self) -> Buffer {
        Buffer {
            address: self.receive.address(),
            key: self.receive.registration().remote_key(),
        }
    }

    fn post(&mut self, write: &Write, buffers: &mut Buffers<'_>) -> bool {
        let mut inline = [0; INLINE_MAX as usize];
        let mut pieces = [abi::ibv_sge::default(); 2];
        let mut count = 0;
        let mut flags = 0;
        match write.span {
            Some(span) => {
                for range in span.ranges().into_iter().filter(|range| !range.is_empty()) {
                    let pages = self.send.pages_mut();
                    buffers.take_into_pages(pages, range.start, range.len());
                    pieces[count] = self.send.piece(range);
                    count += 1;
                }
            }
            None => {
                let bytes = &mut inline[..write.length as usize];
                buffers.take_into(bytes);
                pieces[0] = inline_piece(bytes);
                (count, flags) = (1, abi::IBV_SEND_INLINE);
            }
        }
        let mut request = request(write.work, write.message.map(|m| m.immediate()), flags);
        request.wr.rdma = rdma(write.remote, write.key);
        self.post_request(request, &mut pieces[..count])
    }

    fn post_control(&mut self, write: &ControlWrite) -> bool {
        let immediate = write.message.map(|message| message.immediate());
        let mut request = request(write.work, immediate, abi::IBV_SEND_INLINE);
        request.wr.rdma = rdma(write.remote, write.key);
        let mut pieces = [inline_piece(write.bytes())];
        let count = usize::from(!write.bytes().is_empty());
        self.post_request(request, &mut pieces[..count])
    }

    fn post_request(&mut self, mut request: abi::ibv_send_wr, pieces: &mut [abi::ibv_sge]) -> bool {
        request.sg_list = pieces.as_mut_ptr();
        // Lossless: at most two.
        request.num_sge = pieces.len() as c_int;
        // SAFETY: the queue pair is live (see `Send`); the pieces live through the call, the send
        // buffer until after the queue pair, and the stream gives its bytes back only when the
        // request has completed.
        let posted = unsafe { verbs::post_send(self.qp, &mut request) };
        if posted.is_err() {
            self.stream.handle_sent(Work::from_id(request.wr_id));
        }
        self.note(posted)
    }

    fn post_receives(&mut self, count: usize) -> Result<(), Failure> {
        let empty = abi::ibv_recv_wr {
            wr_id: Work::Receive.id(),
            ..Default::default()
        };
        let mut left = count;
        while left > 0 {
            let now = left.min(RECEIVE_CHAIN);
            let mut chain = [empty; RECEIVE_CHAIN];
            // SAFETY: the queue pair is live; the requests name no memory.
            unsafe { verbs::post_receives(self.qp, &mut chain[..now])? };
            left -= now;
        }
        Ok(())
    }

    fn note(&mut self, posted: Result<(), Failure>) -> bool {
        if let Err(failure) = &posted {
            log::debug!("rsocket: {}", failure.reason);
            self.stream.handle_end(Ending::Failure);
        }
        posted.is_ok()
    }
}

fn request(work: Work, immediate: Option<u32>, flags: u32) -> abi::ibv_send_wr {
    let mut request = abi::ibv_send_wr {
        wr_id: work.id(),
        send_flags: flags,
        opcode: abi::IBV_WR_RDMA_WRITE,
        ..Default::default()
    };
    if let Some(immediate) = immediate {
        request.opcode = abi::IBV_WR_RDMA_WRITE_WITH_IMM;
        request.__bindgen_anon_1.imm_data = immediate.to_be();
    }
    request
}

fn rdma(remote: u64, key: u32) -> abi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    abi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
        remote_addr: remote,
        rkey: key,
    }
}

fn inline_piece(bytes: &[u8]) -> abi::ibv_sge {
    abi::ibv_sge {
        addr: bytes.as_ptr() as u64,
        // Lossless: at most INLINE_MAX.
        length: bytes.len() as u32,
        lkey: 0,
    }
}

/// The table that the peer writes.
struct Table<'a>(&'a Region);

impl Tables for Table<'_> {
    fn target(&self, index: usize) -> [u8; Segment::LEN] {
        let mut entry = [0; Segment::LEN];
        self.0.pages().read(index * Segment::LEN, &mut entry);
        entry
    }

    fn io_map(&self, index: usize) -> [u8; IoMap::LEN] {
        let mut entry = [0; IoMap::LEN];
        let place = TARGETS * Segment::LEN + index * IoMap::LEN;
        self.0.pages().read(place, &mut entry);
        entry
    }
}
