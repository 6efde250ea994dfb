//! What acknowledgements and time-outs do to windows and paths, and which acknowledgement of our
//! own leaves next. Not here: which path a packet takes.

use super::{
    Ack, Again, Bounds, Connection, Duration, EndpointConfig, EndpointCounters, Epoch, Feedback,
    INCREASE_DIVISOR, Instant, LenU8, Outcome, PacketNumber, PathState, Piece, SALT_PORT,
    SHARE_UNLIMITED, SUSPECT_AFTER, Window, path_restart_window, timing,
};

impl Connection {
    /// The bit of the plane that the acknowledgement of a receive path leaves on.
    pub(in crate::metaroce) fn ack_plane_bit(&self, place: usize) -> u32 {
        let from = self.receive.get(place).and_then(|path| path.from);
        let planes = self.local_planes.as_slice();
        let plane = planes
            .iter()
            .position(|address| from.is_some_and(|from| from.destination == *address));
        1 << plane.unwrap_or(0)
    }

    /// An acknowledgement is due now, on a plane that the host has room for.
    pub(in crate::metaroce) fn due_ack(&self) -> Option<usize> {
        let has_room = |place: &usize| self.busy & self.ack_plane_bit(*place) == 0;
        let due = (0..self.receive.len()).find(|place| self.receive[*place].due && has_room(place));
        due.or_else(|| {
            let wanted = !self.dirty.is_empty() && self.is_open();
            let heard = |place: &usize| {
                let path = self.receive.get(*place);
                path.is_some_and(|path| path.from.is_some())
            };
            Some(self.last_receive).filter(|place| wanted && heard(place) && has_room(place))
        })
    }

    /// An acknowledgement of a path of ours. False: it is of another epoch, or of a number that was
    /// never sent.
    pub(in crate::metaroce) fn acknowledged(
        &mut self,
        config: &EndpointConfig,
        now: Instant,
        (path, epoch, highest): (u8, Epoch, PacketNumber),
        ack: &Ack<'_>,
    ) -> bool {
        let timing = timing(config);
        let Some(path) = self.paths.get_mut(usize::from(path)) else {
            return false;
        };
        //= MR-PTH-003
        //= MR-REL-014
        if path.epoch != epoch || highest.distance_from(path.next_number()) >= 0 {
            return false;
        }
        if ack.share != SHARE_UNLIMITED {
            self.share = u64::from(ack.share) * 1000;
        }
        let before = path.in_flight();
        let mut outcome = core::mem::take(&mut self.outcome);
        let feedback = path.acknowledged(now, highest, ack, &timing, &mut outcome);
        let after = path.in_flight();
        self.in_flight = self.in_flight.saturating_sub(before.saturating_sub(after));
        let id = path.id;
        self.settle(&mut outcome, id);
        self.outcome = outcome;
        let place = usize::from(id);
        if self.paths[place].is_worn_out() && !self.paths[place].is_flying() {
            self.rebind(config, place);
        }
        let Some(feedback) = feedback else {
            return true;
        };
        self.heard = now;
        self.steer(config, usize::from(id), &feedback);
        true
    }

    /// Moves windows.
    pub(in crate::metaroce) fn steer(
        &mut self,
        config: &EndpointConfig,
        path: usize,
        feedback: &Feedback,
    ) {
        let count = self.paths.len() as u64;
        let target = self.target(config, feedback.rtt_min);
        let floor = u64::from(self.segment);
        //= MR-CC-007
        //= MR-CC-013
        if !self.calibrated {
            self.calibrated = true;
            self.window.restart(feedback.now, target);
            let bytes = path_restart_window(target, self.paths.len_u8(), self.segment);
            for path in &mut self.paths {
                path.window.restart(feedback.now, bytes);
            }
        }
        let limited = self.in_flight + 2 * floor * count >= self.window.bytes();
        let whole = Feedback {
            limited,
            ..*feedback
        };
        //= MR-CC-009
        // Where the receiver's grant is the limit, it has counted the queue before its port.
        let granted = self.share < self.peer_rate / 8 * 7;
        let bounds = Bounds {
            floor: if granted { target / 3 * 2 } else { floor },
            ceiling: target,
            step: (target / INCREASE_DIVISOR).max(floor),
            whole: true,
        };
        self.window.acknowledged(&whole, &bounds);
        // Together, paths may hold twice what the connection may: one that is marked gives its
        // part to the others.
        let part = self.path_part();
        let bounds = Bounds {
            floor,
            ceiling: part * 2,
            step: (part / INCREASE_DIVISOR).max(floor),
            whole: false,
        };
        if let Some(path) = self.paths.get_mut(path) {
            path.window.acknowledged(feedback, &bounds);
        }
    }

