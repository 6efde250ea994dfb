//! The serving process (`feroce perf-serve`): makes its end as it is told, answers or takes in
//! messages, and judges its own memory afterwards.
//!
//! It is told what to do on standard input and ends when that does, so never outlives the
//! measuring process.

use super::endpoint::{Endpoint, SERVER};
use super::idle::{Idle, Watch};
use super::pattern::{Wrong, problem_of};
use super::protocol::{Mode, Reply, Request, Test};
use anyhow::{Context as _, Result, bail, ensure};
use feroce_verbs::Context;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Options of the hidden subcommand.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Device
    #[arg(long)]
    device: String,
    /// Index of the GID that queue pairs use
    #[arg(long, default_value_t = 0)]
    gid_index: u8,
}

/// Receives are posted again when one in so many is used up: a list at a time.
const REPOST_PART: usize = 8;

/// Rounds of work between two looks for a request.
const STEPS_PER_LOOK: u32 = 64;

/// Serves until standard input ends.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    feroce_obs::init_logging();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        read_requests(sender);
        // The main thread ends when it sees that no requests come any more. Should it be stuck
        // in a call, the process ends all the same.
        std::thread::sleep(END_GRACE);
        std::process::exit(1);
    });
    match serve(arguments, &requests) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever measures reports it; if that end is gone nobody wants to know.
            let _ = reply(&Reply::Failed {
                error: format!("{error:#}"),
            });
            ExitCode::FAILURE
        }
    }
}

/// How long the main thread may take to end after the input has.
const END_GRACE: Duration = Duration::from_secs(2);

/// Hands requests on until there are no more; `sender` ends with it.
fn read_requests(sender: Sender<Request>) {
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let handed_on = match serde_json::from_str(&line) {
            Ok(request) => sender.send(request).is_ok(),
            Err(error) => {
                let error = format!("request {line:?} not understood: {error}");
                let _ = reply(&Reply::Failed { error });
                false
            }
        };
        if !handed_on {
            break;
        }
    }
}

fn serve(arguments: &Arguments, requests: &Receiver<Request>) -> Result<()> {
    let context = Context::open(&arguments.device)?;
    reply(&Reply::Opened)?;
    while let Ok(request) = requests.recv() {
        let Request::Prepare(case) = request else {
            bail!("{request:?} out of turn")
        };
        ensure!(case.qps > 0, "a measurement needs a queue pair");
        let sent_before = retransmissions(&context);
        let mut endpoint = Endpoint::new(&context, arguments.gid_index, SERVER, case)?;
        reply(&Reply::Prepared(endpoint.side()?))?;
        let Some(side) = next(requests, |request| match request {
            Request::Connect(side) => Some(side),
            _ => None,
        })?
        else {
            return Ok(());
        };
        endpoint.connect(&side)?;
        reply(&Reply::Connected)?;
        let mut server = Server {
            endpoint,
            problem: None,
        };
        let Some(messages) = server.work_until_finish(requests)? else {
            return Ok(());
        };
        let problem = server.judge(&messages)?;
        let retransmissions = retransmissions(&context) - sent_before;
        reply(&Reply::Finished {
            problem,
            retransmissions,
        })?;
    }
    Ok(())
}

/// The next request, if it is of the kind expected; `None` at the end of the input.
fn next<T>(
    requests: &Receiver<Request>,
    expected: impl FnOnce(Request) -> Option<T>,
) -> Result<Option<T>> {
    let Ok(request) = requests.recv() else {
        return Ok(None);
    };
    let described = format!("{request:?} out of turn");
    Ok(Some(expected(request).context(described)?))
}

fn reply(reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}

/// Request packets that this process sent again.
pub(super) fn retransmissions(context: &Context) -> u64 {
    context.device().counters().1.retransmissions
}

struct Server {
    endpoint: Endpoint,
    problem: Option<String>,
}

impl Server {
    /// Works until the run is over; returns how many messages were sent on each queue pair.
    fn work_until_finish(&mut self, requests: &Receiver<Request>) -> Result<Option<Vec<u64>>> {
        let case = self.endpoint.case;
        let answers = case.mode == Mode::Latency && case.test.is_ping_pong();
        // The other end watches the time.
        let mut idle = Idle::default();
        loop {
            match requests.try_recv() {
                Ok(Request::Finish { messages }) => return Ok(Some(messages)),
                Ok(request) => bail!("{request:?} out of turn"),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => {}
            }
            for _ in 0..STEPS_PER_LOOK {
                let mut news = self.poll()?;
                if answers {
                    news |= self.answer()?;
                }
                idle.polled(news);
            }
        }
    }

    /// Takes completions; receives are posted again. Whether there were any.
    fn poll(&mut self) -> Result<bool> {
        let taken = self.endpoint.poll(&mut self.problem)?;
        if taken > 0 && self.endpoint.case.test == Test::Send {
            for lane in &mut self.endpoint.lanes {
                let free = lane.receives_free();
                if free >= lane.target.count().div_ceil(REPOST_PART) {
                    lane.post_receives(free)?;
                }
            }
        }
        Ok(taken > 0)
    }

    /// Answers the next message if it has arrived.
    fn answer(&mut self) -> Result<bool> {
        let lane = &mut self.endpoint.lanes[0];
        let number = lane.posted;
        let arrived = match self.endpoint.case.test {
            Test::Send => lane.received > number,
            _ => lane.has_arrived(number)?,
        };
        if !arrived || lane.room() == 0 {
            return Ok(false);
        }
        lane.post(1)?;
        Ok(true)
    }

    /// What is wrong with this end's memory after `messages` on each queue pair.
    fn judge(&mut self, messages: &[u64]) -> Result<Option<String>> {
        let test = self.endpoint.case.test;
        let lanes = self.endpoint.lanes.len();
        ensure!(
            messages.len() == lanes,
            "the other end counts {} queue pairs",
            messages.len()
        );
        if test == Test::Send {
            // They completed at the sender, so they are here, but perhaps not looked at.
            let mut watch = Watch::default();
            while self.problem.is_none() && self.is_short_of(messages) {
                watch.polled(self.poll()?)?;
            }
        }
        if let Some(problem) = self.problem.take() {
            return Ok(Some(problem));
        }
        match test {
            Test::Write | Test::Send => problem_of(self.endpoint.verify_target(messages)),
            Test::Read => Ok(None),
            Test::Atomic => problem_of(self.check_counter(messages.iter().sum())),
        }
    }

    fn is_short_of(&self, messages: &[u64]) -> bool {
        let pairs = self.endpoint.lanes.iter().zip(messages);
        pairs
            .into_iter()
            .any(|(lane, &messages)| lane.received < messages)
    }

    /// The counter's final value: the other end swaps in the complement of the sum.
    fn check_counter(&self, total: u64) -> Result<()> {
        let found = self.endpoint.lanes[0].source.word(0)?;
        if found != !total {
            let added = !found;
            bail!(Wrong(format!(
                "the counter says {added} additions instead of {total}"
            )));
        }
        Ok(())
    }
}
