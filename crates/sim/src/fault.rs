//! What goes wrong: chances per packet, and changes by schedule.

use crate::{Chance, ChannelId, LinkId, Random, Rate, Span, Time};

/// What one direction of a link does to each packet, besides carrying it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Impairment {
    /// It takes its time on the link and never arrives.
    pub loss: Chance,
    /// It arrives twice.
    pub duplication: Chance,
    /// It arrives changed.
    pub corruption: Chance,
    /// It arrives late, so that others overtake it.
    pub reordering: Chance,
    /// How late, at most.
    pub reordering_max: Span,
}

impl Impairment {
    /// Only loss.
    pub const fn loss(loss: Chance) -> Self {
        Self {
            loss,
            duplication: Chance::NEVER,
            corruption: Chance::NEVER,
            reordering: Chance::NEVER,
            reordering_max: Span::ZERO,
        }
    }
}

/// A change of the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The link fails in both directions: what is on it or waits for it is lost, and so is what
    /// comes later. Nobody is told: routes stay as they are.
    Down(LinkId),
    /// The link works again.
    Up(LinkId),
    /// The link has another rate in both directions, from the next packet on.
    Rate(LinkId, Rate),
    /// One direction of a link treats packets in this way from now on.
    Impair(ChannelId, Impairment),
    /// Every switch draws a new salt for its hash: flows move to other ways.
    Rehash,
    /// Routes follow the links that work now.
    Reroute,
}

/// An [`Action`] at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Fault {
    pub at: Time,
    pub action: Action,
}

/// An [`Impairment`] and its stream of random numbers.
#[derive(Debug)]
pub(crate) struct Impaired {
    pub(crate) impairment: Impairment,
    pub(crate) random: Random,
}

/// What becomes of one packet.
pub(crate) struct Fate {
    pub(crate) is_lost: bool,
    pub(crate) is_doubled: bool,
    pub(crate) is_corrupt: bool,
    pub(crate) late: Span,
    pub(crate) late_copy: Span,
}

impl Impaired {
    pub(crate) fn draw(&mut self) -> Fate {
        let Impairment {
            loss,
            duplication,
            corruption,
            reordering,
            reordering_max,
        } = self.impairment;
        let random = &mut self.random;
        let mut late = |chance| {
            let is_late = random.happens(chance);
            let picos = if is_late {
                1 + random.below(reordering_max.picos())
            } else {
                0
            };
            Span::from_picos(picos)
        };
        // A copy comes right behind, or late like any other packet.
        let (late, late_copy) = (late(reordering), late(reordering));
        Fate {
            is_lost: random.happens(loss),
            is_doubled: random.happens(duplication),
            is_corrupt: random.happens(corruption),
            late,
            late_copy,
        }
    }
}
