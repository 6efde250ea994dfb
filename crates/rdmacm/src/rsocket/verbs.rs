//! Objects of verbs and of the connection manager with the life times that rsockets need. Only the
//! public C interfaces are used: what programs can do is enough for this one.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as c;

use super::sys::{self, Pages, RawAddress};
use crate::guard::Failure;

/// Completions taken from a queue at once.
const BATCH: usize = 16;

fn done(result: c_int, what: &str) -> Result<(), Failure> {
    match result {
        0 => Ok(()),
        -1 => Err(Failure::last(what)),
        errno => Err(Failure::of(errno.abs(), what)),
    }
}

fn made<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, Failure> {
    NonNull::new(pointer).ok_or_else(|| Failure::last(what))
}

/// An identifier of the connection manager with an event channel of its own, neither of which
/// waits.
#[derive(Debug)]
pub(crate) struct Id {
    id: NonNull<abi::rdma_cm_id>,
    channel: NonNull<abi::rdma_event_channel>,
}

// SAFETY: both may be used from any thread, one at a time, which `&mut` and the lock around the
// socket see to.
unsafe impl Send for Id {}

/// What an event says, copied out of it.
#[derive(Debug)]
pub(crate) struct Event {
    /// Its kind, one of `RDMA_CM_EVENT_*`.
    pub(crate) kind: abi::rdma_cm_event_type,
    /// 0, or an errno value made negative, or a reason of rejection.
    pub(crate) status: c_int,
    /// The identifier that a connection request brings.
    pub(crate) id: *mut abi::rdma_cm_id,
    /// What the peer sent along.
    pub(crate) private_data: Vec<u8>,
}

impl Id {
    /// A new identifier.
    pub(crate) fn new(space: abi::rdma_port_space) -> Result<Self, Failure> {
        let channel = Self::channel()?;
        let mut id = ptr::null_mut();
        // SAFETY: a live channel and a place for the identifier.
        let result =
            unsafe { c::rdma_create_id(channel.as_ptr(), &raw mut id, ptr::null_mut(), space) };
        match done(result, "rdma_create_id").and_then(|()| made(id, "rdma_create_id")) {
            Ok(id) => Ok(Self { id, channel }),
            Err(failure) => {
                // SAFETY: made above, used by nobody.
                unsafe { c::rdma_destroy_event_channel(channel.as_ptr()) };
                Err(failure)
            }
        }
    }

    /// Takes over the identifier of a connection request, whose event is acknowledged.
    ///
    /// # Safety
    /// `id` came with such an event and nobody else has it.
    pub(crate) unsafe fn adopt(id: *mut abi::rdma_cm_id) -> Result<Self, Failure> {
        let id = made(id, "a connection request without an identifier")?;
        let moved = Self::channel().and_then(|channel| {
            // SAFETY: both are live, by the caller's contract and as just made.
            let result = unsafe { c::rdma_migrate_id(id.as_ptr(), channel.as_ptr()) };
            done(result, "rdma_migrate_id").map(|()| channel)
        });
        moved.map(|channel| Self { id, channel }).inspect_err(|_| {
            // SAFETY: the caller gave it to us, and nobody will use it.
            unsafe { c::rdma_destroy_id(id.as_ptr()) };
        })
    }

    fn channel() -> Result<NonNull<abi::rdma_event_channel>, Failure> {
        // SAFETY: takes nothing.
        let channel = unsafe { c::rdma_create_event_channel() };
        let channel = made(channel, "rdma_create_event_channel")?;
        // SAFETY: just made.
        sys::set_nonblocking(unsafe { channel.as_ref() }.fd)?;
        Ok(channel)
    }

