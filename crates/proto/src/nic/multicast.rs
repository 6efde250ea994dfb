//! Multicast groups: which queue pairs a datagram to a group goes to. Joining the IP group is the
//! host's business.

use super::Nic;
use crate::{MulticastError, QpType};
use core::net::IpAddr;
use feroce_wire::Qpn;

impl Nic {
    /// Makes a UD queue pair receive what is sent to a multicast group.
    ///
    /// # Errors
    /// [`MulticastError`].
    pub fn attach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<(), MulticastError> {
        let index = self.qps.index_of(qpn);
        let index = index.ok_or(MulticastError::UnknownQp(qpn))?;
        if !group.is_multicast() {
            return Err(MulticastError::NotMulticast);
        }
        let max = self.shared.config.max_multicast_attach;
        let qp = self.qps.get_mut(index);
        let qp = qp.ok_or(MulticastError::UnknownQp(qpn))?;
        if qp.init.qp_type != QpType::Ud {
            return Err(MulticastError::NotDatagram(qpn));
        }
        let members = self.groups.entry(group).or_default();
        if members.contains(&index) {
            return Ok(());
        }
        if self.attachments >= max {
            if members.is_empty() {
                self.groups.remove(&group);
            }
            return Err(MulticastError::DeviceFull(max));
        }
        members.push(index);
        qp.groups += 1;
        self.attachments += 1;
        Ok(())
    }

    /// Whether a queue pair is attached to a multicast group: it cannot be destroyed then.
    pub fn is_attached(&self, qpn: Qpn) -> bool {
        self.qp(qpn).is_some_and(|qp| qp.groups > 0)
    }

    /// Ends an attachment.
    ///
    /// # Errors
    /// [`MulticastError`].
    pub fn detach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> Result<(), MulticastError> {
        let index = self.qps.index_of(qpn);
        let index = index.ok_or(MulticastError::UnknownQp(qpn))?;
        let members = self.groups.get_mut(&group);
        let members = members.ok_or(MulticastError::NotAttached(qpn))?;
        let place = members.iter().position(|&member| member == index);
        let place = place.ok_or(MulticastError::NotAttached(qpn))?;
        members.remove(place);
        if members.is_empty() {
            self.groups.remove(&group);
        }
        self.attachments = self.attachments.saturating_sub(1);
        if let Some(qp) = self.qps.get_mut(index) {
            qp.groups = qp.groups.saturating_sub(1);
        }
        Ok(())
    }
}
