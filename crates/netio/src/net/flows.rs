//! Sockets for single remote flows.
//!
//! A remote peer only knows the shared port, and among the sockets bound to it the kernel picks
//! one by a hash of the flow: in most processes the wrong one. A socket *connected* to the flow's
//! source wins over all others, so it ends the detour by the slot. It only ever receives: what
//! leaves a connected socket carries an unpredictable identification.

use std::net::{IpAddr, SocketAddr};

use super::sockets::{OpenError, Role, Socket};
use super::{Net, sys};

/// A flow that was silent this long may be given up for a new one nobody asked for by name.
const IDLE_MS: u64 = 1_000;

/// Least time between two sockets opened unasked: a stranger who sends from ever new ports costs
/// a hundred sockets a second, not a system call per packet.
const PAUSE_MS: u64 = 10;

impl Net {
    /// Has the kernel deliver the datagrams from `peer` (address and source port) to `local` to
    /// this process rather than to another that shares the port. When all sockets for flows are
    /// in use the one that was silent longest is given up.
    ///
    /// # Errors
    /// When the socket cannot be opened: then the detour stays. An address that is not served is
    /// [`OpenError::AddressUnavailable`].
    pub fn prefer_flow(&mut self, local: IpAddr, peer: SocketAddr) -> Result<(), OpenError> {
        let now_ms = sys::monotonic_coarse_ms();
        if self.flows_max == 0 {
            return Ok(());
        }
        if self.local(local).is_none() {
            return Err(OpenError::AddressUnavailable(local));
        }
        if let Some(token) = self.find_flow(local, peer) {
            self.sockets[token].used_ms = now_ms;
            return Ok(());
        }
        if self.flows.len() >= self.flows_max
            && let Some((position, _)) = self.oldest_flow()
        {
            let token = self.flows.swap_remove(position);
            self.sockets.remove(token);
        }
        let fd = self.setup.flow(local, &peer)?;
        let mut socket = Socket::new(fd, Role::Flow(peer), local);
        socket.used_ms = now_ms;
        let token = self.watch(socket)?;
        self.flows.push(token);
        self.counters.flows_opened += 1;
        Ok(())
    }

    /// Called for what another process handed on: opens a socket for the flow unless that would
    /// disturb others.
    pub(super) fn adopt_flow(&mut self, local: IpAddr, peer: SocketAddr) {
        let now_ms = sys::monotonic_coarse_ms();
        if now_ms.saturating_sub(self.flow_opened_ms) < PAUSE_MS
            || self.find_flow(local, peer).is_some()
        {
            return;
        }
        let idle = |used_ms| now_ms.saturating_sub(used_ms) >= IDLE_MS;
        let full = self.flows.len() >= self.flows_max;
        if full && !self.oldest_flow().is_some_and(|(_, used_ms)| idle(used_ms)) {
            return;
        }
        self.flow_opened_ms = now_ms;
        if let Err(error) = self.prefer_flow(local, peer) {
            log::debug!("packets from {peer} to {local} keep coming by a detour: {error}");
        }
    }

    pub(super) fn find_flow(&self, local: IpAddr, peer: SocketAddr) -> Option<usize> {
        self.flows.iter().copied().find(|token| {
            let socket = &self.sockets[*token];
            socket.address == local && socket.role == Role::Flow(peer)
        })
    }

    /// Position and last use of the flow that was silent longest.
    fn oldest_flow(&self) -> Option<(usize, u64)> {
        let used = |token: &usize| self.sockets[*token].used_ms;
        let oldest = self.flows.iter().enumerate().min_by_key(|(_, t)| used(t));
        oldest.map(|(position, token)| (position, used(token)))
    }
}
