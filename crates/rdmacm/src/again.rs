//! Asking again where nobody listens for a moment.
//!
//! Some servers (perftest's `-R`) accept one connection to exchange parameters, close that listener
//! and open the next on the same port, while their client connects to it already. The address
//! resolution of adapters is slow enough to hide that; ours is not. So a service that answered this
//! process a moment ago and now refuses is asked again for a moment. Any other refusal is told at
//! once. Not here: repetitions of lost messages (`feroce_proto::cm`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use feroce_proto::Instant;

use crate::connect::{self, Wish};
use crate::device::IdKey;
use crate::state::Phase;
use crate::sys;
use crate::world::World;

/// How long ago a service must have answered.
const RECENT: Duration = Duration::from_secs(5);

/// For how long it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// Services that are remembered; then all are forgotten.
const SERVICES_MAX: usize = 1024;

/// What an identifier needs to ask again.
#[derive(Default)]
pub(crate) struct Again {
    pub(crate) wish: Option<Wish>,
    /// When it is asked no more.
    until: Option<Instant>,
    /// When it is asked next.
    due: Option<Instant>,
}

/// A service of a peer: address and port, in whichever port space.
type Service = (IpAddr, u16);

/// When services answered last.
pub(crate) type Answered = HashMap<Service, Instant>;

impl World {
    fn service_of(&self, id: IdKey) -> Option<Service> {
        let entry = self.ids.get(&id)?;
        let remote = entry.remote?;
        Some((remote.canonical().ip, remote.port))
    }

    /// A service has answered with yes.
    pub(crate) fn remember_answer(&mut self, id: IdKey) {
        if let Some(service) = self.service_of(id) {
            if self.answered.len() >= SERVICES_MAX {
                self.answered.clear();
            }
            self.answered.insert(service, sys::now());
        }
    }

    /// A service is not listened to. Says whether it will be asked again.
    pub(crate) fn try_again(&mut self, id: IdKey) -> bool {
        let now = sys::now();
        let answered = self
            .service_of(id)
            .and_then(|service| self.answered.get(&service));
        let recent = answered.is_some_and(|&at| now.since(at) < RECENT);
        let Some(entry) = self.ids.get_mut(&id) else {
            return false;
        };
        if entry.passive || entry.again.wish.is_none() || !recent {
            return false;
        }
        let until = *entry.again.until.get_or_insert(now + PATIENCE);
        if now >= until {
            return false;
        }
        entry.again.due = Some(now + PAUSE);
        true
    }

    /// When somebody is to be asked next.
    pub(crate) fn next_again(&self) -> Option<Instant> {
        self.ids.values().filter_map(|entry| entry.again.due).min()
    }

    /// Asks those whose time has come.
    pub(crate) fn ask_again(&mut self, now: Instant) {
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let due = self.ids.iter().filter(|(_, entry)| is_due(entry.again.due));
        let due: Vec<IdKey> = due.map(|(&id, _)| id).collect();
        for id in due {
            let Some(entry) = self.ids.get_mut(&id) else {
                continue;
            };
            entry.again.due = None;
            if entry.phase != Phase::Connecting {
                continue;
            }
            if let Some(wish) = entry.again.wish.clone()
                && let Err(failure) = connect::ask(self, id, &wish)
            {
                log::warn!("asking again: {}", failure.reason);
            }
        }
    }
}
