//! `feroce dissect FILE`: what a capture shows of RoCE, a line for each packet and a summary.
//!
//! Not here: reading captures (`feroce_obs::read`, `feroce_obs::frame`) and packets
//! (`feroce_wire::Packet`).

mod summary;

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use feroce_obs::frame::{Frame, NotRoce};
use feroce_obs::read::{Reader, Record};
use feroce_wire::Packet;

use summary::Summary;

/// Exit status when the capture holds something that is wrong.
const FOUND: u8 = 1;
/// Exit status when the capture cannot be read, or not to its end.
const UNREADABLE: u8 = 2;

/// Print the RoCE packets of a capture and judge their ICRCs
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: 0 if every packet is right, 1 if an ICRC or a header is wrong, 2 if \
                  the file cannot be read to its end."
)]
pub(crate) struct Arguments {
    /// A pcap or pcapng file, such as tcpdump or FEROCE_PCAP writes; - for standard input
    file: PathBuf,
    /// Print only the summary
    #[arg(long)]
    summary: bool,
}

/// Dissects a capture to standard output.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut output = BufWriter::new(io::stdout().lock());
    match dissect_file(arguments, &mut output) {
        Ok(summary) if summary.is_clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FOUND),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feroce dissect: {}: {error:#}", arguments.file.display());
            ExitCode::from(UNREADABLE)
        }
    }
}

/// Whether the reader of our output went away, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn dissect_file(arguments: &Arguments, output: &mut impl Write) -> Result<Summary> {
    let input: Box<dyn Read> = if arguments.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&arguments.file).context("cannot be opened")?)
    };
    let mut summary = Summary::default();
    let lines = !arguments.summary;
    let mut reader = Reader::new(BufReader::new(input))?;
    let read = dissect(&mut reader, output, lines, &mut summary);
    // Also of a file that cannot be read to its end: what was there counts.
    write!(output, "{summary}")?;
    output.flush()?;
    read.map(|()| summary)
}

/// Prints and counts every record of a capture.
fn dissect(
    reader: &mut Reader<impl Read>,
    output: &mut impl Write,
    lines: bool,
    summary: &mut Summary,
) -> Result<()> {
    let mut start = None;
    while let Some(record) = reader.next_record()? {
        let text = match Frame::parse(record.link_type, record.bytes) {
            Ok(frame) => packet_text(&frame, &record, summary),
            Err(NotRoce::OtherProtocol) => {
                summary.other();
                continue;
            }
            Err(error) => {
                summary.unreadable(error);
                continue;
            }
        };
        if !lines {
            continue;
        }
        let since_start = record.time.map(|time| {
            let start = *start.get_or_insert(time);
            time.checked_sub(start).unwrap_or_default()
        });
        write!(output, "{} {text}", Time(since_start))?;
        if let Some(comment) = record.comment {
            write!(output, "  # {}", comment.escape_debug())?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// The line of one RoCE packet, without its time.
fn packet_text(frame: &Frame<'_>, record: &Record<'_>, summary: &mut Summary) -> String {
    let (source, destination) = (frame.source, frame.destination);
    if frame.roce_len > ROCE_BYTES_MAX {
        summary.batch();
        let len = frame.roce_len;
        return format!("{source} → {destination} {len} bytes, several packets in one");
    }
    let icrc = frame.icrc();
    let what = match Packet::parse(frame.roce) {
        Ok(packet) => {
            let again = summary.packet(frame, record.direction, &packet, icrc);
            let note = if again { "  again" } else { "" };
            format!("{packet}  {icrc}{note}")
        }
        // The ICRC is the last thing that is missing, so a cut packet may parse all the same, with
        // a payload that is too short; one that does not is no fault of its sender.
        Err(_) if !frame.is_whole() => {
            summary.cut();
            format!("{} of {} bytes captured", frame.roce.len(), frame.roce_len)
        }
        Err(error) => {
            summary.malformed(icrc);
            format!("MALFORMED: {error}  {icrc}")
        }
    };
    format!("{source} → {destination} {what}")
}

/// Longer than any RoCE packet: 4096 bytes of payload, all headers, ICRC.
const ROCE_BYTES_MAX: usize = 4096 + feroce_wire::HEADERS_MAX + feroce_wire::icrc::LEN;

/// Seconds since the first packet.
struct Time(Option<Duration>);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{:>4}.{:09}", time.as_secs(), time.subsec_nanos()),
            None => write!(f, "{:>14}", "-"),
        }
    }
}

#[cfg(test)]
mod tests;
