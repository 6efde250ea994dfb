//! Ports of those who only connect. No request is ever routed by such a port, so that it needs no
//! socket of its own: a process holds blocks of 64 of them, each by one abstract name. They are
//! unique among themselves on this host; a [claim](super::Claim) may have the same number.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ClaimError, EPHEMERAL_PORTS, bind, random_below};

const BLOCK_PORTS: u16 = 64;

/// Whole blocks within [`EPHEMERAL_PORTS`], which begin at a multiple of 64.
const BLOCKS: u16 = (*EPHEMERAL_PORTS.end() - *EPHEMERAL_PORTS.start() + 1) / BLOCK_PORTS;

#[derive(Debug)]
struct Block {
    first: u16,
    /// A bit for each port that is in use.
    used: u64,
    /// The next to be given: a port rests before it is used again.
    next: u16,
    holder: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    /// The process that holds the blocks; a forked child does not.
    process: u32,
    blocks: HashMap<u16, Vec<Block>>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port of one who connects, until the value is dropped.
#[derive(Debug)]
pub struct ConnectPort {
    space: u16,
    port: u16,
    process: u32,
}

impl ConnectPort {
    /// Takes a port of a port space.
    ///
    /// # Errors
    /// When all are in use, or the kernel refuses a Unix socket.
    pub fn take(space: u16) -> Result<Self, ClaimError> {
        let process = std::process::id();
        let mut state = state();
        let state = state.get_or_insert_default();
        if state.process != process {
            // Of the parent of this process, which still uses them.
            state.blocks.clear();
            state.process = process;
        }
        let blocks = state.blocks.entry(space).or_default();
        let free = blocks.iter_mut().find_map(Block::take);
        let port = match free {
            Some(port) => port,
            None => {
                let mut block = Block::hold(space)?;
                let port = block.take().ok_or(ClaimError::Exhausted(space))?;
                blocks.push(block);
                port
            }
        };
        Ok(Self {
            space,
            port,
            process,
        })
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for ConnectPort {
    fn drop(&mut self) {
        let mut state = state();
        let Some(state) = state.as_mut().filter(|state| state.process == self.process) else {
            return;
        };
        let blocks = state.blocks.entry(self.space).or_default();
        if let Some(block) = blocks
            .iter_mut()
            .find(|block| (block.first..block.first + BLOCK_PORTS).contains(&self.port))
        {
            block.used &= !(1 << (self.port - block.first));
        }
        // One empty block is kept: the next to connect comes soon.
        let mut spare = true;
        blocks.retain(|block| block.used != 0 || std::mem::take(&mut spare));
    }
}

impl Block {
    fn hold(space: u16) -> Result<Self, ClaimError> {
        let start = random_below(BLOCKS);
        for step in 0..BLOCKS {
            let first = EPHEMERAL_PORTS.start() + (start + step) % BLOCKS * BLOCK_PORTS;
            if let Some(holder) = bind(&format!("feroce/connect/{space:04x}/{first}"))? {
                return Ok(Self {
                    first,
                    used: 0,
                    next: random_below(BLOCK_PORTS),
                    holder,
                });
            }
        }
        Err(ClaimError::Exhausted(space))
    }

    fn take(&mut self) -> Option<u16> {
        let free = (0..BLOCK_PORTS)
            .map(|step| (self.next + step) % BLOCK_PORTS)
            .find(|index| self.used & 1 << index == 0)?;
        self.used |= 1 << free;
        self.next = (free + 1) % BLOCK_PORTS;
        Some(self.first + free)
    }
}

/// Descriptors of the blocks, for a forked child to close.
pub(super) fn descriptors() -> Vec<RawFd> {
    let state = state();
    let blocks = state.iter().flat_map(|state| state.blocks.values());
    let holders = blocks.flatten().map(|block| block.holder.as_raw_fd());
    holders.collect()
}
