//! The streams of an endpoint, by number and by name.

use super::stream::{Stream, StreamRef};
use crate::QpInit;
use alloc::collections::BTreeMap;
use feroce_wire::Qpn;
use slab::Slab;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slab: Slab<Stream>,
    by_number: BTreeMap<u32, u32>,
    incarnation: u32,
}

impl Streams {
    pub(super) fn insert(&mut self, qpn: Qpn, init: QpInit) {
        self.incarnation = self.incarnation.wrapping_add(1);
        let entry = self.slab.vacant_entry();
        let index = u32::try_from(entry.key()).unwrap_or(u32::MAX);
        let reference = StreamRef {
            index,
            incarnation: self.incarnation,
        };
        entry.insert(Stream::new(reference, qpn, init));
        self.by_number.insert(qpn.value(), index);
    }

    pub(super) fn remove(&mut self, qpn: Qpn) -> Option<Stream> {
        let index = self.by_number.remove(&qpn.value())?;
        self.slab.try_remove(index as usize)
    }

    pub(super) fn get(&self, reference: StreamRef) -> Option<&Stream> {
        let stream = self.slab.get(reference.index as usize)?;
        (stream.reference == reference).then_some(stream)
    }

    pub(super) fn get_mut(&mut self, reference: StreamRef) -> Option<&mut Stream> {
        let stream = self.slab.get_mut(reference.index as usize)?;
        (stream.reference == reference).then_some(stream)
    }

    pub(super) fn by_number(&self, number: u32) -> Option<&Stream> {
        self.slab.get(*self.by_number.get(&number)? as usize)
    }

    pub(super) fn by_number_mut(&mut self, number: u32) -> Option<&mut Stream> {
        self.slab.get_mut(*self.by_number.get(&number)? as usize)
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}
