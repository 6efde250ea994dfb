//! A UD queue pair of one address of ours: receives, sends, the ways to others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ptr::NonNull;

use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as c;

use super::super::gather::Buffers;
use super::super::options::Options;
use super::super::sys::RawAddress;
use super::super::verbs::{self, Completions, Id, Region};
use super::super::wire::DatagramHeader;
use crate::guard::Failure;

/// In front of every datagram in a receive buffer, whatever the addresses.
const GRH_LEN: usize = 40;

/// The key of queue pairs that belong to the port space of UDP.
const QUEUE_KEY: u32 = 0x0123_4567;

/// Hops of a datagram, as IP has it.
const HOP_LIMIT: u8 = 64;

/// Fewest and most datagrams that can arrive while the program does not look.
const RECEIVES: std::ops::RangeInclusive<usize> = 256..=4096;

/// Ways to others that are kept.
const HANDLES_MAX: usize = 1024;

/// Bit of a work request identifier that tells sends from receives.
const SEND: u64 = 1 << 63;

/// The queue pair and its memory.
pub(super) struct Queue {
    // Dropped in this order, after the queue pair.
    handles: HashMap<IpAddr, Handle>,
    completions: Completions,
    send: Region,
    receive: Region,
    id: Id,

    ours: IpAddr,
    scope: u32,
    gid_index: u8,
    /// Bytes of a packet's payload, and of a place in the receive buffer.
    payload_max: usize,
    place_size: usize,
    /// Places in the send buffer that are free, of so many.
    free: Vec<usize>,
    sends: usize,
}

/// A datagram in the receive buffer.
pub(super) struct Arrived {
    place: usize,
    start: usize,
    length: usize,
    /// Who sent it.
    pub(super) from: SocketAddr,
    /// From which queue pair.
    pub(super) queue_pair: u32,
}

/// The way to an address.
struct Handle(NonNull<abi::ibv_ah>);

// SAFETY: may be used and given back by any thread.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; requests that used it hold what they need.
        unsafe { c::ibv_destroy_ah(self.0.as_ptr()) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.id.destroy_qp();
    }
}

impl Queue {
    /// A queue pair for `ours`, on the link `scope` if that is needed to know it.
    pub(super) fn new(ours: IpAddr, scope: u32, options: &Options) -> Result<Self, Failure> {
        let address = with_scope(SocketAddr::new(ours, 0), scope);
        let mut id = Id::new(abi::RDMA_PS_UDP)?;
        id.bind(RawAddress::new(address))?;
        let context = id.context()?;
        let port = port(context, id.port())?;
        let payload_max = payload(port.active_mtu);
        let place_size = GRH_LEN + payload_max;
        let receives = (options.receive_buffer as usize / place_size)
            .clamp(*RECEIVES.start(), *RECEIVES.end());
        let sends =
            (options.send_buffer as usize / payload_max).clamp(1, usize::from(options.send_queue));
        // Lossless: both are small.
        let completions = Completions::new(context, (receives + sends) as c_int)?;
        let mut attr = abi::ibv_qp_init_attr {
            send_cq: completions.as_ptr(),
            recv_cq: completions.as_ptr(),
            qp_type: abi::IBV_QPT_UD,
            sq_sig_all: 1,
            cap: abi::ibv_qp_cap {
                max_send_wr: sends as u32,
                max_recv_wr: receives as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..Default::default()
        };
        let gid_index = gid_index(context, id.port(), port.gid_tbl_len, ours)?;
        id.create_qp(&mut attr)?;
        let writable = abi::IBV_ACCESS_LOCAL_WRITE as c_int;
        let mut queue = Self {
            handles: HashMap::new(),
            completions,
            send: Region::new(id.pd(), sends * payload_max, 0)?,
            receive: Region::new(id.pd(), receives * place_size, writable)?,
            id,
            ours,
            scope,
            gid_index,
            payload_max,
            place_size,
            free: (0..sends).collect(),
            sends,
        };
        for place in 0..receives {
            queue.post_receive(place)?;
        }
        Ok(queue)
    }

    /// Whether it is that of an address.
    pub(super) fn is_of(&self, ours: IpAddr) -> bool {
        self.ours == ours
    }

    /// The queue pair number.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: there is a queue pair as long as `self`.
        unsafe { (*self.id.qp()).qp_num }
    }

