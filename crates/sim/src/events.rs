//! The queue of things to come.
//!
//! A hierarchical timing wheel: level 0 has a slot for each of the next ticks, every level above
//! has slots 256 times as long. An event is put into the level of the highest byte in which its
//! tick differs from the current one, and moves down when its slot is reached, so both ends of
//! the queue cost a constant time, however many events wait. A tick is 4,096 ps; the events
//! of the current tick are kept in order.
//!
//! **Order of simultaneous events.** Events of one picosecond come out by their *tie*: those
//! pushed with [`EventQueue::push`] first, in the order of pushing; then those pushed with
//! [`EventQueue::push_shuffled`] in an order drawn from the seed. The simulator shuffles arrivals:
//! with a fixed order, of two equally paced senders whose packets meet at a full queue, one
//! would suffer every loss.

use crate::Time;
use crate::random::mix;

/// Picoseconds per tick: 2^12.
const TICK_BITS: u32 = 12;
const DIGIT_BITS: u32 = 8;
const SLOTS: usize = 1 << DIGIT_BITS;
/// Enough digits for the 52 bits of a tick.
const LEVELS: usize = 7;
/// Set in the tie of shuffled events, so that they come after the others.
const SHUFFLED: u64 = 1 << 63;

#[derive(Debug)]
struct Entry<E> {
    time: u64,
    tie: u64,
    event: E,
}

#[derive(Debug)]
struct Level<E> {
    /// One bit per slot that holds something.
    occupied: [u64; SLOTS / 64],
    slots: Vec<Vec<Entry<E>>>,
}

impl<E> Level<E> {
    fn new() -> Self {
        Self {
            occupied: [0; SLOTS / 64],
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
        }
    }

    fn first(&self) -> Option<usize> {
        let word = self.occupied.iter().position(|&word| word != 0)?;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }
}

/// Events by time.
#[derive(Debug)]
pub struct EventQueue<E> {
    seed: u64,
    /// Events of the current tick and earlier, the next one last.
    current: Vec<Entry<E>>,
    tick: u64,
    levels: Vec<Level<E>>,
    pushed: u64,
    len: usize,
}

impl<E> EventQueue<E> {
    /// An empty queue; the seed decides the order of shuffled simultaneous events.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            current: Vec::new(),
            tick: 0,
            levels: (0..LEVELS).map(|_| Level::new()).collect(),
            pushed: 0,
            len: 0,
        }
    }

    /// Events that wait.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event; of those at the same time the one pushed first comes first.
    pub fn push(&mut self, time: Time, event: E) {
        let tie = self.pushed & !SHUFFLED;
        self.add(time, tie, event);
    }

    /// Adds an event whose place among those of the same time is random, and after all that
    /// [`push`](Self::push) adds.
    pub fn push_shuffled(&mut self, time: Time, event: E) {
        let tie = mix(self.seed ^ self.pushed) | SHUFFLED;
        self.add(time, tie, event);
    }

    fn add(&mut self, time: Time, tie: u64, event: E) {
        self.pushed += 1;
        self.len += 1;
        let time = time.picos();
        self.place(Entry { time, tie, event });
    }

    fn place(&mut self, entry: Entry<E>) {
        let tick = entry.time >> TICK_BITS;
        if tick <= self.tick {
            let later = |other: &Entry<E>| (other.time, other.tie) > (entry.time, entry.tie);
            let at = self.current.partition_point(later);
            self.current.insert(at, entry);
            return;
        }
        let level = ((tick ^ self.tick).ilog2() / DIGIT_BITS) as usize;
        let slot = (tick >> (level as u32 * DIGIT_BITS)) as usize % SLOTS;
        let level = &mut self.levels[level];
        level.occupied[slot / 64] |= 1 << (slot % 64);
        level.slots[slot].push(entry);
    }

    /// When the next event is.
    pub fn next_time(&mut self) -> Option<Time> {
        self.advance();
        self.current
            .last()
            .map(|entry| Time::from_picos(entry.time))
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.advance();
        let entry = self.current.pop()?;
        self.len -= 1;
        Some((Time::from_picos(entry.time), entry.event))
    }

    /// Moves to the tick of the next event, if the current tick has none left.
    fn advance(&mut self) {
        while self.current.is_empty() {
            let found = self.levels.iter().enumerate();
            let found = found
                .filter_map(|(index, level)| Some((index, level.first()?)))
                .next();
            let Some((index, slot)) = found else {
                return;
            };
            let level = &mut self.levels[index];
            level.occupied[slot / 64] &= !(1 << (slot % 64));
            let shift = index as u32 * DIGIT_BITS;
            let above = self.tick >> shift >> DIGIT_BITS << DIGIT_BITS;
            self.tick = (above | slot as u64) << shift;
            if index == 0 {
                core::mem::swap(&mut self.current, &mut level.slots[slot]);
                self.current
                    .sort_unstable_by_key(|entry| core::cmp::Reverse((entry.time, entry.tie)));
            } else {
                let mut entries = core::mem::take(&mut level.slots[slot]);
                for entry in entries.drain(..) {
                    self.place(entry);
                }
                // Its room is kept for later events.
                self.levels[index].slots[slot] = entries;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeMap;

    /// The same operations on a sorted map.
    #[test]
    fn agrees_with_a_sorted_map() {
        for seed in 0..50 {
            let mut random = Random::new(seed, 0);
            let mut queue = EventQueue::new(seed);
            let mut model = BTreeMap::new();
            let mut now = 0;
            for pushed in 0..5_000_u64 {
                if random.below(5) < 3 {
                    let reach = 1 << random.below(45);
                    let time = now + random.below(reach);
                    queue.push(Time::from_picos(time), pushed);
                    model.insert((time, pushed), pushed);
                } else {
                    let expected = model.pop_first();
                    let next = queue.next_time();
                    assert_eq!(next.map(Time::picos), expected.map(|((time, _), _)| time));
                    let popped = queue.pop();
                    let popped = popped.map(|(time, event)| ((time.picos(), event), event));
                    assert_eq!(popped, expected, "seed {seed}");
                    now = expected.map_or(now, |((time, _), _)| time);
                }
                assert_eq!(queue.len(), model.len());
            }
        }
    }

    /// What is pushed at the end of time, and after a look at a far event, is found.
    #[test]
    fn the_end_of_time_and_an_early_latecomer() {
        let mut queue = EventQueue::new(0);
        queue.push(Time::MAX, 'z');
        assert_eq!(queue.next_time(), Some(Time::MAX));
        queue.push(Time::from_picos(5), 'a');
        assert_eq!(queue.pop(), Some((Time::from_picos(5), 'a')));
        assert_eq!(queue.pop(), Some((Time::MAX, 'z')));
        assert!(queue.is_empty());
    }

    #[test]
    fn ties_are_in_order_then_shuffled_by_the_seed() {
        let order = |seed| {
            let mut queue = EventQueue::new(seed);
            let at = Time::from_micros(3);
            for number in 0..20 {
                queue.push_shuffled(at, 100 + number);
                queue.push(at, number);
            }
            let mut popped = Vec::new();
            while let Some((_, number)) = queue.pop() {
                popped.push(number);
            }
            popped
        };
        let first = order(1);
        assert!(first[..20].is_sorted());
        assert!(!first[20..].is_sorted());
        assert_eq!(first, order(1));
        assert_ne!(first, order(2));
    }
}
