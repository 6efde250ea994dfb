//! Memory that the peer writes directly: `riomap`, `riounmap`, `riowrite`.
//!
//! A mapping takes an index in the peer's table, and the peer is told of it in front of the next
//! data. Read first: rsocket(7).

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

use feroce_verbs_abi as abi;

use super::super::gather::Buffers;
use super::super::verbs::Registration;
use super::super::wire::{IoMap, Segment};
use super::{State, StreamSocket, broken};
use crate::guard::Failure;

/// Mappings that a program has made.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    made: Vec<Mapping>,
    /// Those that the peer must still be told of.
    untold: VecDeque<(u16, IoMap)>,
}

#[derive(Debug)]
struct Mapping {
    start: usize,
    length: usize,
    /// Where the peer knows it; `None`: it is for our own use.
    index: Option<u16>,
    offset: u64,
    /// `riomap` calls for the same memory less `riounmap` calls.
    uses: u32,
    _registration: Registration,
}

impl Mappings {
    fn free_index(&self, count: u16) -> Option<u16> {
        (0..count).find(|index| {
            let taken = |mapping: &Mapping| mapping.index == Some(*index);
            !self.made.iter().any(taken)
        })
    }
}

/// What a mapping may be used for.
const fn access(is_remote: bool) -> c_int {
    let remote = if is_remote {
        abi::IBV_ACCESS_REMOTE_WRITE
    } else {
        0
    };
    (abi::IBV_ACCESS_LOCAL_WRITE | remote) as c_int
}

/// The peer set aside fewer places than are asked for.
fn no_room(count: u16) -> Failure {
    let reason = format!(
        "the peer has room for {count} mappings: it sets RDMA_IOMAPSIZE before it connects"
    );
    Failure::new(libc::ENOBUFS, reason)
}

impl StreamSocket {
    /// `riomap`: the offset at which the peer finds the memory.
    ///
    /// # Safety
    /// `start` has `length` bytes that are there, and writable with `PROT_WRITE`, until they are
    /// unmapped or the socket is closed.
    pub(crate) unsafe fn map(
        &self,
        start: *mut c_void,
        length: usize,
        protection: c_int,
        offset: i64,
    ) -> Result<i64, Failure> {
        let is_remote = match protection {
            libc::PROT_NONE => false,
            libc::PROT_WRITE => true,
            _ => return Err(Failure::invalid("protection is PROT_NONE or PROT_WRITE")),
        };
        let size = u32::try_from(length)
            .ok()
            .filter(|&size| size > 0)
            .ok_or_else(|| Failure::invalid("a mapping has 1 byte to 4 GiB"))?;
        let address = start as u64;
        let offset = if offset == -1 { start as i64 } else { offset };
        let known = u64::try_from(offset).map_err(|_| Failure::invalid("a negative offset"))?;

        let mut state = self.lock();
        if let Some(mapping) = state.io_maps.made.iter_mut().find(|mapping| {
            (mapping.start, mapping.length, mapping.offset) == (start as usize, length, known)
                && mapping.index.is_some() == is_remote
        }) {
            mapping.uses += 1;
            return Ok(offset);
        }
        let Some(connection) = state.connected() else {
            return Err(state.not_connected());
        };
        let count = connection.stream.io_maps_of_peer();
        let pd = state.link()?.id.pd();
        let index = match is_remote {
            false => None,
            true => Some(
                state
                    .io_maps
                    .free_index(count)
                    .ok_or_else(|| no_room(count))?,
            ),
        };
        // SAFETY: the caller's contract; closing drops the registration.
        let registration = unsafe { Registration::new(pd, start, length, access(is_remote))? };
        if let Some(index) = index {
            let key = registration.remote_key();
            let segment = Segment {
                address,
                key,
                length: size,
            };
            let map = IoMap {
                offset: known,
                segment,
            };
            state.io_maps.untold.push_back((index, map));
        }
        state.io_maps.made.push(Mapping {
            start: start as usize,
            length,
            index,
            offset: known,
            uses: 1,
            _registration: registration,
        });
        // What cannot be told now is told before the next data.
        state.tell_io_maps()?;
        Ok(offset)
    }

    /// `riounmap`.
    pub(crate) fn unmap(&self, start: *mut c_void, length: usize) -> Result<(), Failure> {
        let mut state = self.lock();
        let is_it = |mapping: &Mapping| (mapping.start, mapping.length) == (start as usize, length);
        let Some(place) = state.io_maps.made.iter().position(is_it) else {
            return Err(Failure::invalid("no such memory is mapped"));
        };
        let mapping = &mut state.io_maps.made[place];
        mapping.uses -= 1;
        if mapping.uses > 0 {
            return Ok(());
        }
        let mapping = state.io_maps.made.swap_remove(place);
        if let Some(index) = mapping.index {
            state.io_maps.untold.retain(|&(untold, _)| untold != index);
            // The peer forgets it, so that its program hears of a mistake rather than the device.
            state.io_maps.untold.push_back((index, IoMap::default()));
            state.tell_io_maps()?;
        }
        Ok(())
    }

    /// `riowrite`: all of it, or as much as goes without waiting.
    pub(crate) fn write_directly(
        &self,
        buffers: &mut Buffers<'_>,
        offset: i64,
        flags: c_int,
    ) -> Result<usize, Failure> {
        let whole = buffers.rest();
        let offset = u64::try_from(offset).map_err(|_| Failure::invalid("a negative offset"))?;
        let may_wait = self.may_wait(flags);
        let written = self.wait(may_wait, None, |state| {
            let place = offset.saturating_add((whole - buffers.rest()) as u64);
            match state.write_directly(buffers, place) {
                Err(failure) => Some(Err(failure)),
                Ok(()) if buffers.rest() == 0 => Some(Ok(())),
                Ok(()) => None,
            }
        });
        let done = whole - buffers.rest();
        match written {
            Ok(Ok(())) => Ok(done),
            _ if done > 0 => Ok(done),
            Ok(Err(failure)) | Err(failure) => Err(failure),
        }
    }
}

impl State {
    /// Tells the peer of mappings. Whether it knows them all.
    pub(super) fn tell_io_maps(&mut self) -> Result<bool, Failure> {
        while let Some(&(index, map)) = self.io_maps.untold.front() {
            let Some(connection) = self.connected() else {
                return Err(self.not_connected());
            };
            if !connection.stream.may_write() {
                return Err(broken(connection.stream.ending()));
            }
            if !connection.tell_io_map(index, map) {
                return Ok(false);
            }
            self.io_maps.untold.pop_front();
        }
        Ok(true)
    }

    fn write_directly(&mut self, buffers: &mut Buffers<'_>, offset: u64) -> Result<(), Failure> {
        let Some(connection) = self.connected() else {
            return Err(self.not_connected());
        };
        if !connection.stream.may_write() {
            return Err(broken(connection.stream.ending()));
        }
        if buffers.rest() > 0 && connection.stream.mapped_at(offset).is_none() {
            return Err(Failure::invalid(format!(
                "the peer has mapped nothing at offset {offset}"
            )));
        }
        connection.write_directly(buffers, offset);
        Ok(())
    }
}
