//! Work requests that a program builds by calls on an extended queue pair (`ibv_wr_start` …
//! `ibv_wr_complete`). The calls return nothing: the first mistake is kept and answers at the end,
//! and then none of the batch is posted, as verbs.h promises.
//!
//! Not here: posting.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use feroce_verbs::{Data, DatagramTarget, SendOperation, SendRequest};

use super::wr;
use crate::guard::Failure;

/// The requests between a start and its end.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    requests: Vec<SendRequest>,
    mistake: Option<Failure>,
}

impl Batch {
    /// Begins a request; `wr_id` and `flags` are what stands in the `ibv_qp_ex` at this moment.
    /// Beyond `max_send_wr` requests the batch can only fail, so no more are kept.
    pub(crate) fn push(
        &mut self,
        operation: SendOperation,
        wr_id: u64,
        flags: u32,
        max_send_wr: u32,
    ) {
        if self.mistake.is_some() {
            return;
        }
        if self.requests.len() >= max_send_wr as usize {
            let reason = format!("more requests than the send queue holds ({max_send_wr})");
            self.mistake = Some(Failure::new(libc::ENOMEM, reason));
            return;
        }
        match wr::send_flags(flags) {
            Ok(flags) => self.requests.push(SendRequest {
                wr_id,
                operation,
                data: Data::empty(),
                flags,
                target: None,
                xrc_srqn: 0,
            }),
            Err(failure) => self.mistake = Some(failure),
        }
    }

    /// Gives the request at hand its bytes.
    pub(crate) fn set_data(&mut self, data: Result<Data, Failure>) {
        self.edit("data", |request| {
            let data = data?;
            if matches!(data, Data::Inline(_)) {
                wr::check_inline(&request.operation)?;
            }
            request.data = data;
            Ok(())
        });
    }

    /// Gives the request at hand its destination (UD).
    pub(crate) fn set_target(&mut self, target: Result<DatagramTarget, Failure>) {
        self.edit("an address", |request| {
            request.target = Some(target?);
            Ok(())
        });
    }

    /// Gives the request at hand the peer's SRQ (XRC).
    pub(crate) fn set_xrc_srqn(&mut self, number: u32) {
        self.edit("an SRQ number", |request| {
            request.xrc_srqn = number;
            Ok(())
        });
    }

    /// Notes a mistake that was made before a request could begin.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.mistake.get_or_insert(failure);
    }

    fn edit(&mut self, what: &str, set: impl FnOnce(&mut SendRequest) -> Result<(), Failure>) {
        if self.mistake.is_some() {
            return;
        }
        let result = match self.requests.last_mut() {
            Some(request) => set(request),
            None => Err(Failure::invalid(format!(
                "{what} set before any request was begun"
            ))),
        };
        self.mistake = result.err();
    }

    /// The requests in order, if no mistake was made.
    pub(crate) fn finish(self) -> Result<Vec<SendRequest>, Failure> {
        self.mistake.map_or(Ok(self.requests), Err)
    }
}

/// The place in a queue pair where one batch at a time is built. Between start and end the queue
/// pair belongs to the thread that started; others wait for it.
#[derive(Debug, Default)]
pub(crate) struct Workbench {
    open: Mutex<Option<(ThreadId, Batch)>>,
    closed: Condvar,
}

impl Workbench {
    fn open(&self) -> MutexGuard<'_, Option<(ThreadId, Batch)>> {
        // A batch left half-edited by a panic is never seen: a panic aborts.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a batch. One that this thread began and forgot is dropped rather than waited for.
    pub(crate) fn start(&self) {
        let me = thread::current().id();
        let mut open = self.open();
        while open.as_ref().is_some_and(|(owner, _)| *owner != me) {
            open = self
                .closed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *open = Some((me, Batch::default()));
    }

    /// Works on the open batch.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut Batch)) -> Result<(), Failure> {
        match self.open().as_mut() {
            Some((_, batch)) => {
                edit(batch);
                Ok(())
            }
            None => Err(Failure::invalid(
                "no batch is open: call ibv_wr_start first",
            )),
        }
    }