    /// Header and bytes of a program that fit a packet.
    pub(super) fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Whether a datagram can be sent now.
    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether the device has sent all it was given.
    pub(super) fn has_sent_all(&self) -> bool {
        self.free.len() == self.sends
    }

    /// The descriptor that becomes readable with a completion after [`Queue::arm`].
    pub(super) fn fd(&self) -> c_int {
        self.completions.fd()
    }

    /// Wants to hear of the next completion.
    pub(super) fn arm(&self) {
        self.completions.arm();
    }

    /// Takes notice of what the descriptor said.
    pub(super) fn clear_events(&self) {
        self.completions.clear_events();
    }

    /// An address of this link, as others name it.
    pub(super) fn with_scope(&self, address: SocketAddr) -> SocketAddr {
        with_scope(address, self.scope)
    }

    /// Looks at what has completed; about `limit` datagrams at most. Whether there was anything.
    pub(super) fn progress(&mut self, limit: usize, arrived: &mut Vec<Arrived>) -> bool {
        let mut any = false;
        while arrived.len() < limit {
            let taken = self.completions.poll();
            any |= !taken.entries().is_empty();
            for completion in taken.entries() {
                if completion.wr_id & SEND != 0 {
                    // Lossless: an index of ours.
                    self.free.push((completion.wr_id & !SEND) as usize);
                } else if completion.status == abi::IBV_WC_SUCCESS {
                    self.arrive(completion, arrived);
                }
            }
            if !taken.is_full() {
                break;
            }
        }
        any
    }

    fn arrive(&mut self, completion: &abi::ibv_wc, arrived: &mut Vec<Arrived>) {
        let place = completion.wr_id as usize;
        let length = (completion.byte_len as usize).min(self.place_size);
        let mut head = [0; DatagramHeader::LEN_MAX];
        let known = length.saturating_sub(GRH_LEN).min(head.len());
        let head = &mut head[..known];
        let base = place * self.place_size;
        self.receive.pages().read(base + GRH_LEN, head);
        match DatagramHeader::parse(head) {
            Some((header, _)) => {
                let start = GRH_LEN + DatagramHeader::length(header.source.ip());
                arrived.push(Arrived {
                    place,
                    start: base + start,
                    length: length - start,
                    from: header.source,
                    queue_pair: completion.src_qp,
                });
            }
            // None of ours.
            None => self.post_again(place),
        }
    }

    /// Gives a program a datagram, as far as it has room: how much.
    pub(super) fn read(&self, arrived: &Arrived, buffers: &mut Buffers<'_>) -> usize {
        buffers.put_from_pages(self.receive.pages(), arrived.start, arrived.length)
    }

    /// The place of a datagram is free for another.
    pub(super) fn give_back(&mut self, arrived: &Arrived) {
        self.post_again(arrived.place);
    }

    fn post_again(&mut self, place: usize) {
        if let Err(failure) = self.post_receive(place) {
            log::debug!("rsocket: a place for datagrams is lost: {}", failure.reason);
        }
    }

    fn post_receive(&mut self, place: usize) -> Result<(), Failure> {
        let start = place * self.place_size;
        let mut piece = self.receive.piece(start..start + self.place_size);
        let mut request = [abi::ibv_recv_wr {
            wr_id: place as u64,
            sg_list: &raw mut piece,
            num_sge: 1,
            ..Default::default()
        }];
        // SAFETY: the queue pair is live, and goes before the memory.
        unsafe { verbs::post_receives(self.id.qp(), &mut request) }
    }

