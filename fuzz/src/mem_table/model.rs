//! The rules of regions and windows, told plainly and slowly.

use feroce_mem::{Access, BindRequest, Key, PdId, WindowType};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) pd: PdId,
    /// Bytes of the arena.
    pub(super) place: Range<usize>,
    /// Address of the first of them.
    pub(super) iova: u64,
    pub(super) access: Access,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    pd: PdId,
    kind: WindowType,
    binding: Option<Binding>,
}

#[derive(Clone, Debug)]
pub(super) struct Binding {
    region: Key,
    place: Range<usize>,
    /// Address of the first byte.
    base: u64,
    access: Access,
    qp: u32,
}

/// What someone asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub(super) pd: PdId,
    pub(super) qp: u32,
    pub(super) key: Key,
    pub(super) address: u64,
    pub(super) len: usize,
    pub(super) access: Access,
}

/// What a table should hold, by the keys of now.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) regions: BTreeMap<Key, Region>,
    pub(super) windows: BTreeMap<Key, Window>,
    slots: usize,
}

/// Every right that a peer can have.
pub(super) const REMOTE: Access = WRITES
    .union(Access::REMOTE_READ)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// Rights of peers that change memory.
const WRITES: Access = Access::REMOTE_WRITE.union(Access::REMOTE_ATOMIC);

impl Region {
    pub(super) fn is_possible(&self) -> bool {
        let wraps = self.iova.checked_add(self.place.len() as u64).is_none();
        let peers_write = self.access.intersects(WRITES);
        !wraps && (!peers_write || self.access.contains(Access::LOCAL_WRITE))
    }
}

