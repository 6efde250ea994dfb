//! The table of one device: which key names which memory, and who may do what with it.
//!
//! What it is not: locked. The engine owns it behind its own lock. Lookups are the hot path:
//! one index, a few comparisons, no allocation. Read IBTA volume 1, 10.6 (memory management)
//! first. The verbs of windows are in `window`.

use crate::grant::Rights;
use crate::limits::{QUARANTINE_SLOTS, SLOTS_MAX};
use crate::region::Region;
use crate::window::{Binding, Window, WindowType};
use crate::{Access, Claim, Grant, Key, LocalFault, Memory, PdId, RegisterError, RemoteFault};
use core::cell::Cell;
use std::collections::VecDeque;

/// All regions and windows of one device.
///
/// What changes bindings of windows takes `&self`, so that grants may be alive; what takes memory
/// away from regions takes `&mut self`, so that none is.
#[derive(Debug)]
pub struct Table {
    slots: Vec<Slot>,
    /// Free slots, the longest unused first.
    free: VecDeque<u32>,
    slots_max: u32,
    /// Bound type 2 windows, so that destroying a queue pair need not search for none.
    pub(crate) bound_type_2: Cell<u32>,
}

/// One place for a region or window, with its generation.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) tag: Cell<u8>,
    pub(crate) entry: Entry,
}

#[derive(Debug)]
pub(crate) enum Entry {
    Free,
    Region(Region),
    Window(Window),
}

/// What this device does with a range for a local work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalUse {
    /// It reads (gather).
    Read,
    /// It writes (scatter); needs LOCAL_WRITE.
    Write,
}

/// What of a region [`Table::reregister`] changes; `None` stays.
#[derive(Debug, Default)]
pub struct Change {
    /// New memory, and the address its first byte gets.
    pub translation: Option<(Memory, u64)>,
    /// New protection domain.
    pub pd: Option<PdId>,
    /// New rights.
    pub access: Option<Access>,
}

impl Table {
    /// An empty table for as many regions and windows as keys can name.
    pub fn new() -> Self {
        Self::with_limit(SLOTS_MAX)
    }

    /// An empty table for at most `slots_max` regions and windows together.
    pub fn with_limit(slots_max: u32) -> Self {
        let unused = Slot {
            tag: Cell::new(0),
            entry: Entry::Free,
        };
        Self {
            slots: vec![unused],
            free: VecDeque::new(),
            slots_max: slots_max.min(SLOTS_MAX),
            bound_type_2: Cell::new(0),
        }
    }

    /// Registers `memory` for work in `pd`; its first byte gets the address `iova`, or 0 if it
    /// is zero-based, null or the address space. Length 0 is allowed.
    ///
    /// Host memory without ON_DEMAND must be mapped all over; whether it can be read, and with
    /// LOCAL_WRITE written, is tried on its first and last page.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing is registered then.
    pub fn register(
        &mut self,
        pd: PdId,
        memory: Memory,
        iova: u64,
        access: Access,
    ) -> Result<Key, RegisterError> {
        let region = Region::new(pd, memory, iova, access)?;
        self.insert(Entry::Region(region))
    }

    /// Changes a region in place (`ibv_rereg_mr`). On an error it is as it was.
    ///
    /// A new translation gives a new key, since old claims would mean other memory; other
    /// changes keep it.
    ///
    /// # Errors
    /// [`ReregisterError`].
    pub fn reregister(&mut self, key: Key, change: Change) -> Result<Key, ReregisterError> {
        let slot = self.slot_mut(key);
        let Some((slot, Entry::Region(region))) = slot.map(|slot| (&slot.tag, &mut slot.entry))
        else {
            return Err(DeregisterError::UnknownKey(key).into());
        };
        region.check_unbound(key)?;
        if region.is_null() {
            return Err(ReregisterError::NullRegion(key));
        }
        let moved = change.translation.is_some();
        let (memory, iova) = change
            .translation
            .unwrap_or_else(|| region.translation_again());
        let pd = change.pd.unwrap_or(region.pd);
        let access = change.access.unwrap_or(region.access);
        *region = Region::new(pd, memory, iova, access)?;
        if moved {
            slot.set(slot.get().wrapping_add(1));
        }
        Ok(key.with_tag(slot.get()))
    }

