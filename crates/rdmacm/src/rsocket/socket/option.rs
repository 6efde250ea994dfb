//! `rsetsockopt` and `rgetsockopt` of stream sockets.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feroce_verbs_abi as abi;

use super::super::options::{RDMA_ROUTE, SOL_RDMA, unknown};
use super::super::service;
use super::{Phase, State, StreamSocket};
use crate::guard::Failure;

/// The longest time between signs of life, as in the kernel.
const IDLE_MAX_S: c_int = 32767;

/// An option's value as bytes of a program, long enough for what is read from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a>(pub(crate) &'a [u8]);

impl Value<'_> {
    /// A number.
    ///
    /// # Errors
    /// EINVAL if there are too few bytes.
    pub(crate) fn int(self) -> Result<c_int, Failure> {
        let bytes = self.0.first_chunk().copied();
        bytes
            .map(c_int::from_ne_bytes)
            .ok_or_else(|| Failure::invalid("the option's value has four bytes"))
    }

    fn linger(self) -> Result<libc::linger, Failure> {
        let [on, seconds] = [self.0.get(..4), self.0.get(4..8)]
            .map(|part| part.map(|part| Value(part).int()))
            .map(|part| part.unwrap_or_else(|| Err(Failure::invalid("a linger has eight bytes"))));
        Ok(libc::linger {
            l_onoff: on?,
            l_linger: seconds?,
        })
    }

    fn route(self) -> Result<Vec<abi::ibv_path_data>, Failure> {
        let (chunks, rest) = self.0.as_chunks::<{ size_of::<abi::ibv_path_data>() }>();
        if chunks.is_empty() || !rest.is_empty() {
            return Err(Failure::invalid(
                "a route is an array of struct ibv_path_data",
            ));
        }
        let path = |chunk: &[u8; size_of::<abi::ibv_path_data>()]| {
            // SAFETY: as many bytes as the struct has, which holds only integers.
            unsafe { chunk.as_ptr().cast::<abi::ibv_path_data>().read_unaligned() }
        };
        Ok(chunks.iter().map(path).collect())
    }
}

impl StreamSocket {
    /// `rsetsockopt`.
    pub(crate) fn set_option(
        self: &Arc<Self>,
        level: c_int,
        name: c_int,
        value: Value<'_>,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                state.options.keep_alive.is_on = value.int()? != 0;
            }
            (libc::SOL_SOCKET, _) => return state.set_socket_option(name, value),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                state.options.keep_alive.idle_s = seconds(value)?;
            }
            (libc::IPPROTO_TCP, _) => return state.set_tcp_option(name, value),
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => {
                state.options.only_ipv6 = value.int()? != 0;
                let only = c_int::from(state.options.only_ipv6);
                let id = &state.link()?.id;
                return id.set_option(abi::RDMA_OPTION_ID, abi::RDMA_OPTION_ID_AFONLY, &only);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // One byte, whatever the width that the program uses.
                let tos = value
                    .int()
                    .map_or_else(|_| value.0.first().copied(), |v| Some(v as u8));
                let tos = tos.ok_or_else(|| Failure::invalid("the option has no value"))?;
                let id = &state.link()?.id;
                return id.set_option(abi::RDMA_OPTION_ID, abi::RDMA_OPTION_ID_TOS, &tos);
            }
            (SOL_RDMA, _) => return state.set_rdma_option(name, value),
            _ => return Err(unknown(level, name)),
        }
        state.set_keep_alive();
        drop(state);
        service::attend(self)
    }

    /// `rgetsockopt`: the value's bytes.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Failure> {
        let mut state = self.lock();
        if (level, name) == (SOL_RDMA, RDMA_ROUTE) {
            return state.route();
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER) {
            let linger = state.options.linger;
            return Ok([linger.l_onoff, linger.l_linger]
                .into_iter()
                .flat_map(c_int::to_ne_bytes)
                .collect());
        }
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
            return Ok(state.tcp_info());
        }
        let value = state.number(level, name)?;
        Ok(value.to_ne_bytes().to_vec())
    }
}

fn seconds(value: Value<'_>) -> Result<c_int, Failure> {
    match value.int()? {
        seconds @ 1..=IDLE_MAX_S => Ok(seconds),
        other => Err(Failure::invalid(format!("{other} is no time in seconds"))),
    }
}

