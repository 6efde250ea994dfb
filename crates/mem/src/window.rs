//! Memory windows: rights that peers get to a part of a region for a while.
//!
//! Type 1 is bound by a verb of its own, and can be bound again at any time. Type 2 (here 2B) is
//! bound by a work request to that request's queue pair, and must be invalidated before it is
//! bound again. Read IBTA volume 1, 10.6.6 and 10.6.7 first. What is not here: when a bind takes
//! place among other work requests; that is `proto`'s.

use crate::region::Region;
use crate::table::{Entry, Table};
use crate::{Access, AccessError, InvalidateFault, Key, PdId, RegisterError};
use core::cell::Cell;

/// The two types of windows of `ibv_mw_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowType {
    /// Any queue pair of its protection domain may use it.
    One,
    /// Only the queue pair that bound it may use it (type 2B: and only within its domain).
    Two,
}

/// A window, bound or not.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) pd: PdId,
    pub(crate) kind: WindowType,
    pub(crate) binding: Cell<Option<Binding>>,
}

/// What a bound window grants. Its region counts it, and so cannot go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Slot of the region.
    pub(crate) region: u32,
    /// First byte in the region's memory; `offset + length` is inside.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Address of the first byte in claims.
    base: u64,
    pub(crate) access: Access,
    /// The queue pair that bound it.
    pub(crate) qp: u32,
}

impl Binding {
    /// Where in the region's memory the range begins, if it is all inside the window.
    #[inline]
    pub(crate) fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        let end = offset.checked_add(length)?;
        // No wrap: the window is inside the region.
        (end <= self.length).then(|| self.offset + offset)
    }
}

/// What a window is to be bound to, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindRequest {
    /// Protection domain of the queue pair.
    pub pd: PdId,
    /// The queue pair that executes the request, 24 bits.
    pub qp: u32,
    /// The window, under any key it ever had: only the index counts.
    pub window: Key,
    /// The type of window that the verb used is for: `One` for `ibv_bind_mw`, `Two` for a
    /// `IBV_WR_BIND_MW` work request.
    pub window_type: WindowType,
    /// Low byte of the window's next key. For type 2 the program chooses it; for type 1 the
    /// verb does, and it must differ from the current one.
    pub tag: u8,
    /// The region; not looked at when `length` is 0.
    pub region: Key,
    /// First byte, in the region's terms.
    pub address: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// Rights of peers, and ZERO_BASED if the window's addresses count from 0. LOCAL_WRITE is
    /// tolerated and means nothing.
    pub access: Access,
}

impl Table {
    /// Makes a window, not bound yet (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`RegisterError::TableFull`].
    pub fn alloc_window(&mut self, pd: PdId, kind: WindowType) -> Result<Key, RegisterError> {
        self.insert(Entry::Window(Window {
            pd,
            kind,
            binding: Cell::new(None),
        }))
    }

    /// Unbinds and removes a window, under any key it ever had (`ibv_dealloc_mw`).
    ///
    /// # Errors
    /// [`BindError::UnknownWindow`].
    pub fn dealloc_window(&mut self, window: Key) -> Result<(), BindError> {
        self.unbind(self.window(window)?);
        self.remove(window.index());
        Ok(())
    }

    /// Binds a window, or unbinds one of type 1 when the length is 0; returns its new key.
    ///
    /// # Errors
    /// [`BindError`]; the window is as it was.
    pub fn bind(&self, request: &BindRequest) -> Result<Key, BindError> {
        let window = self.window(request.window)?;
        self.check_window(request, window)?;
        let binding = match request.length {
            0 => None,
            _ => Some(self.check_region(request)?),
        };
        self.unbind(window);
        if let Some(binding) = binding {
            self.count(window, &binding, 1);
        }
        window.binding.set(binding);
        if let Some(slot) = self.slot_at(request.window.index()) {
            slot.tag.set(request.tag);
        }
        Ok(request.window.with_tag(request.tag))
    }

    /// Invalidates the binding of a type 2 window, for a local invalidate of queue pair `qp` or
    /// a SEND with invalidate that it received. The window can then be bound again.
    ///
    /// # Errors
    /// [`InvalidateFault`]; nothing is changed.
    pub fn invalidate(&self, key: Key, pd: PdId, qp: u32) -> Result<(), InvalidateFault> {
        let window = match self.slot(key).map(|slot| &slot.entry) {
            Some(Entry::Window(window)) if window.kind == WindowType::Two => window,
            Some(Entry::Window(_) | Entry::Region(_)) => {
                return Err(InvalidateFault::NotType2(key));
            }
            Some(Entry::Free) | None => return Err(InvalidateFault::UnknownKey(key)),
        };
        let binding = window.binding.get().ok_or(InvalidateFault::Unbound(key))?;
        if window.pd != pd {
            return Err(InvalidateFault::WrongPd(key, window.pd));
        }
        if binding.qp != qp {
            return Err(InvalidateFault::WrongQp(key, binding.qp));
        }
        self.unbind(window);
        Ok(())
    }

    /// Invalidates all type 2 windows bound to a queue pair that is reset or destroyed, so that
    /// the next one of that number cannot use them; returns how many.
    pub fn release_qp(&self, qp: u32) -> usize {
        if self.bound_type_2.get() == 0 {
            return 0;
        }
        let mut released = 0;
        for slot in self.slots() {
            if let Entry::Window(window) = &slot.entry
                && window.kind == WindowType::Two
                && window.binding.get().is_some_and(|binding| binding.qp == qp)
            {
                self.unbind(window);
                released += 1;
            }
        }
        released
    }