    /// Deregisters a region: its key names nothing any more, its memory is left alone.
    ///
    /// # Errors
    /// [`DeregisterError`].
    pub fn deregister(&mut self, key: Key) -> Result<(), DeregisterError> {
        match self.slot_mut(key).map(|slot| &slot.entry) {
            Some(Entry::Region(region)) => region.check_unbound(key)?,
            _ => return Err(DeregisterError::UnknownKey(key)),
        }
        self.remove(key.index());
        Ok(())
    }

    /// The range that a local work request of a queue pair in `pd` names. Length 0 is always
    /// granted: it names nothing, and the key is not looked at.
    ///
    /// # Errors
    /// [`LocalFault`]: the work request fails.
    #[inline]
    pub fn local(
        &self,
        pd: PdId,
        key: Key,
        address: u64,
        len: usize,
        usage: LocalUse,
    ) -> Result<Grant<'_>, LocalFault> {
        if len == 0 {
            return Ok(Grant::empty());
        }
        let length = len as u64;
        let claim = Claim {
            key,
            address,
            length,
        };
        let Some(region) = self.region(key) else {
            return Err(LocalFault::UnknownKey(claim));
        };
        if region.pd != pd {
            return Err(LocalFault::WrongPd(claim, region.pd));
        }
        let rights = match usage {
            LocalUse::Read => Rights::READ,
            LocalUse::Write if region.access.contains(Access::LOCAL_WRITE) => {
                Rights::READ.with(Rights::WRITE)
            }
            LocalUse::Write => return Err(LocalFault::NotPermitted(claim)),
        };
        match region.offset_of(address, length) {
            Some(offset) => Ok(region.grant(offset, length, rights)),
            None => Err(LocalFault::OutOfRange(claim)),
        }
    }

    /// The range that the peer of queue pair `qp` in `pd` names, for `access` (one or more of
    /// the remote and flush rights). Length 0 is always granted: the key is not checked.
    ///
    /// # Errors
    /// [`RemoteFault`]: the peer gets a NAK. Without any right in `access` nothing is granted.
    #[inline]
    pub fn remote(
        &self,
        pd: PdId,
        qp: u32,
        key: Key,
        address: u64,
        len: usize,
        access: Access,
    ) -> Result<Grant<'_>, RemoteFault> {
        if len == 0 {
            return Ok(Grant::empty());
        }
        let length = len as u64;
        let claim = Claim {
            key,
            address,
            length,
        };
        let target = self.target(pd, qp, claim, access)?;
        match target.offset_of(address, length) {
            Some(offset) => Ok(target.region.grant(offset, length, rights_of(access))),
            None => Err(RemoteFault::OutOfRange(claim)),
        }
    }

    /// All of the region or window that the peer of queue pair `qp` in `pd` names (FLUSH of a
    /// whole region, IBTA annex A19).
    ///
    /// # Errors
    /// As for [`Table::remote`].
    pub fn remote_whole(
        &self,
        pd: PdId,
        qp: u32,
        key: Key,
        access: Access,
    ) -> Result<Grant<'_>, RemoteFault> {
        let claim = Claim {
            key,
            address: 0,
            length: 0,
        };
        let target = self.target(pd, qp, claim, access)?;
        let (offset, length) = match target.binding {
            Some(binding) => (binding.offset, binding.length),
            None => (0, target.region.len()),
        };
        Ok(target.region.grant(offset, length, rights_of(access)))
    }

    /// How many regions and windows there are.
    pub fn len(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a region or window belongs to `pd`, which then cannot be deallocated. Looks at
    /// every slot.
    pub fn is_pd_in_use(&self, pd: PdId) -> bool {
        self.slots.iter().any(|slot| match &slot.entry {
            Entry::Free => false,
            Entry::Region(region) => region.pd == pd,
            Entry::Window(window) => window.pd == pd,
        })
    }

    /// What a remote key names, if `access` to it is allowed at all; the range is not checked.
    #[inline]
    fn target(
        &self,
        pd: PdId,
        qp: u32,
        claim: Claim,
        access: Access,
    ) -> Result<Target<'_>, RemoteFault> {
        let (owner, granted, target) = match self.slot(claim.key).map(|slot| &slot.entry) {
            Some(Entry::Region(region)) => {
                let target = Target {
                    region,
                    binding: None,
                };
                (region.pd, region.access, target)
            }
            Some(Entry::Window(window)) => {
                let Some((binding, region)) = window.binding.get().and_then(|binding| {
                    let region = self.region_at(binding.region)?;
                    Some((binding, region))
                }) else {
                    return Err(RemoteFault::Unbound(claim));
                };
                if window.kind == WindowType::Two && binding.qp != qp {
                    return Err(RemoteFault::WrongQp(claim, binding.qp));
                }
                let target = Target {
                    region,
                    binding: Some(binding),
                };
                (window.pd, binding.access, target)
            }
            Some(Entry::Free) | None => return Err(RemoteFault::UnknownKey(claim)),
        };
        if owner != pd {
            return Err(RemoteFault::WrongPd(claim, owner));
        }
        if !access.intersects(Access::REMOTE) || !granted.contains(access) {
            return Err(RemoteFault::NotPermitted(claim, access));
        }
        Ok(target)
    }

    /// The region that has `key` now.
    #[inline]
    pub(crate) fn region(&self, key: Key) -> Option<&Region> {
        match &self.slot(key)?.entry {
            Entry::Region(region) => Some(region),
            _ => None,
        }
    }

    /// The region in slot `index`, under whatever key.
    #[inline]
    pub(crate) fn region_at(&self, index: u32) -> Option<&Region> {
        match &self.slots.get(index as usize)?.entry {
            Entry::Region(region) => Some(region),
            _ => None,
        }
    }

    /// The slot that `key` names now; it may be free.
    #[inline]
    pub(crate) fn slot(&self, key: Key) -> Option<&Slot> {
        let slot = self.slots.get(key.index() as usize)?;
        (slot.tag.get() == key.tag()).then_some(slot)
    }

    /// The slot that a key of any tag names; it may be free.
    pub(crate) fn slot_at(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn slot_mut(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        (slot.tag.get() == key.tag()).then_some(slot)
    }

    /// Finds a slot for `entry`: a new one while few are free, so that old keys rest long.
    pub(crate) fn insert(&mut self, entry: Entry) -> Result<Key, RegisterError> {
        let full = self.slots.len() > self.slots_max as usize;
        if full || self.free.len() >= QUARANTINE_SLOTS {
            let index = self.free.pop_front().ok_or(RegisterError::TableFull {
                limit: self.slots_max,
            })?;
            let slot = &mut self.slots[index as usize];
            slot.entry = entry;
            return Ok(Key::new(index, slot.tag.get()));
        }
        // At most `slots_max`, which has 24 bits.
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            tag: Cell::new(0),
            entry,
        });
        Ok(Key::new(index, 0))
    }

    /// Frees a slot; no key it ever had names it until the tag has come round.
    pub(crate) fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.tag.set(slot.tag.get().wrapping_add(1));
        slot.entry = Entry::Free;
        self.free.push_back(index);
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

