//! Settings of an rsocket: defaults, the administrator's files, what programs set and ask for.
//!
//! Read first: rsocket(7), for the files and the options that are kept.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use super::connection::INLINE_MAX;
use super::stream::{CONTROL_SENDS, Sizes};
use super::wire::scale;
use crate::guard::Failure;

/// The folder of the administrator's files, each with one number.
const FOLDER: &str = "/etc/rdma/rsocket";

/// Most bytes of a buffer: a message says its length in 29 bits, and a ring its positions in 32.
const BUFFER_MAX: u32 = 1 << 28;
/// Fewest bytes of a buffer.
const BUFFER_MIN: u32 = 4096;
/// Most entries of a queue, what devices of all kinds have.
const QUEUE_MAX: u16 = 8192;
/// Fewest entries of a queue for data.
const QUEUE_MIN: u16 = 8;
/// Most I/O mappings.
const IO_MAPS_MAX: u16 = 1024;

/// `SOL_RDMA` of `rdma/rsocket.h`.
pub(crate) const SOL_RDMA: c_int = 0x1_0000;
/// Options of that level.
pub(crate) const RDMA_SQSIZE: c_int = 0;
pub(crate) const RDMA_RQSIZE: c_int = 1;
pub(crate) const RDMA_INLINE: c_int = 2;
pub(crate) const RDMA_IOMAPSIZE: c_int = 3;
pub(crate) const RDMA_ROUTE: c_int = 4;

/// What the whole process shares.
#[derive(Debug)]
pub(crate) struct Defaults {
    options: Options,
    /// How long a call looks at the queue before it sleeps.
    pub(crate) polling: Duration,
    /// How long a sleep lasts at most before the queue is looked at again.
    pub(crate) wake_up: Duration,
}

/// Defaults with the administrator's changes, read once.
pub(crate) fn defaults() -> &'static Defaults {
    static DEFAULTS: OnceLock<Defaults> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        read_defaults(|name| {
            let text = std::fs::read_to_string(format!("{FOLDER}/{name}")).ok()?;
            text.trim().parse().ok()
        })
    })
}

fn read_defaults(file: impl Fn(&str) -> Option<u64>) -> Defaults {
    let mut options = Options::BUILT_IN;
    let number = |name: &str| file(name).map(|value| c_int::try_from(value).unwrap_or(c_int::MAX));
    if let Some(size) = number("mem_default") {
        options.set_receive_buffer(size);
    }
    if let Some(size) = number("wmem_default") {
        options.set_send_buffer(size);
    }
    if let Some(size) = number("sqsize_default") {
        options.set_send_queue(size);
    }
    if let Some(size) = number("rqsize_default") {
        options.set_receive_queue(size);
    }
    if let Some(size) = number("inline_default") {
        options.set_inline(size);
    }
    if let Some(size) = number("iomap_size") {
        options.set_io_maps(size);
    }
    Defaults {
        options,
        polling: Duration::from_micros(file("polling_time").unwrap_or(10)),
        wake_up: Duration::from_millis(file("wake_up_interval").unwrap_or(5000).max(1)),
    }
}

/// Settings of one socket.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Bytes of both buffers; the receive buffer has two halves.
    pub(crate) send_buffer: u32,
    pub(crate) receive_buffer: u32,
    /// Entries of the queues for data.
    pub(crate) send_queue: u16,
    pub(crate) receive_queue: u16,
    /// Bytes that are sent without a copy in the send buffer.
    pub(crate) inline: u32,
    /// I/O mappings that the peer may make.
    pub(crate) io_maps: u16,
    pub(crate) reuse_address: bool,
    pub(crate) only_ipv6: bool,
    pub(crate) no_delay: bool,
    pub(crate) out_of_band_inline: bool,
    pub(crate) linger: libc::linger,
    pub(crate) keep_alive: KeepAlive,
}

/// When signs of life are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeepAlive {
    /// Whether at all.
    pub(crate) is_on: bool,
    /// Seconds from one to the next. Since the device notices whether they arrive, one that fails
    /// is enough: TCP's interval and count are kept for programs that ask, and not needed.
    pub(crate) idle_s: c_int,
    pub(crate) interval_s: c_int,
    pub(crate) count: c_int,
}

impl Options {
    const BUILT_IN: Self = Self {
        send_buffer: 256 * 1024,
        receive_buffer: 256 * 1024,
        send_queue: 384,
        receive_queue: 384,
        inline: 64,
        io_maps: 0,
        reuse_address: false,
        only_ipv6: false,
        no_delay: true,
        out_of_band_inline: false,
        linger: libc::linger {
            l_onoff: 0,
            l_linger: 0,
        },
        keep_alive: KeepAlive {
            is_on: false,
            idle_s: 7200,
            interval_s: 75,
            count: 9,
        },
    };

    /// Those of a new socket.
    pub(crate) fn new() -> Self {
        defaults().options.clone()
    }

