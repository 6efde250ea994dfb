//! Queues of queue-pair indexes with removal from the middle in constant time.
//!
//! The links live in an arena beside the queue pairs, so that queueing allocates nothing
//! once the arena has grown to the number of queue pairs.

use alloc::vec::Vec;

/// A queue pair's place in the device's table.
pub(crate) type Index = u32;

const NONE: Index = Index::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: Index,
    next: Index,
    /// Number of the list the index is in, or `NONE`.
    list: u32,
}

const FREE: Link = Link {
    previous: NONE,
    next: NONE,
    list: NONE,
};

/// Ends of one list. The number that names it is given with every call that adds to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: Index,
    tail: Index,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
        }
    }
}

impl List {
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) const fn front(&self) -> Option<Index> {
        if self.head == NONE {
            None
        } else {
            Some(self.head)
        }
    }
}

/// The links of lists that share an arena: an index is in at most one of them.
#[derive(Default, Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
}

impl Links {
    /// The list the index is in.
    pub(crate) fn list_of(&self, index: Index) -> Option<u32> {
        let link = self.links.get(index as usize)?;
        (link.list != NONE).then_some(link.list)
    }

    /// Adds at the end, unless the index is in a list already.
    pub(crate) fn push_back(&mut self, list: &mut List, number: u32, index: Index) {
        if !self.make_room(index) {
            return;
        }
        self.links[index as usize] = Link {
            previous: list.tail,
            next: NONE,
            list: number,
        };
        match list.tail {
            NONE => list.head = index,
            tail => self.links[tail as usize].next = index,
        }
        list.tail = index;
    }

    /// Adds at the front, unless the index is in a list already.
    pub(crate) fn push_front(&mut self, list: &mut List, number: u32, index: Index) {
        if !self.make_room(index) {
            return;
        }
        self.links[index as usize] = Link {
            previous: NONE,
            next: list.head,
            list: number,
        };
        match list.head {
            NONE => list.tail = index,
            head => self.links[head as usize].previous = index,
        }
        list.head = index;
    }

    /// Takes the index out of `list`, which must be the list it is in.
    pub(crate) fn remove(&mut self, list: &mut List, index: Index) {
        let link = core::mem::replace(&mut self.links[index as usize], FREE);
        debug_assert_ne!(link.list, NONE);
        match link.previous {
            NONE => list.head = link.next,
            previous => self.links[previous as usize].next = link.next,
        }
        match link.next {
            NONE => list.tail = link.previous,
            next => self.links[next as usize].previous = link.previous,
        }
    }

    /// Takes the first index out.
    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<Index> {
        let index = list.front()?;
        self.remove(list, index);
        Some(index)
    }

    /// Whether the index is free to be added.
    fn make_room(&mut self, index: Index) -> bool {
        let row = index as usize;
        if row >= self.links.len() {
            self.links.resize(row + 1, FREE);
        }
        self.links[row].list == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn behaves_like_a_deque() {
        let mut random = crate::testing::Random::new(7);
        let mut links = Links::default();
        let mut list = List::default();
        let mut oracle = VecDeque::new();
        for _ in 0..20_000 {
            let index = Index::try_from(random.below(16)).unwrap();
            match random.below(4) {
                0 => {
                    links.push_back(&mut list, 5, index);
                    if !oracle.contains(&index) {
                        oracle.push_back(index);
                    }
                }
                1 => {
                    links.push_front(&mut list, 5, index);
                    if !oracle.contains(&index) {
                        oracle.push_front(index);
                    }
                }
                2 => assert_eq!(links.pop_front(&mut list), oracle.pop_front()),
                _ => {
                    assert_eq!(links.list_of(index).is_some(), oracle.contains(&index));
                    if links.list_of(index) == Some(5) {
                        links.remove(&mut list, index);
                        oracle.retain(|&other| other != index);
                    }
                }
            }
            assert_eq!(list.is_empty(), oracle.is_empty());
        }
    }
}
