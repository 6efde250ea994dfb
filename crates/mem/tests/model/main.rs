//! A table against a model of it that is too simple to be wrong: lists searched from the front,
//! numbers of 128 bits, and a plain copy of every byte.
//!
//! Replay: a failing run prints the shortest sequence of operations and saves its seed in
//! `tests/proptest-regressions/main.txt`; `cargo test -p feroce-mem --test model` runs that first.

use feroce_mem::{Access, BindRequest, Change, Key, LocalUse, Memory, PdId, Table, WindowType};
use ops::{Bind, Op, Place, REMOTE, Rights, Use, op};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, proptest};
use std::collections::HashMap;

mod ops;

/// Bytes of each buffer that regions are made of.
const BUFFER: usize = 64;

/// Regions and windows there can be; few, so that slots are used again.
const SLOTS: u32 = 5;

/// The model: what a region or window is.
#[derive(Clone)]
enum Thing {
    Region {
        pd: u32,
        buffer: usize,
        offset: usize,
        len: usize,
        iova: u64,
        access: Access,
    },
    Window {
        pd: u32,
        type_2: bool,
        bound: Option<Bound>,
    },
}

/// The model: what a window is bound to; the region by its place in the list of things.
#[derive(Clone, Copy)]
struct Bound {
    region: usize,
    qp: u32,
    base: u64,
    length: u64,
    address: u64,
    access: Access,
}

struct Pair {
    table: Table,
    buffers: Vec<Vec<u8>>,
    /// Every thing there ever was, with its key now; `None` once it is gone.
    things: Vec<Option<(Key, Thing)>>,
    /// Every key handed out, and the range it named at first, near whose ends it gets interesting.
    keys: Vec<(Key, u64, u64)>,
    /// The last key of every slot that was freed.
    gone: HashMap<u32, Key>,
    /// What the buffers must hold.
    bytes: Vec<Vec<u8>>,
}

impl Pair {
    fn new() -> Self {
        Self {
            table: Table::with_limit(SLOTS),
            buffers: vec![vec![0; BUFFER]; 2],
            things: Vec::new(),
            keys: vec![(Key(0x1234_5678), 0, 8)],
            gone: HashMap::new(),
            bytes: vec![vec![0; BUFFER]; 2],
        }
    }

    fn alive(&self) -> usize {
        self.things.iter().flatten().count()
    }

    /// The `nth` thing that is alive, counted round.
    fn pick(&self, nth: usize, windows: bool) -> Option<usize> {
        let alive: Vec<usize> = (0..self.things.len())
            .filter(|&at| match &self.things[at] {
                Some((_, Thing::Window { .. })) => windows,
                Some((_, Thing::Region { .. })) => !windows,
                None => false,
            })
            .collect();
        alive.get(nth % alive.len().max(1)).copied()
    }

    /// The thing that has this key now.
    fn by_key(&self, key: Key) -> Option<(usize, &Thing)> {
        let at = self
            .things
            .iter()
            .position(|thing| matches!(thing, Some((own, _)) if *own == key))?;
        self.things[at].as_ref().map(|(_, thing)| (at, thing))
    }

    /// A key that is given out names nothing else, and does not revive the last of its slot.
    fn check_new(&self, key: Key) {
        assert!(self.by_key(key).is_none(), "{key} is in use");
        assert_ne!(self.gone.get(&key.index()), Some(&key));
    }

    fn is_bound_to(&self, region: usize) -> bool {
        self.things.iter().flatten().any(|(_, thing)| {
            matches!(thing, Thing::Window { bound: Some(bound), .. } if bound.region == region)
        })
    }