impl Model {
    pub(super) const fn new(slots: usize) -> Self {
        Self {
            regions: BTreeMap::new(),
            windows: BTreeMap::new(),
            slots,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.regions.len() + self.windows.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == self.slots
    }

    pub(super) fn insert_region(&mut self, key: Key, region: Region) {
        assert!(!self.windows.contains_key(&key));
        assert!(self.regions.insert(key, region).is_none(), "{key} twice");
    }

    pub(super) fn insert_window(&mut self, key: Key, pd: PdId, kind: WindowType) {
        assert!(!self.regions.contains_key(&key));
        let window = Window {
            pd,
            kind,
            binding: None,
        };
        assert!(self.windows.insert(key, window).is_none(), "{key} twice");
    }

    /// Where the addresses of a key begin.
    pub(super) fn base(&self, key: Key) -> u64 {
        let binding = self
            .windows
            .get(&key)
            .and_then(|window| window.binding.as_ref());
        match (self.regions.get(&key), binding) {
            (Some(region), _) => region.iova,
            (None, Some(binding)) => binding.base,
            (None, None) => 0,
        }
    }

    pub(super) fn has_windows(&self, region: Key) -> bool {
        let mut bindings = self
            .windows
            .values()
            .filter_map(|window| window.binding.as_ref());
        bindings.any(|binding| binding.region == region)
    }

    /// The key of now of the window that had `key` at some time.
    pub(super) fn window_in_slot_of(&self, key: Key) -> Option<Key> {
        self.windows
            .keys()
            .copied()
            .find(|present| present.index() == key.index())
    }

    /// What a bind should lead to: `None` if it is refused, `Some(None)` if it unbinds.
    pub(super) fn judge_bind(&self, request: &BindRequest) -> Option<Option<Binding>> {
        let present = self.window_in_slot_of(request.window)?;
        let window = &self.windows[&present];
        if window.pd != request.pd || window.kind != request.window_type {
            return None;
        }
        let refused = match window.kind {
            WindowType::One => present.tag() == request.tag,
            WindowType::Two => window.binding.is_some() || request.length == 0,
        };
        if refused {
            return None;
        }
        if request.length == 0 {
            return Some(None);
        }
        let region = self
            .regions
            .get(&request.region)
            .filter(|region| region.pd == request.pd)?;
        let allowed = REMOTE
            .union(Access::LOCAL_WRITE)
            .union(Access::ZERO_BASED)
            .union(Access::RELAXED_ORDERING);
        let writes = request.access.intersects(WRITES);
        if !allowed.contains(request.access)
            || !region.access.contains(Access::MW_BIND)
            || region.access.contains(Access::ZERO_BASED)
            || (writes && !region.access.contains(Access::LOCAL_WRITE))
        {
            return None;
        }
        let zero_based = request.access.contains(Access::ZERO_BASED);
        let len = usize::try_from(request.length).ok()?;
        Some(Some(Binding {
            region: request.region,
            place: part(&region.place, region.iova, request.address, len)?,
            base: if zero_based { 0 } else { request.address },
            access: request.access,
            qp: request.qp,
        }))
    }

    /// Gives the window in the slot of `key` that key and this binding.
    pub(super) fn rebind(&mut self, key: Key, binding: Option<Binding>) {
        let present = self.window_in_slot_of(key).expect("judged before");
        let mut window = self.windows.remove(&present).expect("just found");
        window.binding = binding;
        assert!(self.windows.insert(key, window).is_none());
    }

    pub(super) fn invalidate(&mut self, key: Key, pd: PdId, qp: u32) -> bool {
        let Some(window) = self.windows.get_mut(&key) else {
            return false;
        };
        let bound_by_it = window
            .binding
            .as_ref()
            .is_some_and(|binding| binding.qp == qp);
        let done = window.kind == WindowType::Two && window.pd == pd && bound_by_it;
        if done {
            window.binding = None;
        }
        done
    }

    pub(super) fn release_qp(&mut self, qp: u32) -> usize {
        let mut released = 0;
        for window in self
            .windows
            .values_mut()
            .filter(|window| window.kind == WindowType::Two)
        {
            if window.binding.take_if(|binding| binding.qp == qp).is_some() {
                released += 1;
            }
        }
        released
    }

    /// Where a local claim lies, if it should be granted.
    pub(super) fn local_place(&self, claimed: &Claimed) -> Option<Range<usize>> {
        let region = self.regions.get(&claimed.key)?;
        let granted = region.pd == claimed.pd && region.access.contains(claimed.access);
        granted.then(|| part(&region.place, region.iova, claimed.address, claimed.len))?
    }

    /// Where a peer's claim lies, if it should be granted.
    pub(super) fn remote_place(&self, claimed: &Claimed) -> Option<Range<usize>> {
        let Claimed {
            pd,
            qp,
            key,
            address,
            len,
            access,
        } = *claimed;
        let (place, base) = self.target(key, pd, qp, access)?;
        part(&place, base, address, len)
    }

    /// Where all that a peer's key names lies, if it should be granted.
    pub(super) fn whole_place(
        &self,
        key: Key,
        pd: PdId,
        qp: u32,
        access: Access,
    ) -> Option<Range<usize>> {
        self.target(key, pd, qp, access).map(|(place, _)| place)
    }

    fn target(&self, key: Key, pd: PdId, qp: u32, access: Access) -> Option<(Range<usize>, u64)> {
        let (owner, granted, place, base) = match (self.regions.get(&key), self.windows.get(&key)) {
            (Some(region), _) => (region.pd, region.access, region.place.clone(), region.iova),
            (None, Some(window)) => {
                let binding = window.binding.as_ref()?;
                if window.kind == WindowType::Two && binding.qp != qp {
                    return None;
                }
                (
                    window.pd,
                    binding.access,
                    binding.place.clone(),
                    binding.base,
                )
            }
            (None, None) => return None,
        };
        let allowed = owner == pd && granted.contains(access) && access.intersects(REMOTE);
        allowed.then_some((place, base))
    }
}

/// The part of `whole` that `len` bytes from `address` are, if it is all inside.
fn part(whole: &Range<usize>, base: u64, address: u64, len: usize) -> Option<Range<usize>> {
    let offset = i128::from(address) - i128::from(base);
    if offset < 0 || offset + len as i128 > whole.len() as i128 {
        return None;
    }
    let start = whole.start + usize::try_from(offset).ok()?;
    Some(start..start + len)
}