    /// Options of the device, which both kinds of sockets have.
    pub(crate) fn set_rdma(
        &mut self,
        level: c_int,
        name: c_int,
        value: c_int,
    ) -> Result<(), Failure> {
        match (level, name) {
            (SOL_RDMA, RDMA_SQSIZE) => self.set_send_queue(value),
            (SOL_RDMA, RDMA_RQSIZE) => self.set_receive_queue(value),
            (SOL_RDMA, RDMA_INLINE) => self.set_inline(value),
            (SOL_RDMA, RDMA_IOMAPSIZE) => self.set_io_maps(value),
            _ => return Err(unknown(level, name)),
        }
        Ok(())
    }

    /// What a program that asks for a number gets.
    pub(crate) fn number(&self, level: c_int, name: c_int) -> Result<c_int, Failure> {
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive.is_on.into(),
            (libc::SOL_SOCKET, libc::SO_OOBINLINE) => self.out_of_band_inline.into(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => size(self.receive_buffer),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR) => self.reuse_address.into(),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => size(self.send_buffer),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay.into(),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => self.keep_alive.idle_s,
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => self.keep_alive.interval_s,
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => self.keep_alive.count,
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => self.only_ipv6.into(),
            (SOL_RDMA, RDMA_SQSIZE) => self.send_queue.into(),
            (SOL_RDMA, RDMA_RQSIZE) => self.receive_queue.into(),
            (SOL_RDMA, RDMA_INLINE) => size(self.inline),
            (SOL_RDMA, RDMA_IOMAPSIZE) => self.io_maps.into(),
            _ => return Err(unknown(level, name)),
        };
        Ok(number)
    }

    /// For a connection.
    pub(crate) fn stream_sizes(&self) -> Sizes {
        Sizes {
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            send_queue: self.send_queue + CONTROL_SENDS,
            receive_queue: self.receive_queue,
            inline: self.inline,
            io_maps: self.io_maps,
        }
    }

    /// `SO_SNDBUF`.
    pub(crate) fn set_send_buffer(&mut self, bytes: c_int) {
        self.send_buffer = buffer(bytes);
    }

    /// `SO_RCVBUF`.
    pub(crate) fn set_receive_buffer(&mut self, bytes: c_int) {
        self.receive_buffer = buffer(bytes);
    }

    /// `RDMA_SQSIZE`.
    pub(crate) fn set_send_queue(&mut self, entries: c_int) {
        self.send_queue = queue(entries);
    }

    /// `RDMA_RQSIZE`.
    pub(crate) fn set_receive_queue(&mut self, entries: c_int) {
        self.receive_queue = queue(entries);
    }

    /// `RDMA_INLINE`.
    pub(crate) fn set_inline(&mut self, bytes: c_int) {
        self.inline = u32::try_from(bytes).unwrap_or(0).min(INLINE_MAX);
    }

    /// `RDMA_IOMAPSIZE`.
    pub(crate) fn set_io_maps(&mut self, maps: c_int) {
        let maps = u16::try_from(maps.max(0)).unwrap_or(u16::MAX);
        self.io_maps = scale::round(maps.min(IO_MAPS_MAX));
    }
}

/// An option that rsockets do not have.
pub(crate) fn unknown(level: c_int, name: c_int) -> Failure {
    let reason = format!("option {name} of level {level} is not supported");
    Failure::new(libc::ENOPROTOOPT, reason)
}

fn size(bytes: u32) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// A buffer's size: within bounds, and even, so that it has halves.
fn buffer(bytes: c_int) -> u32 {
    let bytes = u32::try_from(bytes).unwrap_or(0);
    bytes.clamp(BUFFER_MIN, BUFFER_MAX) & !1
}

fn queue(entries: c_int) -> u16 {
    let entries = u16::try_from(entries.max(0)).unwrap_or(u16::MAX);
    entries.clamp(QUEUE_MIN, QUEUE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrators_files_change_defaults() {
        let defaults = read_defaults(|name| match name {
            "mem_default" => Some(1_000_001),
            "sqsize_default" => Some(1),
            "polling_time" => Some(0),
            "iomap_size" => Some(129),
            _ => None,
        });
        let sizes = defaults.options.stream_sizes();
        assert_eq!(sizes.receive_buffer, 1_000_000);
        assert_eq!(sizes.send_buffer, Options::BUILT_IN.send_buffer);
        assert_eq!(sizes.send_queue, QUEUE_MIN + CONTROL_SENDS);
        assert_eq!(sizes.io_maps, 256);
        assert_eq!(defaults.polling, Duration::ZERO);
        assert_eq!(defaults.wake_up, Duration::from_secs(5));
    }

    #[test]
    fn what_programs_set_is_kept_within_bounds() {
        let mut options = Options::BUILT_IN;
        options.set_receive_buffer(-1);
        assert_eq!(options.receive_buffer, BUFFER_MIN);
        options.set_receive_buffer(c_int::MAX);
        assert_eq!(options.receive_buffer, BUFFER_MAX);
        options.set_inline(100_000);
        assert_eq!(options.inline, INLINE_MAX);
        options.set_receive_queue(100_000);
        assert_eq!(options.receive_queue, QUEUE_MAX);
        options.set_io_maps(-5);
        assert_eq!(options.io_maps, 0);
    }
}