    /// Sends a datagram that fits, with room in the queue.
    pub(super) fn send(
        &mut self,
        source: SocketAddr,
        buffers: &mut Buffers<'_>,
        to: IpAddr,
        queue_pair: u32,
    ) -> Result<(), Failure> {
        let handle = self.handle(to)?;
        let Some(place) = self.free.pop() else {
            return Err(Failure::new(libc::EAGAIN, "the send queue is full"));
        };
        let start = place * self.payload_max;
        let mut head = Vec::with_capacity(DatagramHeader::LEN_MAX);
        DatagramHeader { source }.write(&mut head);
        let (length, pages) = (buffers.rest(), self.send.pages_mut());
        pages.write(start, &head);
        buffers.take_into_pages(pages, start + head.len(), length);
        let mut piece = self.send.piece(start..start + head.len() + length);
        let mut request = abi::ibv_send_wr {
            wr_id: SEND | place as u64,
            sg_list: &raw mut piece,
            num_sge: 1,
            opcode: abi::IBV_WR_SEND,
            ..Default::default()
        };
        request.wr.ud = abi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
            ah: handle,
            remote_qpn: queue_pair,
            remote_qkey: QUEUE_KEY,
        };
        // SAFETY: queue pair and handle are live; the place is not used again before completion.
        let posted = unsafe { verbs::post_send(self.id.qp(), &mut request) };
        posted.inspect_err(|_| self.free.push(place))
    }

    fn handle(&mut self, to: IpAddr) -> Result<*mut abi::ibv_ah, Failure> {
        if self.handles.len() >= HANDLES_MAX && !self.handles.contains_key(&to) {
            self.handles.clear();
        }
        let (pd, port_num, gid_index) = (self.id.pd(), self.id.port(), self.gid_index);
        match self.handles.entry(to) {
            Entry::Occupied(known) => Ok(known.get().0.as_ptr()),
            Entry::Vacant(place) => {
                let mut attr = abi::ibv_ah_attr {
                    is_global: 1,
                    port_num,
                    ..Default::default()
                };
                attr.grh.dgid.raw = gid(to);
                attr.grh.sgid_index = gid_index;
                attr.grh.hop_limit = HOP_LIMIT;
                // SAFETY: a live protection domain, attributes that live through the call.
                let handle = unsafe { c::ibv_create_ah(pd, &raw mut attr) };
                let handle = NonNull::new(handle).ok_or_else(|| Failure::last("ibv_create_ah"))?;
                Ok(place.insert(Handle(handle)).0.as_ptr())
            }
        }
    }
}

fn with_scope(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
        other => other,
    }
}

/// An IP address as RoCE has it: IPv4 ones are mapped.
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Bytes of a packet's payload, from the port's MTU as verbs count it.
fn payload(mtu: abi::ibv_mtu) -> usize {
    128 << mtu.clamp(1, 5)
}

fn port(context: NonNull<abi::ibv_context>, number: u8) -> Result<abi::ibv_port_attr, Failure> {
    let mut attr = abi::ibv_port_attr::default();
    let place = (&raw mut attr).cast();
    // SAFETY: a live context; the struct that the call fills in begins like this one and is not
    // longer.
    match unsafe { c::ibv_query_port(context.as_ptr(), number, place) } {
        0 => Ok(attr),
        errno => Err(Failure::of(errno.abs(), "ibv_query_port")),
    }
}

/// Where an address of ours is in the port's table.
fn gid_index(
    context: NonNull<abi::ibv_context>,
    port: u8,
    length: c_int,
    ours: IpAddr,
) -> Result<u8, Failure> {
    let wanted = gid(ours);
    for index in 0..u8::try_from(length).unwrap_or(u8::MAX) {
        let mut found = abi::ibv_gid { raw: [0; 16] };
        // SAFETY: a live context and a place for the answer.
        let result =
            unsafe { c::ibv_query_gid(context.as_ptr(), port, index.into(), &raw mut found) };
        // SAFETY: every byte pattern is one of 16 bytes.
        if result == 0 && unsafe { found.raw } == wanted {
            return Ok(index);
        }
    }
    let reason = format!("the device has no GID for {ours}");
    Err(Failure::new(libc::EADDRNOTAVAIL, reason))
}
