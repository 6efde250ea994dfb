//! Runs one hot path many times, so that callgrind can count its instructions: `cargo xtask
//! instructions`. Unlike time, the count hardly changes from run to run on a busy machine.
//!
//! Both ends live in this process, each on a device of its own without a service thread: nothing
//! happens but what is called here, in this order. Only what runs inside [`measured`] counts.
//! Sockets are real, but the kernel's instructions do not count. Not here: any judgement.

mod ends;

use anyhow::{Context as _, Result, bail};
use ends::{Ends, LARGE_BYTES, SMALL_BYTES};
use std::process::ExitCode;

/// A hot path: its name, and what to do as often as asked.
type Case = (&'static str, fn(&mut Ends, u32) -> Result<()>);

/// All cases. Each leaves both ends idle.
const CASES: &[Case] = &[
    ("post-send", post_send),
    ("write-64k-transmit", write_transmit),
    ("write-64k-receive", write_receive),
    ("write-64k-complete", write_complete),
    ("send-8-transmit", send_transmit),
    ("send-8-receive", send_receive),
    ("send-8-complete", send_complete),
    ("send-8-list-of-32", send_list),
    ("poll-full", poll_full),
    ("poll-empty", poll_empty),
];

/// Messages of a list.
const LIST: u32 = 32;

/// Rounds before anything counts: peers get to know each other, windows open, tables grow.
const WARM_UP: u32 = 40;

/// What callgrind counts: its name is the `--toggle-collect` of `cargo xtask instructions`.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    work()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feroce-instructions: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        for (name, _) in CASES {
            println!("{name}");
        }
        return Ok(());
    };
    let times = arguments.next().map_or(Ok(100), |text| text.parse());
    let times = times.context("how often? a number")?;
    let Some((_, case)) = CASES.iter().find(|(known, _)| *known == name) else {
        bail!("no case {name}");
    };
    let mut ends = Ends::connect()?;
    // A sender that knows of no receive does not send: there are always some.
    ends.post_receive(2 * LIST)?;
    for _ in 0..WARM_UP {
        ends.post_write(LARGE_BYTES)?;
        ends.settle_write()?;
        ends.post_receive(1)?;
        let before = ends.sent();
        ends.post_sends(1)?;
        ends.leave(before, 1)?;
        ends.settle_sends(1)?;
    }
    case(&mut ends, times)
}

/// Posting while the queue pair may not send: what is left is the call itself.
fn post_send(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        let before = ends.fill_window()?;
        measured(&mut || ends.post_write(LARGE_BYTES))?;
        ends.settle_writes(before + 1)?;
    }
    Ok(())
}

/// Posting one WRITE of 64 KiB that leaves at once.
fn write_transmit(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        measured(&mut || ends.post_write(LARGE_BYTES))?;
        ends.settle_write()?;
    }
    Ok(())
}

/// The target of a WRITE of 64 KiB: from packets in the socket to the acknowledgement's way out.
fn write_receive(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        let (before, packets) = (ends.sent(), ends.packets_of(LARGE_BYTES));
        ends.post_write(LARGE_BYTES)?;
        ends.leave(before, packets)?;
        measured(&mut || ends.target_receives(packets))?;
        ends.settle_write()?;
    }
    Ok(())
}

/// The requester of a WRITE of 64 KiB: from the acknowledgement in the socket to the completion.
fn write_complete(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        let (before, packets) = (ends.sent(), ends.packets_of(LARGE_BYTES));
        ends.post_write(LARGE_BYTES)?;
        ends.leave(before, packets)?;
        ends.target_receives(packets)?;
        measured(&mut || ends.requester_completes(1))?;
    }
    Ok(())
}

/// Posting one SEND of 8 bytes that leaves at once.
fn send_transmit(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        ends.post_receive(1)?;
        measured(&mut || ends.post_sends(1))?;
        ends.settle_sends(1)?;
    }
    Ok(())
}

/// The receiver of a SEND of 8 bytes: from the socket to the completion, with its acknowledgement.
fn send_receive(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        ends.post_receive(1)?;
        let before = ends.sent();
        ends.post_sends(1)?;
        ends.leave(before, 1)?;
        measured(&mut || ends.target_completes(1))?;
        ends.requester_completes(1)?;
    }
    Ok(())
}

/// The sender of a SEND of 8 bytes: from the acknowledgement in the socket to the completion.
fn send_complete(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        ends.post_receive(1)?;
        let before = ends.sent();
        ends.post_sends(1)?;
        ends.leave(before, 1)?;
        ends.target_completes(1)?;
        measured(&mut || ends.requester_completes(1))?;
    }
    Ok(())
}

/// A list of SENDs of 8 bytes, everything at both ends; the count is for the whole list.
fn send_list(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        ends.post_receive(LIST)?;
        measured(&mut || {
            ends.post_sends(LIST)?;
            ends.settle_sends(LIST)
        })?;
    }
    Ok(())
}

/// Taking one completion that is there.
fn poll_full(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        ends.post_write(SMALL_BYTES)?;
        ends.target_receives(1)?;
        ends.requester_receives(1)?;
        measured(&mut || ends.requester_completes(1))?;
    }
    Ok(())
}

/// Looking for a completion when nothing has arrived.
fn poll_empty(ends: &mut Ends, times: u32) -> Result<()> {
    for _ in 0..times {
        ends.rest();
        measured(&mut || ends.poll_in_vain())?;
    }
    Ok(())
}
