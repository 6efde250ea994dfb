//! The operations of the model test, and how often each is drawn.

use crate::BUFFER;
use feroce_mem::Access;
use proptest::prelude::{Strategy, any, prop_oneof};

/// What is done to both. Numbers that choose among what exists are taken modulo its count.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Register(Place, u32, Rights),
    Deregister(usize),
    Move(usize, Place),
    Change(usize, Option<u32>, Option<Rights>),
    AllocWindow(u32, bool),
    DeallocWindow(usize),
    Bind(Bind),
    Invalidate(usize, u32, u32),
    ReleaseQp(u32),
    Local(Use, bool),
    Remote(Use, Rights, u32),
}

/// A part of a buffer, and how far its iova is from the highest that does not wrap.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) buffer: usize,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) iova: Option<u64>,
}

/// Small sets of rights, so that they often fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights(pub(crate) u32);

#[derive(Clone, Debug)]
pub(crate) struct Bind {
    pub(crate) window: usize,
    pub(crate) wrong_type: bool,
    pub(crate) region: usize,
    pub(crate) pd: u32,
    pub(crate) qp: u32,
    pub(crate) tag: u8,
    pub(crate) start: i64,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
}

/// A claim on the key that was handed out `key` keys ago, `start` bytes from the beginning of what
/// it named, or from where a claim of this length would just fit.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) key: usize,
    pub(crate) pd: u32,
    pub(crate) start: i64,
    pub(crate) from_end: bool,
    pub(crate) len: usize,
    pub(crate) fill: u8,
}

impl Rights {
    pub(crate) fn access(self) -> Access {
        Access::from_bits(self.0).expect("known bits")
    }

    pub(crate) fn fits_region(self) -> bool {
        let changes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        !self.access().intersects(changes) || self.access().contains(Access::LOCAL_WRITE)
    }
}

/// LOCAL_WRITE, the three remote rights, MW_BIND, ZERO_BASED.
const ALL: u32 = 0x3f;
pub(crate) const REMOTE: u32 = 0xe;

fn rights() -> impl Strategy<Value = Rights> {
    // Mostly everything but ZERO_BASED, so that sequences get somewhere.
    prop_oneof![
        3 => (0..=ALL).prop_map(|unset| Rights(0x1f & !(unset & unset >> 1))),
        1 => (0..=ALL).prop_map(Rights),
    ]
}

/// What a peer asks for: one right, mostly.
fn wanted() -> impl Strategy<Value = Rights> {
    prop_oneof![6 => (1..3u32).prop_map(|bit| Rights(1 << bit)), 1 => rights()]
}

/// Two protection domains, one of them rarely.
fn pd() -> impl Strategy<Value = u32> {
    prop_oneof![5 => 1..2u32, 1 => 2..3u32]
}

fn qp() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 17..18u32, 1 => 18..19u32]
}

fn place() -> impl Strategy<Value = Place> {
    let iova = proptest::option::of(0..3u64);
    (any::<usize>(), 0..BUFFER / 2, 0..=BUFFER, iova).prop_map(|(buffer, offset, len, iova)| {
        Place {
            buffer,
            offset,
            len,
            iova,
        }
    })
}

fn usage() -> impl Strategy<Value = Use> {
    let start = prop_oneof![6 => -1..2i64, 1 => -3..70i64];
    (
        recent(),
        pd(),
        start,
        any::<bool>(),
        0..20usize,
        any::<u8>(),
    )
        .prop_map(|(key, pd, start, from_end, len, fill)| Use {
            key,
            pd,
            start,
            from_end,
            len,
            fill,
        })
}

/// How many keys ago: few, mostly.
fn recent() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..4usize, 1 => any::<usize>()]
}

fn bind() -> impl Strategy<Value = Bind> {
    let what = (
        any::<usize>(),
        proptest::bool::weighted(0.1),
        any::<usize>(),
        pd(),
        qp(),
        0..8u8,
    );
    let length = prop_oneof![8 => 0..30u64, 1 => any::<u64>()];
    (what, -1..30i64, length, rights()).prop_map(|(what, start, length, rights)| {
        let (window, wrong_type, region, pd, qp, tag) = what;
        Bind {
            window,
            wrong_type,
            region,
            pd,
            qp,
            tag,
            start,
            length,
            // A window cannot have MW_BIND; now and then one asks for it.
            rights: if tag > 0 {
                Rights(rights.0 & 0x2f)
            } else {
                rights
            },
        }
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let nth = any::<usize>;
    prop_oneof![
        3 => (place(), pd(), rights()).prop_map(|(at, pd, rights)| Op::Register(at, pd, rights)),
        2 => nth().prop_map(Op::Deregister),
        1 => (nth(), place()).prop_map(|(nth, place)| Op::Move(nth, place)),
        1 => (nth(), proptest::option::of(pd()), proptest::option::of(rights()))
            .prop_map(|(nth, pd, rights)| Op::Change(nth, pd, rights)),
        2 => (pd(), any::<bool>()).prop_map(|(pd, type_2)| Op::AllocWindow(pd, type_2)),
        1 => nth().prop_map(Op::DeallocWindow),
        6 => bind().prop_map(Op::Bind),
        3 => (recent(), pd(), qp()).prop_map(|(key, pd, qp)| Op::Invalidate(key, pd, qp)),
        1 => qp().prop_map(Op::ReleaseQp),
        6 => (usage(), any::<bool>()).prop_map(|(usage, write)| Op::Local(usage, write)),
        8 => (usage(), wanted(), qp()).prop_map(|(usage, want, qp)| Op::Remote(usage, want, qp)),
    ]
}
