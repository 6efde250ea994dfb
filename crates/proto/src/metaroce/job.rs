//! Answers on their way: what a responder keeps until the requester has confirmed it.

use super::segments::Segments;
use super::stream::StreamRef;
use crate::RemoteRange;
use alloc::collections::VecDeque;
use feroce_wire::metaroce::{MessageNumber, Refusal};
use slab::Slab;

/// Names an answer of a connection; a name is never used for two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct JobRef {
    index: u32,
    incarnation: u32,
}

/// What is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// READ: the range as it was checked.
    Read(RemoteRange),
    /// The value before an atomic, kept: it is never computed twice.
    Original(u64),
    /// No.
    Refused(Refusal),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Job {
    incarnation: u32,
    /// The local stream that answers.
    pub(super) stream: StreamRef,
    /// The requester's stream.
    pub(super) peer_stream: u32,
    pub(super) message: MessageNumber,
    pub(super) answer: Answer,
    pub(super) segments: u32,
    /// First segment that has never been sent.
    next: u32,
    acknowledged: Segments,
}

/// The answers of a connection.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    slab: Slab<Job>,
    /// Those with segments that have never been sent.
    queue: VecDeque<JobRef>,
    incarnation: u32,
}

impl Jobs {
    pub(super) fn push(
        &mut self,
        stream: StreamRef,
        peer_stream: u32,
        message: MessageNumber,
        answer: Answer,
        segments: u32,
    ) -> JobRef {
        self.incarnation = self.incarnation.wrapping_add(1);
        let index = self.slab.insert(Job {
            incarnation: self.incarnation,
            stream,
            peer_stream,
            message,
            answer,
            segments,
            next: 0,
            acknowledged: Segments::default(),
        });
        let job = JobRef {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            incarnation: self.incarnation,
        };
        self.queue.push_back(job);
        job
    }

    /// Whether every segment of an answer has left at least once.
    pub(super) fn has_left(&self, job: JobRef) -> bool {
        self.get(job).is_none_or(|job| job.next >= job.segments)
    }

    pub(super) fn get(&self, job: JobRef) -> Option<&Job> {
        let found = self.slab.get(job.index as usize)?;
        (found.incarnation == job.incarnation).then_some(found)
    }

    pub(super) fn remove(&mut self, job: JobRef) -> Option<Job> {
        self.get(job)?;
        Some(self.slab.remove(job.index as usize))
    }

    /// Takes the next segment that has never been sent. Jobs take turns, so that a long READ does
    /// not hold up a short one.
    pub(super) fn take(&mut self) -> Option<(JobRef, u32)> {
        while let Some(reference) = self.queue.pop_front() {
            let Some(job) = self.slab.get_mut(reference.index as usize) else {
                continue;
            };
            if job.incarnation != reference.incarnation {
                continue;
            }
            let segment = job.next;
            job.next += 1;
            if job.next < job.segments {
                self.queue.push_back(reference);
            }
            return Some((reference, segment));
        }
        None
    }

    /// A segment has arrived; with the last the job is done.
    //= MR-REL-023
    pub(super) fn acknowledged(&mut self, job: JobRef, segment: u32) {
        if self.get(job).is_none() {
            return;
        }
        let Some(found) = self.slab.get_mut(job.index as usize) else {
            return;
        };
        found.acknowledged.insert(segment);
        if found.acknowledged.count() >= found.segments {
            self.slab.remove(job.index as usize);
        }
    }

    /// Whether a segment is still wanted.
    pub(super) fn wants(&self, job: JobRef, segment: u32) -> bool {
        self.get(job)
            .is_some_and(|job| !job.acknowledged.contains(segment))
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Forgets the answers of a stream.
    pub(super) fn forget(&mut self, stream: StreamRef) {
        self.slab.retain(|_, job| job.stream != stream);
    }
}