    /// Readable while events wait.
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: live as long as `self`.
        unsafe { self.channel.as_ref() }.fd
    }

    fn raw(&self) -> &abi::rdma_cm_id {
        // SAFETY: live as long as `self`; the library changes fields only in calls that this
        // module makes, under the lock around the socket.
        unsafe { self.id.as_ref() }
    }

    /// The device, once an address has chosen one.
    pub(crate) fn context(&self) -> Result<NonNull<abi::ibv_context>, Failure> {
        NonNull::new(self.raw().verbs)
            .ok_or_else(|| Failure::new(libc::ENODEV, "no device has the address"))
    }

    /// The protection domain, once there is a queue pair.
    pub(crate) fn pd(&self) -> *mut abi::ibv_pd {
        self.raw().pd
    }

    /// The port of the device.
    pub(crate) fn port(&self) -> u8 {
        self.raw().port_num
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> *mut abi::ibv_qp {
        self.raw().qp
    }

    /// Our address.
    pub(crate) fn local(&self) -> RawAddress {
        // SAFETY: every byte pattern is a storage, and the library sets it up with zeros.
        RawAddress::from_storage(unsafe { self.raw().route.addr.__bindgen_anon_1.src_storage })
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> RawAddress {
        // SAFETY: as above.
        RawAddress::from_storage(unsafe { self.raw().route.addr.__bindgen_anon_2.dst_storage })
    }

    /// The first path record of the route; `None`: there is none.
    pub(crate) fn path_record(&self) -> Option<&abi::ibv_sa_path_rec> {
        let route = &self.raw().route;
        if route.num_paths < 1 || route.path_rec.is_null() {
            return None;
        }
        // SAFETY: the library keeps `num_paths` records there as long as the identifier lives.
        Some(unsafe { &*route.path_rec })
    }

    /// `rdma_set_option`.
    pub(crate) fn set_option<T>(&self, level: u32, name: u32, value: &T) -> Result<(), Failure> {
        let value = ptr::from_ref(value).cast_mut().cast::<c_void>();
        let (level, name) = (level as c_int, name as c_int);
        // SAFETY: a live identifier and a value of that size, which is only read.
        let result =
            unsafe { c::rdma_set_option(self.id.as_ptr(), level, name, value, size_of::<T>()) };
        done(result, "rdma_set_option")
    }

    /// Says which paths lead to the peer.
    pub(crate) fn set_route(&self, route: &[abi::ibv_path_data]) -> Result<(), Failure> {
        let (level, name) = (
            abi::RDMA_OPTION_IB as c_int,
            abi::RDMA_OPTION_IB_PATH as c_int,
        );
        let value = route.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: a live identifier and an array of that size, which is only read.
        let result =
            unsafe { c::rdma_set_option(self.id.as_ptr(), level, name, value, size_of_val(route)) };
        done(result, "rdma_set_option of a path")
    }

    /// `rdma_bind_addr`.
    pub(crate) fn bind(&mut self, mut address: RawAddress) -> Result<(), Failure> {
        // SAFETY: a live identifier, an address that lives through the call.
        let result = unsafe { c::rdma_bind_addr(self.id.as_ptr(), address.as_mut_ptr()) };
        done(result, "rdma_bind_addr")
    }

    /// `rdma_listen`.
    pub(crate) fn listen(&mut self, backlog: c_int) -> Result<(), Failure> {
        // SAFETY: a live identifier.
        done(
            unsafe { c::rdma_listen(self.id.as_ptr(), backlog) },
            "rdma_listen",
        )
    }

    /// `rdma_resolve_addr`; the answer is an event.
    pub(crate) fn resolve_address(
        &mut self,
        mut to: RawAddress,
        limit_ms: c_int,
    ) -> Result<(), Failure> {
        let source = ptr::null_mut();
        // SAFETY: a live identifier, an address that lives through the call.
        let result =
            unsafe { c::rdma_resolve_addr(self.id.as_ptr(), source, to.as_mut_ptr(), limit_ms) };
        done(result, "rdma_resolve_addr")
    }

    /// `rdma_resolve_route`; the answer is an event.
    pub(crate) fn resolve_route(&mut self, limit_ms: c_int) -> Result<(), Failure> {
        // SAFETY: a live identifier.
        let result = unsafe { c::rdma_resolve_route(self.id.as_ptr(), limit_ms) };
        done(result, "rdma_resolve_route")
    }

    /// `rdma_create_qp` in the default protection domain.
    pub(crate) fn create_qp(&mut self, attr: &mut abi::ibv_qp_init_attr) -> Result<(), Failure> {
        // SAFETY: a live identifier; the attributes name live completion queues.
        let result = unsafe { c::rdma_create_qp(self.id.as_ptr(), ptr::null_mut(), attr) };
        done(result, "rdma_create_qp")
    }

    /// `rdma_destroy_qp`, if there is one.
    pub(crate) fn destroy_qp(&mut self) {
        if !self.qp().is_null() {
            // SAFETY: a live identifier with a queue pair.
            unsafe { c::rdma_destroy_qp(self.id.as_ptr()) };
        }
    }

    /// `rdma_connect`.
    pub(crate) fn connect(&mut self, param: &mut abi::rdma_conn_param) -> Result<(), Failure> {
        // SAFETY: a live identifier; the private data lives through the call.
        let result = unsafe { c::rdma_connect(self.id.as_ptr(), param) };
        done(result, "rdma_connect")
    }

    /// `rdma_accept`.
    pub(crate) fn accept(&mut self, param: &mut abi::rdma_conn_param) -> Result<(), Failure> {
        // SAFETY: as above.
        let result = unsafe { c::rdma_accept(self.id.as_ptr(), param) };
        done(result, "rdma_accept")
    }

    /// `rdma_reject`: this connection request is for none of us.
    pub(crate) fn reject(&mut self) {
        // SAFETY: a live identifier.
        unsafe { c::rdma_reject(self.id.as_ptr(), ptr::null(), 0) };
    }

    /// `rdma_disconnect`. Nothing to be done where it fails: there is no connection then.
    pub(crate) fn disconnect(&mut self) {
        // SAFETY: a live identifier.
        unsafe { c::rdma_disconnect(self.id.as_ptr()) };
    }

    /// The next event, acknowledged; `None`: there is none.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: a live channel, which does not wait, and a place for the event.
        let result = unsafe { c::rdma_get_cm_event(self.channel.as_ptr(), &raw mut event) };
        if result != 0 || event.is_null() {
            return None;
        }
        // SAFETY: an event that was just given to us. All kinds that come to these identifiers
        // carry `conn`; a queue pair for datagrams has no events.
        let copied = unsafe {
            let conn = &(*event).param.conn;
            let data = conn.private_data.cast::<u8>();
            let length = usize::from(conn.private_data_len);
            Event {
                kind: (*event).event,
                status: (*event).status,
                id: (*event).id,
                private_data: if data.is_null() {
                    Vec::new()
                } else {
                    std::slice::from_raw_parts(data, length).to_vec()
                },
            }
        };
        // SAFETY: the event came from there and is acknowledged once.
        unsafe { c::rdma_ack_cm_event(event) };
        Some(copied)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        self.destroy_qp();
        // SAFETY: nobody else has either; all events are acknowledged.
        unsafe {
            c::rdma_destroy_id(self.id.as_ptr());
            c::rdma_destroy_event_channel(self.channel.as_ptr());
        }
    }
}

