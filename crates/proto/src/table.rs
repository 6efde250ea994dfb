//! Queue pairs by number: a radix tree of three bytes, so that a look-up is three steps
//! whatever numbers the host chooses, and order never depends on a hash.

use crate::lists::Index;
use crate::qp::Qp;
use alloc::boxed::Box;
use feroce_wire::Qpn;
use slab::Slab;

const FANOUT: usize = 256;

type Leaf = [Option<Index>; FANOUT];
type Branch = [Option<Box<Leaf>>; FANOUT];

/// The queue pairs of a device.
#[derive(Debug)]
pub(crate) struct QpTable {
    qps: Slab<Box<Qp>>,
    root: [Option<Box<Branch>>; FANOUT],
}

impl Default for QpTable {
    fn default() -> Self {
        Self {
            qps: Slab::new(),
            root: [const { None }; FANOUT],
        }
    }
}

impl QpTable {
    pub(crate) fn len(&self) -> usize {
        self.qps.len()
    }

    pub(crate) fn index_of(&self, qpn: Qpn) -> Option<Index> {
        let [_, high, middle, low] = qpn.value().to_be_bytes().map(usize::from);
        self.root[high].as_ref()?[middle].as_ref()?[low]
    }

    /// Adds what `make` makes for its place in the table.
    pub(crate) fn insert(&mut self, qpn: Qpn, make: impl FnOnce(Index) -> Qp) {
        let entry = self.qps.vacant_entry();
        let index = Index::try_from(entry.key()).expect("fewer queue pairs than numbers");
        entry.insert(Box::new(make(index)));
        let [_, high, middle, low] = qpn.value().to_be_bytes().map(usize::from);
        let branch = self.root[high].get_or_insert_with(|| Box::new([const { None }; FANOUT]));
        let leaf = branch[middle].get_or_insert_with(|| Box::new([None; FANOUT]));
        leaf[low] = Some(index);
    }

    pub(crate) fn remove(&mut self, qpn: Qpn) -> Option<Box<Qp>> {
        let [_, high, middle, low] = qpn.value().to_be_bytes().map(usize::from);
        let leaf = self.root[high].as_mut()?[middle].as_mut()?;
        let index = leaf[low].take()?;
        self.qps.try_remove(index as usize)
    }

    pub(crate) fn get(&self, index: Index) -> Option<&Qp> {
        self.qps.get(index as usize).map(|qp| &**qp)
    }

    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut Qp> {
        self.qps.get_mut(index as usize).map(|qp| &mut **qp)
    }
}