    /// Twice a path's part of the connection's window.
    pub(in crate::metaroce) fn path_part(&self) -> u64 {
        path_restart_window(self.window.bytes(), self.paths.len_u8(), self.segment)
    }

    /// What may be in flight when nothing is in the way: a round trip at the granted share, and
    /// half of one more for what is late.
    //= MR-CC-005
    pub(in crate::metaroce) fn target(&self, config: &EndpointConfig, rtt: Duration) -> u64 {
        if self.share == 0 {
            return config.window_max;
        }
        let nanos = u64::try_from((rtt + config.timer_grain).as_nanos()).unwrap_or(u64::MAX);
        let bytes = u128::from(self.share) * u128::from(nanos) / 1_000_000_000;
        let bytes = u64::try_from(bytes * 3 / 2).unwrap_or(u64::MAX);
        bytes
            .saturating_add(u64::from(self.segment))
            .min(config.window_max)
    }

    /// What acknowledgements and timers said of pieces takes effect.
    pub(in crate::metaroce) fn settle(&mut self, outcome: &mut Outcome, path: u8) {
        //= MR-REL-012
        for piece in outcome.arrived_late.drain(..) {
            // News that wait may say more than those that have arrived.
            if !matches!(piece, Piece::Update(_)) {
                self.again.retain(|again| again.piece != piece);
            }
            outcome.acknowledged.push(piece);
        }
        for piece in outcome.acknowledged.drain(..) {
            if let Piece::Response { job, segment } = piece {
                self.jobs.acknowledged(job, segment);
            }
        }
        for piece in outcome.lost.drain(..) {
            if piece != Piece::Probe {
                self.again.push_back(Again {
                    piece,
                    path,
                    left: true,
                });
            }
        }
    }

    /// A path's timer has fired.
    pub(in crate::metaroce) fn path_timed_out(
        &mut self,
        config: &EndpointConfig,
        now: Instant,
        place: usize,
        counters: &mut EndpointCounters,
    ) {
        let timing = timing(config);
        let Some(path) = self.paths.get_mut(place) else {
            return;
        };
        let suspect = path.time_out(now, &timing);
        //= MR-PTH-013
        let rebind = path.state == PathState::Suspect
            && path.unanswered >= SUSPECT_AFTER + config.probes_before_rebind
            && (path.unanswered - SUSPECT_AFTER).is_multiple_of(config.probes_before_rebind.max(1));
        if !suspect && !rebind {
            return;
        }
        let before = path.in_flight();
        let mut outcome = core::mem::take(&mut self.outcome);
        //= MR-PTH-014
        path.give_up(&mut outcome.lost);
        self.in_flight = self.in_flight.saturating_sub(before);
        let id = path.id;
        counters.paths_suspected += u64::from(suspect);
        self.settle(&mut outcome, id);
        self.outcome = outcome;
        if rebind {
            self.rebind(config, place);
            let part = self.path_part();
            if let Some(path) = self.paths.get_mut(place) {
                path.window.restart(now, part);
            }
            counters.paths_rebound += 1;
        }
    }

    /// Gives a path a new port.
    pub(in crate::metaroce) fn rebind(&mut self, config: &EndpointConfig, place: usize) {
        let Some(path) = self.paths.get(place) else {
            return;
        };
        let (id, epoch) = (path.id, path.epoch.next());
        let port = self.entropy(config, SALT_PORT, id, epoch);
        if let Some(path) = self.paths.get_mut(place) {
            path.rebind(port);
        }
    }
}