/// A completion queue with a channel that does not wait.
#[derive(Debug)]
pub(crate) struct Completions {
    cq: NonNull<abi::ibv_cq>,
    channel: NonNull<abi::ibv_comp_channel>,
}

// SAFETY: both may be used from any thread.
unsafe impl Send for Completions {}

impl Completions {
    /// A queue for `entries` completions.
    pub(crate) fn new(context: NonNull<abi::ibv_context>, entries: c_int) -> Result<Self, Failure> {
        // SAFETY: a live context.
        let channel = unsafe { c::ibv_create_comp_channel(context.as_ptr()) };
        let channel = made(channel, "ibv_create_comp_channel")?;
        // SAFETY: as above, and a channel of that context.
        let cq = unsafe {
            c::ibv_create_cq(
                context.as_ptr(),
                entries,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let queue = made(cq, "ibv_create_cq")
            // SAFETY: just made.
            .and_then(|cq| sys::set_nonblocking(unsafe { channel.as_ref() }.fd).map(|()| cq));
        match queue {
            Ok(cq) => Ok(Self { cq, channel }),
            Err(failure) => {
                // SAFETY: made above, used by nobody.
                unsafe { c::ibv_destroy_comp_channel(channel.as_ptr()) };
                Err(failure)
            }
        }
    }

    /// For the attributes of a queue pair.
    pub(crate) fn as_ptr(&self) -> *mut abi::ibv_cq {
        self.cq.as_ptr()
    }

    /// Readable once a completion came after [`Completions::arm`].
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: live as long as `self`.
        unsafe { self.channel.as_ref() }.fd
    }

    fn operations(&self) -> &abi::ibv_context_ops {
        // SAFETY: a live queue, whose context outlives it and whose table never changes.
        unsafe { &(*self.cq.as_ref().context).ops }
    }

    /// Wants to hear of the next completion.
    pub(crate) fn arm(&self) {
        if let Some(request) = self.operations().req_notify_cq {
            // SAFETY: the operation of this queue's context.
            unsafe { request(self.cq.as_ptr(), 0) };
        }
    }

    /// Takes what the channel holds, so that its descriptor is not readable any more.
    pub(crate) fn clear_events(&self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel, which does not wait, and places for the results; each event is
        // acknowledged once.
        unsafe {
            while c::ibv_get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context) == 0 {
                c::ibv_ack_cq_events(cq, 1);
            }
        }
    }