    fn memory(&mut self, place: &Place) -> (Memory, usize, usize, usize, u64) {
        let buffer = place.buffer % self.buffers.len();
        let offset = place.offset % (BUFFER + 1);
        let len = place.len % (BUFFER - offset + 1);
        let start = self.buffers[buffer].as_mut_ptr().wrapping_add(offset);
        let iova = match place.iova {
            Some(below) => u64::MAX - len as u64 - below,
            None => start as u64,
        };
        // SAFETY: the buffers live as long as the table, and are looked at only while no grant is
        // in use.
        let memory = unsafe { Memory::from_raw(start, len) };
        (memory, buffer, offset, len, iova)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Register(place, pd, rights) => self.register(place, *pd, *rights),
            Op::Deregister(nth) => self.deregister(*nth),
            Op::Move(nth, place) => self.relocate(*nth, place),
            Op::Change(nth, pd, rights) => self.change(*nth, *pd, *rights),
            Op::AllocWindow(pd, type_2) => self.alloc_window(*pd, *type_2),
            Op::DeallocWindow(nth) => {
                if let Some(at) = self.pick(*nth, true) {
                    let (key, _) = self.things[at].take().expect("alive");
                    assert_eq!(self.table.dealloc_window(key), Ok(()));
                    self.gone.insert(key.index(), key);
                }
            }
            Op::Bind(bind) => self.bind(bind),
            Op::Invalidate(nth, pd, qp) => self.invalidate(*nth, *pd, *qp),
            Op::ReleaseQp(qp) => self.release_qp(*qp),
            Op::Local(usage, write) => self.local(usage, *write),
            Op::Remote(usage, rights, qp) => self.remote(usage, *rights, *qp),
        }
        assert_eq!(self.table.len(), self.alive());
        assert_eq!(self.buffers, self.bytes, "{op:?}");
    }

    fn register(&mut self, place: &Place, pd: u32, rights: Rights) {
        let (memory, buffer, offset, len, iova) = self.memory(place);
        let access = rights.access();
        let base = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            iova
        };
        let result = self.table.register(PdId(pd), memory, iova, access);
        let possible = rights.fits_region() && self.alive() < SLOTS as usize;
        assert_eq!(result.is_ok(), possible, "{result:?}");
        if let Ok(key) = result {
            self.check_new(key);
            self.keys.push((key, base, len as u64));
            let region = Thing::Region {
                pd,
                buffer,
                offset,
                len,
                iova: base,
                access,
            };
            self.things.push(Some((key, region)));
        }
    }

    fn deregister(&mut self, nth: usize) {
        let Some(at) = self.pick(nth, false) else {
            return;
        };
        let key = self.things[at].as_ref().expect("alive").0;
        let bound = self.is_bound_to(at);
        assert_eq!(self.table.deregister(key).is_err(), bound);
        if !bound {
            self.things[at] = None;
            self.gone.insert(key.index(), key);
            assert!(self.table.deregister(key).is_err());
        }
    }

    fn relocate(&mut self, nth: usize, place: &Place) {
        let Some(at) = self.pick(nth, false) else {
            return;
        };
        let (memory, to_buffer, to_offset, to_len, to_iova) = self.memory(place);
        let bound = self.is_bound_to(at);
        let Some((
            key,
            Thing::Region {
                buffer,
                offset,
                len,
                iova,
                access,
                ..
            },
        )) = self.things[at].as_mut()
        else {
            unreachable!("picked a region");
        };
        let to_iova = if access.contains(Access::ZERO_BASED) {
            0
        } else {
            to_iova
        };
        let change = Change {
            translation: Some((memory, to_iova)),
            ..Change::default()
        };
        let result = self.table.reregister(*key, change);
        assert_eq!(result.is_err(), bound);
        if let Ok(new) = result {
            assert_ne!(new, *key);
            *key = new;
            (*buffer, *offset, *len, *iova) = (to_buffer, to_offset, to_len, to_iova);
            self.keys.push((new, to_iova, to_len as u64));
        }
    }

    fn change(&mut self, nth: usize, to_pd: Option<u32>, rights: Option<Rights>) {
        let Some(at) = self.pick(nth, false) else {
            return;
        };
        // Zero-based stays as it was: its own test covers what happens else.
        let bound = self.is_bound_to(at);
        let Some((key, Thing::Region { pd, access, .. })) = self.things[at].as_mut() else {
            unreachable!("picked a region");
        };
        let zero_based = access.bits() & Access::ZERO_BASED.bits();
        let rights =
            rights.map(|rights| Rights(rights.0 & !Access::ZERO_BASED.bits() | zero_based));
        let change = Change {
            translation: None,
            pd: to_pd.map(PdId),
            access: rights.map(Rights::access),
        };
        let result = self.table.reregister(*key, change);
        let possible = !bound && rights.is_none_or(Rights::fits_region);
        assert_eq!(result.is_ok(), possible);
        if possible {
            assert_eq!(result, Ok(*key));
            *pd = to_pd.unwrap_or(*pd);
            *access = rights.map_or(*access, Rights::access);
        }
    }

    fn alloc_window(&mut self, pd: u32, type_2: bool) {
        let result = self.table.alloc_window(PdId(pd), window_type(type_2));
        assert_eq!(result.is_ok(), self.alive() < SLOTS as usize);
        if let Ok(key) = result {
            self.check_new(key);
            self.keys.push((key, 0, 8));
            let window = Thing::Window {
                pd,
                type_2,
                bound: None,
            };
            self.things.push(Some((key, window)));
        }
    }

    fn bind(&mut self, bind: &Bind) {
        let Some(at) = self.pick(bind.window, true) else {
            return;
        };
        let target = self.pick(bind.region, false);
        let (region, base) = match target.and_then(|at| self.things[at].as_ref()) {
            Some((key, Thing::Region { iova, .. })) => (*key, *iova),
            _ => (Key(0), 0),
        };
        let (key, thing) = self.things[at].clone().expect("alive");
        let request = BindRequest {
            pd: PdId(bind.pd),
            qp: bind.qp,
            window: key.with_tag(bind.tag.wrapping_mul(3)),
            window_type: window_type(
                matches!(thing, Thing::Window { type_2, .. } if type_2 != bind.wrong_type),
            ),
            tag: bind.tag,
            region,
            address: base.wrapping_add_signed(bind.start),
            length: bind.length,
            access: bind.rights.access(),
        };
        let result = self.table.bind(&request);
        let possible = self.can_bind(key, &thing, target, &request);
        assert_eq!(result.is_ok(), possible, "{request:?}: {result:?}");
        let Ok(new) = result else { return };
        assert_eq!(new, key.with_tag(bind.tag));
        let zero_based = request.access.contains(Access::ZERO_BASED);
        let base = if zero_based { 0 } else { request.address };
        self.keys.push((new, base, bind.length));
        let Some((key, Thing::Window { bound, .. })) = self.things[at].as_mut() else {
            unreachable!("picked a window");
        };
        *key = new;
        *bound = target.filter(|_| bind.length > 0).map(|region| Bound {
            region,
            qp: bind.qp,
            base,
            length: bind.length,
            address: request.address,
            access: request.access,
        });
    }

    /// The rules of binding, each on its own.
    fn can_bind(&self, key: Key, thing: &Thing, target: Option<usize>, to: &BindRequest) -> bool {
        let Thing::Window { pd, type_2, bound } = thing else {
            unreachable!("picked a window");
        };
        let window_fits = *pd == to.pd.0
            && window_type(*type_2) == to.window_type
            && (!type_2 || bound.is_none())
            && (!type_2 || to.length > 0)
            && (*type_2 || key.tag() != to.tag);
        if to.length == 0 || !window_fits {
            return window_fits;
        }
        let Some((
            _,
            Thing::Region {
                pd,
                len,
                iova,
                access,
                ..
            },
        )) = target.and_then(|at| self.things[at].as_ref())
        else {
            return false;
        };
        let changes = to
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        *pd == to.pd.0
            && access.contains(Access::MW_BIND)
            && !access.contains(Access::ZERO_BASED)
            && !to.access.contains(Access::MW_BIND)
            && (!changes || access.contains(Access::LOCAL_WRITE))
            && inside(to.address, to.length as usize, *iova, *len as u64)
    }

    fn invalidate(&mut self, nth: usize, by_pd: u32, by_qp: u32) {
        let recent = self.keys.len() - 1 - nth % self.keys.len();
        let key = self.keys[recent].0;
        let result = self.table.invalidate(key, PdId(by_pd), by_qp);
        let at = self.by_key(key).map(|(at, _)| at);
        let bound = match at.map(|at| &mut self.things[at]) {
            Some(Some((
                _,
                Thing::Window {
                    pd,
                    type_2: true,
                    bound,
                },
            ))) if *pd == by_pd => bound,
            _ => &mut None,
        };
        let possible = bound.is_some_and(|bound| bound.qp == by_qp);
        assert_eq!(result.is_ok(), possible, "{key}: {result:?}");
        if possible {
            *bound = None;
        }
    }

    fn release_qp(&mut self, qp: u32) {
        let mut expected = 0;
        for (_, thing) in self.things.iter_mut().flatten() {
            if let Thing::Window {
                type_2: true,
                bound,
                ..
            } = thing
                && bound.is_some_and(|bound| bound.qp == qp)
            {
                *bound = None;
                expected += 1;
            }
        }
        assert_eq!(self.table.release_qp(qp), expected);
    }

    fn local(&mut self, usage: &Use, write: bool) {
        let (key, address) = self.claim(usage);
        let range = match self.by_key(key) {
            Some((
                _,
                Thing::Region {
                    pd,
                    buffer,
                    offset,
                    len,
                    iova,
                    access,
                },
            )) if *pd == usage.pd
                && (!write || access.contains(Access::LOCAL_WRITE))
                && inside(address, usage.len, *iova, *len as u64) =>
            {
                Some((*buffer, offset + (address - iova) as usize))
            }
            _ => None,
        };
        let how = if write {
            LocalUse::Write
        } else {
            LocalUse::Read
        };
        let result = self
            .table
            .local(PdId(usage.pd), key, address, usage.len, how);
        assert_eq!(
            result.is_ok(),
            range.is_some() || usage.len == 0,
            "{result:?}"
        );
        let (Ok(grant), Some((buffer, at))) = (result, range) else {
            return;
        };
        let place = at..at + usage.len;
        if write {
            grant.write(&vec![usage.fill; usage.len]).expect("mapped");
            self.bytes[buffer][place].fill(usage.fill);
        } else {
            let mut read = Vec::new();
            grant.append_to(&mut read).expect("mapped");
            assert_eq!(read, self.bytes[buffer][place]);
        }
    }

    fn remote(&mut self, usage: &Use, rights: Rights, qp: u32) {
        let (key, address) = self.claim(usage);
        let wanted = Access::from_bits(rights.0 & REMOTE).expect("known bits");
        let range = self.remote_range(key, address, usage, wanted, qp);
        let result = self
            .table
            .remote(PdId(usage.pd), qp, key, address, usage.len, wanted);
        assert_eq!(
            result.is_ok(),
            range.is_some() || usage.len == 0,
            "{result:?}"
        );
        let (Ok(grant), Some((buffer, at))) = (result, range) else {
            return;
        };
        let place = at..at + usage.len;
        if wanted.contains(Access::REMOTE_READ) {
            let mut read = vec![0; usage.len];
            grant.read_into(&mut read).expect("mapped");
            assert_eq!(read, self.bytes[buffer][place.clone()]);
        }
        let data = vec![usage.fill; usage.len];
        let written = grant.write(&data).is_ok();
        assert_eq!(written, wanted.contains(Access::REMOTE_WRITE));
        if written {
            self.bytes[buffer][place].fill(usage.fill);
        }
    }

    /// Which bytes of which buffer a peer gets, if any.
    fn remote_range(
        &self,
        key: Key,
        claimed: u64,
        usage: &Use,
        wanted: Access,
        by: u32,
    ) -> Option<(usize, usize)> {
        let (mut at, thing) = self.by_key(key)?;
        let (owner, granted, within) = match thing {
            Thing::Region { pd, access, .. } => (pd, *access, None),
            Thing::Window { pd, type_2, bound } => {
                let bound = bound.filter(|bound| !type_2 || bound.qp == by)?;
                at = bound.region;
                (pd, bound.access, Some(bound))
            }
        };
        let Some((
            _,
            Thing::Region {
                buffer,
                offset,
                len,
                iova,
                ..
            },
        )) = &self.things[at]
        else {
            unreachable!("bound regions stay");
        };
        let (base, length, first) = match within {
            Some(bound) => (bound.base, bound.length, (bound.address - iova) as usize),
            None => (*iova, *len as u64, 0),
        };
        let fits = *owner == usage.pd
            && wanted != Access::NONE
            && granted.contains(wanted)
            && inside(claimed, usage.len, base, length);
        fits.then(|| (*buffer, offset + first + (claimed - base) as usize))
    }

    fn claim(&self, usage: &Use) -> (Key, u64) {
        let recent = self.keys.len() - 1 - usage.key % self.keys.len();
        let (key, base, length) = self.keys[recent];
        let origin = if usage.from_end {
            base.wrapping_add(length).wrapping_sub(usage.len as u64)
        } else {
            base
        };
        (key, origin.wrapping_add_signed(usage.start))
    }
}

fn inside(address: u64, len: usize, base: u64, length: u64) -> bool {
    let (address, base) = (u128::from(address), u128::from(base));
    len > 0 && address >= base && address + len as u128 <= base + u128::from(length)
}

fn window_type(type_2: bool) -> WindowType {
    if type_2 {
        WindowType::Two
    } else {
        WindowType::One
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn the_table_does_what_the_model_does(ops in vec(op(), 1..80)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
        }
    }
}
