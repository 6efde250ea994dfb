//! Any sequence of verbs on a memory table, against a model that knows the rules and nothing of
//! how they are kept: what succeeds must be allowed, what fails must not, a granted range lies
//! where the model says, and a copy changes those bytes and no others.

use crate::Features;
use crate::choice::choice;
use arbitrary::{Arbitrary, Unstructured};
use feroce_mem::fuzzing::Arena;
use feroce_mem::{Access, BindRequest, Change, Grant, Key, LocalUse, PdId, Table, WindowType};
use std::ops::Range;

mod model;

use model::{Claimed, Model, REMOTE, Region};

/// One verb. Numbers choose among what is there, or are taken as they are.
#[derive(Debug)]
enum Operation {
    Register(Registration),
    Reregister(Pick, Registration, u8),
    Deregister(Pick),
    AllocWindow(bool, bool),
    DeallocWindow(Pick),
    Bind(Bind),
    Invalidate(Pick, bool, bool),
    ReleaseQp(bool),
    Local(Pick, Claim, bool),
    Remote(Pick, Claim, Rights),
    RemoteWhole(Pick, bool, bool, Rights),
}

#[derive(Arbitrary, Debug)]
struct Registration {
    domain: bool,
    offset: u8,
    len: u8,
    /// Where addresses begin, near one end of the 64 bits or the other.
    iova: i16,
    rights: Rights,
}

#[derive(Arbitrary, Debug)]
struct Bind {
    window: Pick,
    region: Pick,
    claim: Claim,
    type_2: bool,
    tag: u8,
    rights: Rights,
}

/// Rights that work together, or any.
#[derive(Debug)]
enum Rights {
    Everything,
    Write,
    Read,
    Atomic,
    Any(u16),
}

/// One of the live keys, near it, or any number.
#[derive(Debug)]
enum Pick {
    Live(u8),
    OtherTag(u8, u8),
    Any(u32),
}

/// A range relative to what is picked.
#[derive(Arbitrary, Debug)]
struct Claim {
    domain: bool,
    qp: bool,
    start: Start,
    len: u8,
}

#[derive(Debug)]
enum Start {
    At(u8),
    Before(u8),
    Any(u64),
}