/// What a remote key names: a region, or a window's part of one.
struct Target<'t> {
    region: &'t Region,
    binding: Option<Binding>,
}

impl Target<'_> {
    /// Where in the region's memory the range begins, if it is all inside.
    #[inline]
    fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        match self.binding {
            Some(binding) => binding.offset_of(address, length),
            None => self.region.offset_of(address, length),
        }
    }
}

/// What a grant for remote `access` can be used for.
#[inline]
const fn rights_of(access: Access) -> Rights {
    let mut rights = Rights::NONE;
    if access.contains(Access::REMOTE_READ) {
        rights = rights.with(Rights::READ);
    }
    if access.contains(Access::REMOTE_WRITE) {
        rights = rights.with(Rights::WRITE);
    }
    if access.contains(Access::REMOTE_ATOMIC) {
        rights = rights.with(Rights::ATOMIC);
    }
    rights
}

/// Why a region cannot be deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeregisterError {
    /// No region has this key now.
    #[error("key {0} names no region")]
    UnknownKey(Key),
    /// Windows are bound to it; holds how many.
    #[error("{1} memory windows are bound to the region of key {0}: unbind or deallocate them")]
    Busy(Key, u32),
}

/// Why a region cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReregisterError {
    /// No region has this key, or windows are bound to it.
    #[error(transparent)]
    Region(#[from] DeregisterError),
    /// The null region cannot change.
    #[error("key {0} is of a null region, which cannot be reregistered")]
    NullRegion(Key),
    /// The new region is not possible.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

#[cfg(test)]
mod tests;
