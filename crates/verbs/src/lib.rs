//! RDMA verbs in safe Rust: devices, protection domains, memory regions, queue pairs.
//!
//! The objects mirror the verbs of IBTA volume 1 chapter 11 and of `libibverbs`, with life times
//! kept by reference counts: a queue pair keeps its completion queues alive, and so on. The C
//! library is a thin layer over this crate.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use feroce_verbs::{Access, Context, CqOptions, QpOptions, QpType};
//!
//! let context = Context::open("roce_lo")?;
//! let pd = context.alloc_pd();
//! let cq = context.create_cq(CqOptions::with_capacity(16))?;
//! let qp = pd.create_qp(QpOptions::new(QpType::Rc, &cq, &cq))?;
//! let buffer = pd.alloc_buffer(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! println!("{:?} waits for a peer; rkey {:#x}", qp.qpn(), buffer.rkey());
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod completion;
mod context;
mod convenience;
pub mod gsi;
mod limits;
mod memory;
mod path;
mod queue;

pub use completion::{CompletionChannel, CompletionQueue, CqOptions};
pub use context::{Context, ContextError};
pub use feroce_engine::{
    Candidate, DeviceEvent, DeviceEvents, Forking, GID_TABLE_LEN, Notify, OpenError, PortInfo,
    PostListError, QpError, Stamped, before_exit, before_fork, candidates, counter, gid_address,
    gid_bytes, hardware_counter_names, port_counter_names,
};
pub use feroce_mem::{
    Access, AccessError, DeregisterError, DeviceMemory, DeviceMemoryError, LocalFault, Memory,
    RegisterError, ReregisterError, WindowType,
};
pub use feroce_proto::{
    AsyncEvent, AttributeMask, BindRequest, Completion, CompletionOpcode, CompletionStatus, Data,
    DatagramTarget, ModifyError, Mtu, Path, PostError, QpAttributes, QpCapabilities, QpState,
    QpType, RecvRequest, Remote, SendFlags, SendOperation, SendRequest, Sge, SgeList,
    SrqAttributes,
};
pub use feroce_wire::{Psn, Qpn};
pub use limits::Limits;
pub use memory::{
    Buffer, BufferError, MemoryRegion, MemoryWindow, PrefetchError, ProtectionDomain,
};
pub use path::{PathError, PathRequest};
pub use queue::{
    CreateQpError, Peer, QpOptions, QueuePair, SharedReceiveQueue, SrqOptions, XrcDomain,
};