    fn window(&self, key: Key) -> Result<&Window, BindError> {
        match self.slot_at(key.index()).map(|slot| &slot.entry) {
            Some(Entry::Window(window)) => Ok(window),
            _ => Err(BindError::UnknownWindow(key)),
        }
    }

    /// Whether the window can be bound by this request, whatever to.
    fn check_window(&self, request: &BindRequest, window: &Window) -> Result<(), BindError> {
        let key = request.window;
        if window.pd != request.pd {
            return Err(BindError::WindowPd(key, window.pd));
        }
        if window.kind != request.window_type {
            return Err(BindError::WrongType(key));
        }
        match window.kind {
            WindowType::One => {
                let slot = self.slot_at(key.index());
                if slot.is_some_and(|slot| slot.tag.get() == request.tag) {
                    return Err(BindError::KeyNotNew(key.with_tag(request.tag)));
                }
            }
            WindowType::Two if request.length == 0 => return Err(BindError::ZeroLength(key)),
            WindowType::Two if window.binding.get().is_some() => {
                return Err(BindError::AlreadyBound(key));
            }
            WindowType::Two => {}
        }
        Ok(())
    }

    /// Whether the region can be bound to as the request, of some length, wants.
    fn check_region(&self, request: &BindRequest) -> Result<Binding, BindError> {
        let access = request.access;
        let key = request.region;
        let region = self.region(key).ok_or(BindError::UnknownRegion(key))?;
        if region.pd != request.pd {
            return Err(BindError::RegionPd(key, region.pd));
        }
        if !WINDOW_ACCESS.contains(access) {
            return Err(BindError::Access(access));
        }
        if !region.access.contains(Access::MW_BIND) {
            return Err(BindError::NotBindable(key));
        }
        if region.access.contains(Access::ZERO_BASED) {
            return Err(BindError::ZeroBasedRegion(key));
        }
        if access.needs_local_write() && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(BindError::RegionAccess(AccessError::NeedsLocalWrite(
                access,
            )));
        }
        let Some(offset) = region.offset_of(request.address, request.length) else {
            return Err(BindError::OutOfRange {
                region: key,
                address: request.address,
                length: request.length,
            });
        };
        Ok(Binding {
            region: key.index(),
            offset,
            length: request.length,
            base: if access.contains(Access::ZERO_BASED) {
                0
            } else {
                request.address
            },
            access,
            qp: request.qp,
        })
    }

    /// Takes a window's binding away, if it has one.
    fn unbind(&self, window: &Window) {
        if let Some(binding) = window.binding.take() {
            self.count(window, &binding, -1);
        }
    }

    /// Enters a binding in, or strikes it from, the two counts that must know of it.
    fn count(&self, window: &Window, binding: &Binding, change: i32) {
        let add = |cell: &Cell<u32>| {
            let sum = cell.get().checked_add_signed(change);
            cell.set(sum.expect("a binding is struck as often as it was entered"));
        };
        let region: Option<&Region> = self.region_at(binding.region);
        add(&region.expect("a bound region stays").windows);
        if window.kind == WindowType::Two {
            add(&self.bound_type_2);
        }
    }
}

/// What a bind request may ask for.
const WINDOW_ACCESS: Access = Access::REMOTE
    .union(Access::LOCAL_WRITE)
    .union(Access::ZERO_BASED)
    .union(Access::RELAXED_ORDERING);

/// Why a window cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindError {
    /// Rights that a window cannot have; holds all that were asked for.
    #[error("access {0}: a window can have remote and flush rights and ZERO_BASED")]
    Access(Access),
    /// A type 2 window that is bound.
    #[error("the type 2 window of key {0} is bound: invalidate it first")]
    AlreadyBound(Key),
    /// A type 1 window would keep its key.
    #[error("the window would keep key {0}: bind it under another tag")]
    KeyNotNew(Key),
    /// The region has no MW_BIND.
    #[error("the region of key {0} was registered without MW_BIND")]
    NotBindable(Key),
    /// The range is not all inside the region.
    #[error("{length} bytes from {address:#x} are outside of the region of key {region}")]
    OutOfRange {
        /// The region's key.
        region: Key,
        /// First byte.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// The region's rights do not allow the window's.
    #[error("the region does not allow it: {0}")]
    RegionAccess(AccessError),
    /// The region is of another protection domain, given, than the queue pair.
    #[error("the region of key {0} is in protection domain {1}, not that of the queue pair")]
    RegionPd(Key, PdId),
    /// No region has this key now.
    #[error("key {0} names no region to bind to")]
    UnknownRegion(Key),
    /// No window is in this key's slot.
    #[error("key {0} names no window")]
    UnknownWindow(Key),
    /// The window is of another protection domain, given, than the queue pair.
    #[error("the window of key {0} is in protection domain {1}, not that of the queue pair")]
    WindowPd(Key, PdId),
    /// The verb is for the other type of window.
    #[error("key {0}: bind type 1 windows by ibv_bind_mw, type 2 by an IBV_WR_BIND_MW request")]
    WrongType(Key),
    /// The region's addresses count from 0.
    #[error("the region of key {0} is zero-based: windows cannot be bound to it")]
    ZeroBasedRegion(Key),
    /// Only type 1 windows are unbound by binding.
    #[error("a bind of no bytes: the type 2 window of key {0} is unbound by invalidating it")]
    ZeroLength(Key),
}

#[cfg(test)]
mod tests;