    /// Takes completions; as few as none.
    pub(crate) fn poll(&self) -> Taken {
        let mut taken = Taken {
            entries: [const { MaybeUninit::uninit() }; BATCH],
            count: 0,
        };
        if let Some(poll) = self.operations().poll_cq {
            let room = taken.entries.as_mut_ptr().cast();
            // SAFETY: the operation of this queue's context, and room for as many.
            let count = unsafe { poll(self.cq.as_ptr(), BATCH as c_int, room) };
            taken.count = usize::try_from(count).unwrap_or(0);
        }
        taken
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that used them are gone: whoever holds this drops those first.
        unsafe {
            c::ibv_destroy_cq(self.cq.as_ptr());
            c::ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

/// Completions that were taken from a queue.
pub(crate) struct Taken {
    entries: [MaybeUninit<abi::ibv_wc>; BATCH],
    count: usize,
}

impl Taken {
    /// The completions.
    pub(crate) fn entries(&self) -> &[abi::ibv_wc] {
        // SAFETY: the device has filled in the first `count`.
        unsafe { std::slice::from_raw_parts(self.entries.as_ptr().cast(), self.count) }
    }

    /// Whether there may be more.
    pub(crate) fn is_full(&self) -> bool {
        self.count == BATCH
    }
}

/// Memory of our own that is registered.
#[derive(Debug)]
pub(crate) struct Region {
    // Dropped in this order: the registration first.
    registration: Registration,
    pages: Pages,
}

impl Region {
    /// New memory of `length` bytes.
    pub(crate) fn new(pd: *mut abi::ibv_pd, length: usize, access: c_int) -> Result<Self, Failure> {
        let pages = Pages::new(length)?;
        // SAFETY: pages that live longer than their registration.
        let registration =
            unsafe { Registration::new(pd, pages.start().cast(), pages.len(), access)? };
        Ok(Self {
            registration,
            pages,
        })
    }

    /// The memory.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The memory, to write.
    pub(crate) fn pages_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.pages.start() as u64
    }

    /// Its keys.
    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// A piece of it for a work request.
    pub(crate) fn piece(&self, range: std::ops::Range<usize>) -> abi::ibv_sge {
        abi::ibv_sge {
            addr: self.address() + range.start as u64,
            length: range.len() as u32,
            lkey: self.registration.local_key(),
        }
    }
}

/// Memory that is registered.
#[derive(Debug)]
pub(crate) struct Registration(NonNull<abi::ibv_mr>);

// SAFETY: may be used and given back by any thread.
unsafe impl Send for Registration {}

impl Registration {
    /// Registers memory.
    ///
    /// # Safety
    /// The memory is there until the registration is dropped.
    pub(crate) unsafe fn new(
        pd: *mut abi::ibv_pd,
        start: *mut c_void,
        length: usize,
        access: c_int,
    ) -> Result<Self, Failure> {
        // SAFETY: a live protection domain, and the caller's contract.
        let registration = unsafe { c::ibv_reg_mr(pd, start, length, access) };
        made(registration, "ibv_reg_mr").map(Self)
    }

    /// For our own work requests.
    pub(crate) fn local_key(&self) -> u32 {
        // SAFETY: live as long as `self`.
        unsafe { self.0.as_ref() }.lkey
    }

    /// For the peer.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.0.as_ref() }.rkey
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { c::ibv_dereg_mr(self.0.as_ptr()) };
    }
}

/// Posts a chain of one send request.
///
/// # Safety
/// `qp` is live; what the request points to lives through the call, what its pieces name until
/// it has completed.
pub(crate) unsafe fn post_send(
    qp: *mut abi::ibv_qp,
    request: &mut abi::ibv_send_wr,
) -> Result<(), Failure> {
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's contract.
    let result = unsafe {
        match (*(*qp).context).ops.post_send {
            Some(post) => post(qp, request, &raw mut bad),
            None => libc::ENOSYS,
        }
    };
    done(result, "ibv_post_send")
}

/// Posts a chain of receive requests.
///
/// # Safety
/// As for [`post_send`].
pub(crate) unsafe fn post_receives(
    qp: *mut abi::ibv_qp,
    requests: &mut [abi::ibv_recv_wr],
) -> Result<(), Failure> {
    let Some(mut next) = requests.last_mut().map(|last| {
        last.next = ptr::null_mut();
        ptr::from_mut(last)
    }) else {
        return Ok(());
    };
    let all_but_last = requests.len() - 1;
    for request in requests[..all_but_last].iter_mut().rev() {
        request.next = next;
        next = request;
    }
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's contract; the chain lies in the slice.
    let result = unsafe {
        match (*(*qp).context).ops.post_recv {
            Some(post) => post(qp, next, &raw mut bad),
            None => libc::ENOSYS,
        }
    };
    done(result, "ibv_post_recv")
}