    /// Ends the batch: `post` gets its requests while other threads still wait, so that batches
    /// are posted in the order in which they were begun.
    pub(crate) fn complete(
        &self,
        post: impl FnOnce(Vec<SendRequest>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut open = self.open();
        let batch = open.take().map(|(_, batch)| batch);
        let result = match batch {
            Some(batch) => batch.finish().and_then(post),
            None => Err(Failure::invalid(
                "no batch is open: call ibv_wr_start first",
            )),
        };
        drop(open);
        self.closed.notify_one();
        result
    }

    /// Drops the batch.
    pub(crate) fn abort(&self) {
        self.open().take();
        self.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_verbs::{Remote, Sge};
    use feroce_verbs_abi as abi;

    const DEPTH: u32 = 4;

    fn gather(length: u32) -> Data {
        Data::Gather(
            [Sge {
                address: 16,
                length,
                lkey: 1,
            }]
            .into_iter()
            .collect(),
        )
    }

    fn read() -> SendOperation {
        SendOperation::Read(Remote {
            address: 0,
            rkey: 1,
        })
    }

    #[test]
    fn requests_keep_their_order_and_their_own_settings() {
        let bench = Workbench::default();
        bench.start();
        bench
            .edit(|batch| {
                batch.push(SendOperation::Send, 1, abi::IBV_SEND_SIGNALED, DEPTH);
                batch.set_data(Ok(gather(10)));
                batch.push(SendOperation::SendImmediate(5), 2, 0, DEPTH);
                batch.set_data(Ok(Data::Inline(b"ab".as_slice().into())));
                batch.set_xrc_srqn(3);
            })
            .unwrap();
        let mut posted = Vec::new();
        let keep = |requests| {
            posted = requests;
            Ok(())
        };
        bench.complete(keep).unwrap();
        let summary: Vec<_> = posted
            .iter()
            .map(|r| (r.wr_id, r.flags.signaled, r.data.len(), r.xrc_srqn))
            .collect();
        assert_eq!(summary, [(1, true, 10, 0), (2, false, 2, 3)]);
    }

    #[test]
    fn the_first_mistake_answers_and_nothing_is_posted() {
        let bench = Workbench::default();
        bench.start();
        bench
            .edit(|batch| {
                batch.push(SendOperation::Send, 1, 0, DEPTH);
                batch.set_data(Err(Failure::invalid("first")));
                batch.set_target(Err(Failure::invalid("second")));
                batch.push(SendOperation::Send, 2, 0, DEPTH);
            })
            .unwrap();
        let result = bench.complete(|_| panic!("posted in spite of a mistake"));
        assert_eq!(result, Err(Failure::invalid("first")));
    }

    #[test]
    fn a_batch_cannot_outgrow_the_queue() {
        let mut batch = Batch::default();
        for number in 0..1000 {
            batch.push(SendOperation::Send, number, 0, DEPTH);
        }
        assert_eq!(batch.requests.len(), DEPTH as usize);
        assert_eq!(batch.finish().unwrap_err().errno, libc::ENOMEM);
    }

    #[test]
    fn settings_need_a_request_and_reads_take_nothing_inline() {
        let mut batch = Batch::default();
        batch.set_xrc_srqn(1);
        let failure = batch.finish().unwrap_err();
        assert_eq!(
            failure.reason,
            "an SRQ number set before any request was begun"
        );
        let mut batch = Batch::default();
        batch.push(read(), 1, 0, DEPTH);
        batch.set_data(Ok(Data::Inline(b"a".as_slice().into())));
        assert!(batch.finish().is_err());
    }

    #[test]
    fn without_a_start_there_is_nothing_to_end() {
        let bench = Workbench::default();
        assert!(bench.edit(|_| panic!("edited")).is_err());
        assert!(bench.complete(|_| panic!("posted")).is_err());
        bench.start();
        bench.abort();
        assert!(bench.complete(|_| panic!("posted")).is_err());
        // A forgotten batch does not lock its own thread out.
        bench.start();
        bench.start();
        let empty = |requests: Vec<SendRequest>| {
            assert!(requests.is_empty());
            Ok(())
        };
        assert_eq!(bench.complete(empty), Ok(()));
    }

    #[test]
    fn another_thread_waits_until_the_batch_ends() {
        let bench = Workbench::default();
        let posted = Mutex::new(Vec::new());
        let post = |number: u64| {
            bench
                .edit(|batch| batch.push(SendOperation::Send, number, 0, DEPTH))
                .unwrap();
            let record = |requests: Vec<SendRequest>| {
                posted
                    .lock()
                    .unwrap()
                    .extend(requests.iter().map(|r| r.wr_id));
                Ok(())
            };
            bench.complete(record).unwrap();
        };
        bench.start();
        thread::scope(|scope| {
            scope.spawn(|| {
                bench.start();
                post(2);
            });
            thread::yield_now();
            post(1);
        });
        assert_eq!(*posted.lock().unwrap(), [1, 2]);
    }
}