impl State {
    fn set_socket_option(&mut self, name: c_int, value: Value<'_>) -> Result<(), Failure> {
        let options = &mut self.options;
        match name {
            libc::SO_LINGER => options.linger = value.linger()?,
            libc::SO_OOBINLINE => options.out_of_band_inline = value.int()? != 0,
            libc::SO_RCVBUF => options.set_receive_buffer(value.int()?),
            libc::SO_SNDBUF => options.set_send_buffer(value.int()?),
            libc::SO_REUSEADDR => {
                options.reuse_address = value.int()? != 0;
                let reuse = c_int::from(options.reuse_address);
                let id = &self.link()?.id;
                id.set_option(abi::RDMA_OPTION_ID, abi::RDMA_OPTION_ID_REUSEADDR, &reuse)?;
            }
            _ => return Err(unknown(libc::SOL_SOCKET, name)),
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, name: c_int, value: Value<'_>) -> Result<(), Failure> {
        match name {
            // What is sent goes at once, always.
            libc::TCP_NODELAY => self.options.no_delay = value.int()? != 0,
            libc::TCP_KEEPINTVL => self.options.keep_alive.interval_s = seconds(value)?,
            libc::TCP_KEEPCNT => self.options.keep_alive.count = seconds(value)?,
            // Messages are cut by the device.
            libc::TCP_MAXSEG => {
                value.int()?;
            }
            _ => return Err(unknown(libc::IPPROTO_TCP, name)),
        }
        Ok(())
    }

    fn set_rdma_option(&mut self, name: c_int, value: Value<'_>) -> Result<(), Failure> {
        if !matches!(self.phase, Phase::New | Phase::Listening) {
            return Err(Failure::invalid(
                "RDMA options are set before the socket connects",
            ));
        }
        match name {
            RDMA_ROUTE => self.route = value.route()?,
            _ => self.options.set_rdma(SOL_RDMA, name, value.int()?)?,
        }
        Ok(())
    }

    fn set_keep_alive(&mut self) {
        let keep_alive = self.options.keep_alive;
        let idle = Duration::from_secs(u64::try_from(keep_alive.idle_s).unwrap_or(1));
        self.keep_alive_at = keep_alive.is_on.then(|| Instant::now() + idle);
    }

    fn number(&mut self, level: c_int, name: c_int) -> Result<c_int, Failure> {
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => return Ok(self.pending_error()),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => (self.phase == Phase::Listening).into(),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => self.segment(),
            _ => return self.options.number(level, name),
        };
        Ok(number)
    }

    /// `SO_ERROR`, which is told once.
    fn pending_error(&mut self) -> c_int {
        self.progress(None);
        if self.phase == Phase::Failed {
            return std::mem::replace(&mut self.error, 0);
        }
        let ending = self
            .connected()
            .and_then(|connection| connection.stream.ending());
        match ending {
            None | Some(super::Ending::Closed) => 0,
            ending => super::broken(ending).errno,
        }
    }

    /// The payload of a packet, which is what a segment is to TCP.
    fn segment(&self) -> c_int {
        const IB_MTU_MIN_BYTES: c_int = 128;
        let record = self.link.as_ref().and_then(|link| link.id.path_record());
        match record {
            // 1 is 256 bytes, 5 is 4096.
            Some(record @ abi::ibv_sa_path_rec { mtu: 1..=5, .. }) => {
                IB_MTU_MIN_BYTES << record.mtu
            }
            _ => IB_MTU_MIN_BYTES << 3,
        }
    }

    /// What there is of TCP's figures: its state and the length of a segment. Retransmissions and
    /// the like are the device's, which counts them for all together.
    fn tcp_info(&self) -> Vec<u8> {
        const ESTABLISHED: u8 = 1;
        const CLOSE: u8 = 7;
        const LISTEN: u8 = 10;
        let segment = self.segment().to_ne_bytes();
        let mut info = vec![0; size_of::<libc::tcp_info>()];
        info[offset_of!(libc::tcp_info, tcpi_state)] = match self.phase {
            Phase::Listening => LISTEN,
            Phase::Connected => ESTABLISHED,
            _ => CLOSE,
        };
        for field in [
            offset_of!(libc::tcp_info, tcpi_snd_mss),
            offset_of!(libc::tcp_info, tcpi_rcv_mss),
        ] {
            info[field..field + segment.len()].copy_from_slice(&segment);
        }
        info
    }

    /// `RDMA_ROUTE`: what the program has set, or the path of the connection.
    fn route(&self) -> Result<Vec<u8>, Failure> {
        let paths = match (&self.route[..], &self.link) {
            ([], Some(link)) => link.id.path_record().map(path).into_iter().collect(),
            (set, _) => set.to_vec(),
        };
        if paths.is_empty() {
            return Err(Failure::new(libc::ENODATA, "there is no route yet"));
        }
        let bytes = |path: &abi::ibv_path_data| {
            let length = size_of::<abi::ibv_path_data>();
            // SAFETY: integers without gaps, see the layout asserts of the mirror.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(path).cast::<u8>(), length) }
                .to_vec()
        };
        Ok(paths.iter().flat_map(bytes).collect())
    }
}

/// A path record of the connection manager in the form that administration uses.
fn path(record: &abi::ibv_sa_path_rec) -> abi::ibv_path_data {
    let flow = u32::from_be(record.flow_label) << 8 | u32::from(record.hop_limit);
    abi::ibv_path_data {
        flags: abi::IBV_PATH_FLAG_GMP
            | abi::IBV_PATH_FLAG_PRIMARY
            | abi::IBV_PATH_FLAG_BIDIRECTIONAL,
        reserved: 0,
        path: abi::ibv_path_record {
            service_id: 0,
            dgid: record.dgid,
            sgid: record.sgid,
            dlid: record.dlid,
            slid: record.slid,
            flowlabel_hoplimit: flow.to_be(),
            tclass: record.traffic_class,
            reversible_numpath: abi::IBV_PATH_RECORD_REVERSIBLE as u8 | 1,
            pkey: record.pkey,
            qosclass_sl: u16::from(record.sl & 0xf).to_be(),
            mtu: record.mtu | record.mtu_selector << 6,
            rate: record.rate | record.rate_selector << 6,
            packetlifetime: record.packet_life_time | record.packet_life_time_selector << 6,
            preference: record.preference,
            reserved: [0; 6],
        },
    }
}
