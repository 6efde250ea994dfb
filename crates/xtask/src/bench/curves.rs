//! Curves: size against bandwidth, size against latency. Measured once, after the rounds: they
//! show shapes, the figures are what is judged.

use anyhow::Result;
use serde_json::{Value, json};

use super::measure::{Bench, Mover};
use super::plot::{Plot, Scale};

/// A line of a plot: its name, and pairs of bytes and value.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The lines of both plots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    /// GB/s.
    bandwidth: Vec<Curve>,
    /// µs, one way.
    latency: Vec<Curve>,
}

/// Spans of the raw limit of bandwidth.
const SPANS: [u32; 6] = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 23];

/// Sizes of datagrams of the raw ping-pong; the last is the largest there is.
const DATAGRAMS: [u32; 6] = [8, 64, 512, 4096, 16_384, 65_507];

impl Curves {
    /// Measures all of them.
    pub(crate) fn measure(bench: &Bench) -> Result<Self> {
        let mut curves = Self::default();
        for (name, program) in [
            ("RC WRITE (ib_write_bw)", "ib_write_bw"),
            ("RC READ (ib_read_bw)", "ib_read_bw"),
            ("RC SEND (ib_send_bw)", "ib_send_bw"),
        ] {
            const AVERAGE: usize = 3;
            let scale = f64::from(1 << 20) / 1e9;
            let points = bench.all_sizes(program, AVERAGE, scale)?;
            curves.bandwidth.push(Curve { name, points });
        }
        let mut raw = Vec::new();
        for size in SPANS {
            let rate = bench.bandwidth(size, Mover::Raw)?;
            raw.push((f64::from(size), rate / 1e9));
        }
        curves.bandwidth.push(Curve {
            name: "raw limit: gather and place",
            points: raw,
        });
        for (name, program) in [
            ("RC WRITE (ib_write_lat)", "ib_write_lat"),
            ("RC SEND (ib_send_lat)", "ib_send_lat"),
        ] {
            const TYPICAL: usize = 4;
            let points = bench.all_sizes(program, TYPICAL, 1.0)?;
            curves.latency.push(Curve { name, points });
        }
        let mut raw = Vec::new();
        for size in DATAGRAMS {
            raw.push((f64::from(size), bench.raw_ping_pong(size)? * 1e6));
        }
        curves.latency.push(Curve {
            name: "raw limit: one datagram, spinning",
            points: raw,
        });
        Ok(curves)
    }

    /// Files of plots: name and content. `caption` says where and when.
    pub(crate) fn plots(&self, caption: &str) -> [(&'static str, String); 2] {
        let bandwidth = Plot {
            title: "Bandwidth between two processes over loopback",
            caption,
            unit: "GB/s",
            scale: Scale::Linear,
            curves: &self.bandwidth,
        };
        let latency = Plot {
            title: "Latency between two processes over loopback, one way, median",
            caption,
            unit: "µs",
            scale: Scale::Logarithmic,
            curves: &self.latency,
        };
        [
            ("bandwidth.svg", bandwidth.to_svg()),
            ("latency.svg", latency.to_svg()),
        ]
    }

    pub(crate) fn to_json(&self) -> Value {
        let lines = |curves: &[Curve]| -> Vec<Value> {
            let line = |curve: &Curve| json!({"name": curve.name, "points": curve.points});
            curves.iter().map(line).collect()
        };
        json!({
            "bandwidth_gigabytes_per_second": lines(&self.bandwidth),
            "latency_microseconds": lines(&self.latency),
        })
    }
}