choice! { Operation:
    |u| Ok(Operation::Register(u.arbitrary()?)),
    |u| Ok(Operation::Reregister(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Deregister(u.arbitrary()?)),
    |u| Ok(Operation::AllocWindow(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::DeallocWindow(u.arbitrary()?)),
    |u| Ok(Operation::Bind(u.arbitrary()?)),
    |u| Ok(Operation::Invalidate(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::ReleaseQp(u.arbitrary()?)),
    |u| Ok(Operation::Local(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Remote(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| {
        Ok(Operation::RemoteWhole(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?, u.arbitrary()?))
    },
}

choice! { Rights:
    |_| Ok(Rights::Everything),
    |_| Ok(Rights::Write),
    |_| Ok(Rights::Read),
    |_| Ok(Rights::Atomic),
    |u| Ok(Rights::Any(u.arbitrary()?)),
}

choice! { Pick:
    |u| Ok(Pick::Live(u.arbitrary()?)),
    |u| Ok(Pick::Live(u.arbitrary()?)),
    |u| Ok(Pick::Live(u.arbitrary()?)),
    |u| Ok(Pick::OtherTag(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Pick::Any(u.arbitrary()?)),
}

choice! { Start:
    |u| Ok(Start::At(u.arbitrary()?)),
    |u| Ok(Start::At(u.arbitrary()?)),
    |u| Ok(Start::Before(u.arbitrary()?)),
    |u| Ok(Start::Any(u.arbitrary()?)),
}

struct World {
    table: Table,
    arena: Arena,
    model: Model,
    features: Features,
    /// The verb that succeeded last.
    last: u32,
}

const ARENA_WORDS: usize = 32;
const SLOTS: u32 = 6;

/// Executes the verbs that `input` stands for.
pub fn run(input: &[u8]) -> Features {
    thread_local! {
        static ARENA: Arena = Arena::leak(ARENA_WORDS);
    }
    let arena = ARENA.with(|arena| *arena);
    arena.fill(0);
    let mut world = World {
        table: Table::with_limit(SLOTS),
        arena,
        model: Model::new(SLOTS as usize),
        features: Features::default(),
        last: 0,
    };
    let mut unstructured = Unstructured::new(input);
    while !unstructured.is_empty() {
        let Ok(operation) = Operation::arbitrary(&mut unstructured) else {
            break;
        };
        world.execute(&operation);
        assert_eq!(world.table.len(), world.model.len());
    }
    world.features
}

const fn domain(other: bool) -> PdId {
    PdId(if other { 8 } else { 7 })
}

const fn qp(other: bool) -> u32 {
    if other { 18 } else { 17 }
}

const fn window_type(type_2: bool) -> WindowType {
    if type_2 {
        WindowType::Two
    } else {
        WindowType::One
    }
}

impl Rights {
    fn of_region(&self) -> Access {
        let bindable = Access::MW_BIND.union(Access::LOCAL_WRITE);
        match self {
            Self::Any(_) => self.of_peers(),
            _ => self.of_peers().union(bindable),
        }
    }

    fn of_peers(&self) -> Access {
        match *self {
            Self::Everything => REMOTE,
            Self::Write => Access::REMOTE_WRITE,
            Self::Read => Access::REMOTE_READ,
            Self::Atomic => Access::REMOTE_ATOMIC,
            // On-demand paging goes through the kernel: another path, and a slow one.
            Self::Any(bits) => Access::from_bits(u32::from(bits) & 0x3bf).expect("known rights"),
        }
    }
}

impl World {
    fn execute(&mut self, operation: &Operation) {
        let (verb, succeeded) = match operation {
            Operation::Register(registration) => (0, self.register(registration)),
            Operation::Reregister(pick, new, what) => (1, self.reregister(pick, new, *what)),
            Operation::Deregister(pick) => (2, self.deregister(pick)),
            Operation::AllocWindow(other, type_2) => (3, self.alloc_window(*other, *type_2)),
            Operation::DeallocWindow(pick) => (4, self.dealloc_window(pick)),
            Operation::Bind(bind) => (5 + u32::from(bind.type_2), self.bind(bind)),
            Operation::Invalidate(pick, pd, other) => {
                (7, self.invalidate(pick, domain(*pd), qp(*other)))
            }
            Operation::ReleaseQp(other) => {
                let released = self.table.release_qp(qp(*other));
                assert_eq!(released, self.model.release_qp(qp(*other)));
                (8, released > 0)
            }
            Operation::Local(pick, claim, write) => (9, self.local(pick, claim, *write)),
            Operation::Remote(pick, claim, rights) => {
                let windows = u32::from(self.model.windows.contains_key(&self.key(pick)));
                (10 + windows, self.remote(pick, claim, rights))
            }
            Operation::RemoteWhole(pick, pd, other, rights) => {
                (12, self.remote_whole(pick, domain(*pd), qp(*other), rights))
            }
        };
        self.features.add(verb * 2 + u32::from(succeeded));
        if succeeded {
            // Which verbs work one after the other says most about the state.
            self.features.add(0x100 + self.last * 16 + verb);
            self.last = verb;
        }
    }

    fn key(&self, pick: &Pick) -> Key {
        let live = |index: u8| {
            let mut keys = self.model.regions.keys().chain(self.model.windows.keys());
            let index = usize::from(index) % self.model.len().max(1);
            keys.nth(index).copied().unwrap_or_default()
        };
        match *pick {
            Pick::Live(index) => live(index),
            Pick::OtherTag(index, tag) => live(index).with_tag(tag),
            Pick::Any(key) => Key(key),
        }
    }

    /// The claim, relative to where the addresses of `key` begin.
    fn claimed(&self, key: Key, claim: &Claim, access: Access) -> Claimed {
        let base = self.model.base(key);
        let address = match claim.start {
            Start::At(offset) => base.wrapping_add(offset.into()),
            Start::Before(offset) => base.wrapping_sub(offset.into()),
            Start::Any(address) => address,
        };
        Claimed {
            pd: domain(claim.domain),
            qp: qp(claim.qp),
            key,
            address,
            len: claim.len.into(),
            access,
        }
    }

    fn region(&self, registration: &Registration) -> Region {
        let start = usize::from(registration.offset) % (self.arena.len() + 1);
        let end = (start + usize::from(registration.len)).min(self.arena.len());
        let access = registration.rights.of_region();
        let zero_based = access.contains(Access::ZERO_BASED);
        Region {
            pd: domain(registration.domain),
            place: start..end,
            iova: if zero_based {
                0
            } else {
                i64::from(registration.iova).cast_unsigned()
            },
            access,
        }
    }

    fn register(&mut self, registration: &Registration) -> bool {
        let region = self.region(registration);
        let memory = self.arena.memory(region.place.start, region.place.len());
        let memory = memory.expect("a part of the arena");
        let possible = region.is_possible() && !self.model.is_full();
        let result = self
            .table
            .register(region.pd, memory, region.iova, region.access);
        assert_eq!(result.is_ok(), possible, "{region:?} {result:?}");
        if let Ok(key) = result {
            self.model.insert_region(key, region);
        }
        possible
    }

    fn reregister(&mut self, pick: &Pick, registration: &Registration, what: u8) -> bool {
        let new = self.region(registration);
        let key = self.key(pick);
        let [moves, to_other_pd, with_new_rights] = [1, 2, 4].map(|bit| what & bit != 0);
        let memory = self.arena.memory(new.place.start, new.place.len());
        let change = Change {
            translation: memory.filter(|_| moves).map(|memory| (memory, new.iova)),
            pd: to_other_pd.then_some(new.pd),
            access: with_new_rights.then_some(new.access),
        };
        let expected = self.model.regions.get(&key).map(|old| {
            let mut region = old.clone();
            if moves {
                (region.place, region.iova) = (new.place, new.iova);
            } else if old.access.contains(Access::ZERO_BASED) {
                region.iova = self.arena.address() + region.place.start as u64;
            }
            if to_other_pd {
                region.pd = new.pd;
            }
            if with_new_rights {
                region.access = new.access;
            }
            if region.access.contains(Access::ZERO_BASED) {
                region.iova = 0;
            }
            region
        });
        let expected =
            expected.filter(|region| region.is_possible() && !self.model.has_windows(key));
        let result = self.table.reregister(key, change);
        assert_eq!(result.is_ok(), expected.is_some(), "{result:?}");
        if let (Ok(new_key), Some(region)) = (result, expected) {
            assert_eq!(new_key == key, !moves);
            self.model.regions.remove(&key);
            self.model.insert_region(new_key, region);
        }
        result.is_ok()
    }

    fn deregister(&mut self, pick: &Pick) -> bool {
        let key = self.key(pick);
        let possible = self.model.regions.contains_key(&key) && !self.model.has_windows(key);
        assert_eq!(self.table.deregister(key).is_ok(), possible);
        if possible {
            self.model.regions.remove(&key);
        }
        possible
    }

    fn alloc_window(&mut self, other: bool, type_2: bool) -> bool {
        let (pd, kind) = (domain(other), window_type(type_2));
        let result = self.table.alloc_window(pd, kind);
        assert_eq!(result.is_ok(), !self.model.is_full());
        if let Ok(key) = result {
            self.model.insert_window(key, pd, kind);
        }
        result.is_ok()
    }

    fn dealloc_window(&mut self, pick: &Pick) -> bool {
        let key = self.key(pick);
        let present = self.model.window_in_slot_of(key);
        assert_eq!(self.table.dealloc_window(key).is_ok(), present.is_some());
        present.is_some_and(|present| self.model.windows.remove(&present).is_some())
    }

    fn bind(&mut self, bind: &Bind) -> bool {
        let (window, region) = (self.key(&bind.window), self.key(&bind.region));
        let claimed = self.claimed(region, &bind.claim, bind.rights.of_peers());
        let request = BindRequest {
            pd: claimed.pd,
            qp: claimed.qp,
            window,
            window_type: window_type(bind.type_2),
            tag: bind.tag,
            region,
            address: claimed.address,
            length: claimed.len as u64,
            access: claimed.access,
        };
        let expected = self.model.judge_bind(&request);
        let result = self.table.bind(&request);
        assert_eq!(result.is_ok(), expected.is_some(), "{request:?} {result:?}");
        if let (Ok(key), Some(binding)) = (result, expected) {
            assert_eq!(key, window.with_tag(bind.tag));
            self.model.rebind(key, binding);
        }
        result.is_ok()
    }

    fn invalidate(&mut self, pick: &Pick, pd: PdId, qp: u32) -> bool {
        let key = self.key(pick);
        let done = self.table.invalidate(key, pd, qp).is_ok();
        assert_eq!(done, self.model.invalidate(key, pd, qp));
        done
    }

    fn local(&self, pick: &Pick, claim: &Claim, write: bool) -> bool {
        let key = self.key(pick);
        let (usage, access) = if write {
            (LocalUse::Write, Access::LOCAL_WRITE)
        } else {
            (LocalUse::Read, Access::NONE)
        };
        let claimed = self.claimed(key, claim, access);
        let expected = self.model.local_place(&claimed);
        let Claimed {
            pd, address, len, ..
        } = claimed;
        let result = self.table.local(pd, key, address, len, usage);
        self.judge(result.ok(), expected, len, write)
    }

    fn remote(&self, pick: &Pick, claim: &Claim, rights: &Rights) -> bool {
        let key = self.key(pick);
        let claimed = self.claimed(key, claim, rights.of_peers());
        let expected = self.model.remote_place(&claimed);
        let Claimed {
            pd,
            qp,
            address,
            len,
            access,
            ..
        } = claimed;
        let result = self.table.remote(pd, qp, key, address, len, access);
        self.judge(
            result.ok(),
            expected,
            len,
            access.contains(Access::REMOTE_WRITE),
        )
    }

    fn remote_whole(&self, pick: &Pick, pd: PdId, qp: u32, rights: &Rights) -> bool {
        let (key, access) = (self.key(pick), rights.of_peers());
        let expected = self.model.whole_place(key, pd, qp, access);
        let result = self.table.remote_whole(pd, qp, key, access);
        let place = result
            .as_ref()
            .ok()
            .and_then(|grant| self.arena.place_of(grant));
        assert_eq!((result.is_ok(), place), (expected.is_some(), expected));
        result.is_ok()
    }

    /// Compares an answer with what the model expects, and uses a grant.
    fn judge(
        &self,
        grant: Option<Grant<'_>>,
        expected: Option<Range<usize>>,
        len: usize,
        may_write: bool,
    ) -> bool {
        if len == 0 {
            assert!(
                grant.is_some_and(|grant| grant.is_empty()),
                "no bytes are always granted"
            );
            return false;
        }
        let place = grant
            .as_ref()
            .map(|grant| self.arena.place_of(grant).expect("inside"));
        assert_eq!(place, expected);
        if let (Some(grant), Some(place)) = (&grant, place) {
            self.use_grant(grant, place, may_write);
        }
        grant.is_some()
    }

    /// Uses a grant in every way; what it must not change stays.
    fn use_grant(&self, grant: &Grant<'_>, place: Range<usize>, may_write: bool) {
        let mut expected = self.arena.bytes();
        let mut read = vec![0; grant.len()];
        if grant.read_into(&mut read).is_ok() {
            assert_eq!(read, expected[place.clone()]);
        }
        let data = vec![!expected[place.start]; grant.len()];
        assert_eq!(grant.write(&data).is_ok(), may_write);
        if may_write {
            expected[place.clone()].copy_from_slice(&data);
        }
        assert_eq!(self.arena.bytes(), expected);
        if let Ok(old) = grant.fetch_add(1) {
            assert!(place.len() == 8 && place.start.is_multiple_of(8));
            assert_eq!(old.to_ne_bytes(), expected[place.clone()]);
            expected[place].copy_from_slice(&old.wrapping_add(1).to_ne_bytes());
            assert_eq!(self.arena.bytes(), expected);
        }
        assert!(grant.slice(1, grant.len()).is_err());
    }
}

/// One sequence of every verb, and noise.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![by_hand()];
    seeds.extend((0..16_u8).map(|seed| {
        (0..160_u8)
            .map(|at| at.wrapping_mul(29).wrapping_add(seed * 7))
            .collect()
    }));
    seeds
}

/// Registers all of the arena, binds a type 2 window to a part, writes through both.
fn by_hand() -> Vec<u8> {
    let pick = |index: u8| [0, index];
    let claim = |start: u8, len: u8| [0, 0, 0, start, len];
    let register = [0, 0, 0, 255, 0, 1, 0];
    let alloc_window = [3, 0, 1];
    let bind = [&[5][..], &pick(1), &pick(0), &claim(8, 16), &[1, 9, 0]].concat();
    let local = [&[8][..], &pick(0), &claim(3, 5), &[1]].concat();
    let remote = [&[9][..], &pick(1), &claim(0, 16), &[1]].concat();
    let atomic = [&[9][..], &pick(1), &claim(8, 8), &[3]].concat();
    let whole = [&[10][..], &pick(1), &[0, 0, 1]].concat();
    let invalidate = [&[6][..], &pick(1), &[0, 0]].concat();
    let deregister = [&[2][..], &pick(0)].concat();
    [
        &register[..],
        &alloc_window,
        &bind,
        &local,
        &remote,
        &atomic,
        &whole,
        &invalidate,
        &deregister,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_by_hand_succeeds_in_every_verb_it_names() {
        let features = run(&by_hand());
        for verb in [0, 2, 3, 6, 7, 9, 11, 12] {
            let succeeded = features.iter().any(|feature| feature == verb * 2 + 1);
            assert!(succeeded, "verb {verb}: {features:?}");
        }
    }
}
