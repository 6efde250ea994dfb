//! What a run gives: figures for each operation and size, as a table and as JSON.

use super::client::{Bandwidth, Latency};
use super::protocol::Test;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// A whole run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Device that both ends used.
    pub(super) device: String,
    /// Address that both ends used.
    pub(super) address: String,
    /// Path MTU in bytes.
    pub(super) mtu: u32,
    /// Queue pairs of a bandwidth measurement.
    pub(super) qps: usize,
    /// What the bytes of messages followed from.
    pub(super) seed: u64,
    /// Whether all data was right.
    pub(super) verified: bool,
    /// Operations and sizes.
    pub(super) results: Vec<Row>,
}

/// Figures for one operation and size.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Operation.
    pub(super) test: Test,
    /// Bytes of a message.
    pub(super) size: u32,
    /// With many messages under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bandwidth: Option<BandwidthFigures>,
    /// With one message under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<LatencyFigures>,
    /// Whether all data was right.
    pub(super) verified: bool,
    /// What was wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    /// Request packets that were sent again, by both ends.
    pub(super) retransmissions: u64,
}

/// Throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct BandwidthFigures {
    /// Messages that completed.
    messages: u64,
    /// Seconds they took.
    seconds: f64,
    /// 10^6 bytes of messages per second.
    megabytes_per_second: f64,
    /// 10^9 bits of messages per second.
    gigabits_per_second: f64,
    /// Messages per second.
    messages_per_second: f64,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct LatencyFigures {
    /// How many were taken.
    samples: usize,
    /// Smallest.
    min_us: f64,
    /// Half of them are not above it.
    median_us: f64,
    /// 99 of 100 are not above it.
    p99_us: f64,
}

impl BandwidthFigures {
    /// From a measurement with messages of `size` bytes.
    pub(super) fn new(size: u32, measured: &Bandwidth) -> Self {
        // A clock that did not advance gives a huge figure instead of an infinite one.
        let seconds = measured.elapsed.max(Duration::from_nanos(1)).as_secs_f64();
        let messages_per_second = measured.messages as f64 / seconds;
        let bytes_per_second = messages_per_second * f64::from(size);
        Self {
            messages: measured.messages,
            seconds,
            megabytes_per_second: bytes_per_second / 1e6,
            gigabits_per_second: bytes_per_second * 8.0 / 1e9,
            messages_per_second,
        }
    }
}

impl LatencyFigures {
    /// From a measurement; where both ends sent, half of each exchange counts.
    pub(super) fn new(test: Test, measured: &Latency) -> Option<Self> {
        let mut samples = measured.samples.clone();
        samples.sort_unstable();
        let directions = if test.is_ping_pong() { 2.0 } else { 1.0 };
        let at = |percent| {
            let sample = nearest_rank(&samples, percent)?;
            Some(sample.as_secs_f64() * 1e6 / directions)
        };
        Some(Self {
            samples: samples.len(),
            min_us: at(0)?,
            median_us: at(50)?,
            p99_us: at(99)?,
        })
    }
}

/// The smallest sample that `percent` in a hundred are not above; `samples` ascend.
fn nearest_rank(samples: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (samples.len() * percent).div_ceil(100);
    samples.get(rank.saturating_sub(1)).copied()
}

/// Titles of the table, without a line break.
pub(super) fn table_head() -> String {
    format!(
        "{:<7}{:>9}{:>11}{:>9}{:>13}{:>10}{:>11}{:>10}{:>10}{:>8}",
        "test",
        "bytes",
        "MB/s",
        "Gb/s",
        "messages/s",
        "min µs",
        "median µs",
        "p99 µs",
        "verified",
        "resent"
    )
}

/// One line of the table, without a line break.
pub(super) fn table_line(row: &Row) -> String {
    let mut line = format!("{:<7}{:>9}", row.test, row.size);
    // Writing to a string does not fail.
    let _ = match &row.bandwidth {
        Some(bandwidth) => write!(
            line,
            "{:>11.1}{:>9.2}{:>13.0}",
            bandwidth.megabytes_per_second,
            bandwidth.gigabits_per_second,
            bandwidth.messages_per_second
        ),
        None => write!(line, "{:>11}{:>9}{:>13}", "-", "-", "-"),
    };
    let _ = match &row.latency {
        Some(latency) => write!(
            line,
            "{:>10.2}{:>11.2}{:>10.2}",
            latency.min_us, latency.median_us, latency.p99_us
        ),
        None => write!(line, "{:>10}{:>11}{:>10}", "-", "-", "-"),
    };
    let verified = if row.verified { "yes" } else { "NO" };
    let _ = write!(line, "{verified:>10}{:>8}", row.retransmissions);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let measured = Bandwidth {
            messages: 1000,
            elapsed: Duration::from_millis(2),
            problem: None,
        };
        let samples = (1..=200).map(Duration::from_micros).collect();
        let latency = Latency {
            samples,
            problem: None,
        };
        Row {
            test: Test::Write,
            size: 4096,
            bandwidth: Some(BandwidthFigures::new(4096, &measured)),
            latency: LatencyFigures::new(Test::Write, &latency),
            verified: true,
            problems: Vec::new(),
            retransmissions: 3,
        }
    }

    #[test]
    fn columns_stand_below_their_titles() {
        let expected = [
            concat!(
                "test       bytes       MB/s     Gb/s   messages/s",
                "    min µs  median µs    p99 µs  verified  resent"
            ),
            concat!(
                "write       4096     2048.0    16.38       500000",
                "      0.50      50.00     99.00       yes       3"
            ),
            concat!(
                "write       4096          -        -            -",
                "         -          -         -        NO       3"
            ),
        ];
        let nothing = Row {
            bandwidth: None,
            latency: None,
            verified: false,
            ..row()
        };
        assert_eq!(
            [table_head(), table_line(&row()), table_line(&nothing)],
            expected
        );
    }

    #[test]
    fn half_an_exchange_counts_where_both_ends_send() {
        let latency = Latency {
            samples: vec![Duration::from_micros(10)],
            problem: None,
        };
        let median = |test| LatencyFigures::new(test, &latency).unwrap().median_us;
        assert_eq!(median(Test::Send), 5.0);
        assert_eq!(median(Test::Read), 10.0);
    }

    #[test]
    fn ranks_are_of_samples_that_were_taken() {
        let samples: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(nearest_rank(&samples, 0), Some(Duration::from_micros(1)));
        assert_eq!(nearest_rank(&samples, 50), Some(Duration::from_micros(50)));
        assert_eq!(nearest_rank(&samples, 99), Some(Duration::from_micros(99)));
        assert_eq!(
            nearest_rank(&samples[..1], 99),
            Some(Duration::from_micros(1))
        );
        assert_eq!(nearest_rank(&[], 50), None);
    }

    #[test]
    fn json_names_units_and_leaves_out_what_was_not_measured() {
        let json = serde_json::to_value(Row {
            latency: None,
            ..row()
        })
        .unwrap();
        assert_eq!(json["test"], "write");
        assert_eq!(json["bandwidth"]["megabytes_per_second"], 2048.0);
        assert!(json.get("latency").is_none());
        assert!(json.get("problems").is_none());
    }
}
