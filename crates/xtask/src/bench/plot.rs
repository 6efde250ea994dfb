//! Writes plots of curves as SVG: sizes on a logarithmic axis, values on either kind.
//!
//! Own code, because a plot of a few lines needs no more, and the text must read the same
//! everywhere. Not here: what is plotted.

use std::fmt::Write as _;

use super::curves::Curve;
use super::measure::size_name;

/// The axis of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// In decades.
    Logarithmic,
}

/// A plot of curves over sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) caption: &'a str,
    /// Of the values.
    pub(crate) unit: &'a str,
    pub(crate) scale: Scale,
    pub(crate) curves: &'a [Curve],
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;

/// Room around the axes: left, top, right, bottom.
const MARGIN: (f64, f64, f64, f64) = (64.0, 56.0, 24.0, 72.0);

/// Told apart by people who see few colours as well (after Okabe and Ito).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#e69f00",
];

/// Values that the axes reach.
struct Bounds {
    sizes: (f64, f64),
    values: (f64, f64),
}

impl Plot<'_> {
    /// The whole file.
    pub(crate) fn to_svg(self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        );
        let bounds = self.bounds();
        text(&mut svg, (MARGIN.0, 24.0), "start", &escape(self.title), 16);
        let caption = escape(self.caption);
        text(&mut svg, (MARGIN.0, HEIGHT - 12.0), "start", &caption, 11);
        self.write_axes(&mut svg, &bounds);
        for (index, curve) in self.curves.iter().enumerate() {
            self.write_curve(&mut svg, &bounds, index, curve);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn bounds(&self) -> Bounds {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let highest = most(&mut points().map(|point| point.1)).max(f64::MIN_POSITIVE);
        let lowest = least(&mut points().map(|point| point.1)).clamp(highest / 1e6, highest);
        Bounds {
            sizes: (
                least(&mut points().map(|point| point.0)).max(1.0),
                most(&mut points().map(|point| point.0)).max(2.0),
            ),
            values: match self.scale {
                Scale::Linear => (0.0, highest * 1.1),
                Scale::Logarithmic => (decade_below(lowest), decade_above(highest)),
            },
        }
    }

    /// Where a point lies.
    fn place(&self, bounds: &Bounds, (size, value): (f64, f64)) -> (f64, f64) {
        let across = share(bounds.sizes, size, Scale::Logarithmic);
        let up = share(bounds.values, value, self.scale);
        let (left, top, right, bottom) = MARGIN;
        (
            left + across * (WIDTH - left - right),
            HEIGHT - bottom - up * (HEIGHT - top - bottom),
        )
    }

    fn write_axes(&self, svg: &mut String, bounds: &Bounds) {
        for value in self.marks(bounds) {
            let (left, height) = self.place(bounds, (bounds.sizes.0, value));
            let (right, _) = self.place(bounds, (bounds.sizes.1, value));
            line(svg, (left, height), (right, height));
            let label = format!("{value}");
            text(svg, (left - 8.0, height + 4.0), "end", &label, 12);
        }
        let mut size = 1.0_f64;
        while size <= bounds.sizes.1 * 1.001 {
            if size >= bounds.sizes.0 {
                let (across, bottom) = self.place(bounds, (size, bounds.values.0));
                let (_, top) = self.place(bounds, (size, bounds.values.1));
                line(svg, (across, bottom), (across, top));
                let label = size_name(size as u32);
                text(svg, (across, bottom + 18.0), "middle", &label, 12);
            }
            size *= 8.0;
        }
        let unit = format!("{} over bytes of a message", self.unit);
        text(svg, (MARGIN.0, 44.0), "start", &unit, 12);
    }

    /// Values that get a line of the grid.
    fn marks(&self, bounds: &Bounds) -> Vec<f64> {
        let (low, high) = bounds.values;
        match self.scale {
            Scale::Linear => {
                let step = nice_step(high / 6.0);
                let count = (high / step).floor() as usize;
                (0..=count).map(|index| index as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let mut marks = vec![low];
                while marks.last().is_some_and(|last| last * 9.0 < high) {
                    marks.push(marks[marks.len() - 1] * 10.0);
                }
                marks
            }
        }
    }

    fn write_curve(&self, svg: &mut String, bounds: &Bounds, index: usize, curve: &Curve) {
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for &point in &curve.points {
            let (across, down) = self.place(bounds, point);
            let _ = write!(path, "{across:.1},{down:.1} ");
            let _ = writeln!(
                svg,
                "<circle cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>",
            path.trim_end()
        );
        let top = MARGIN.1 + 16.0 + 18.0 * index as f64;
        let left = MARGIN.0 + 14.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
            top - 6.0
        );
        text(svg, (left + 22.0, top), "start", &escape(curve.name), 13);
    }
}

/// How far a value lies between two others, 0 to 1.
fn share((low, high): (f64, f64), value: f64, scale: Scale) -> f64 {
    let share = match scale {
        Scale::Linear => (value - low) / (high - low),
        Scale::Logarithmic => (value / low).ln() / (high / low).ln(),
    };
    if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn decade_below(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

fn decade_above(value: f64) -> f64 {
    10_f64.powf(value.log10().ceil())
}

/// The next of 1, 2, 5 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    let decade = decade_below(rough);
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * decade)
        .find(|&step| step >= rough)
        .unwrap_or(10.0 * decade)
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, content: &str, size: u32) {
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" \
         font-size=\"{size}\">{content}</text>",
        at.0, at.1
    );
}

fn escape(content: &str) -> String {
    content.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_where_the_axes_say() {
        assert_eq!(share((0.0, 10.0), 5.0, Scale::Linear), 0.5);
        assert_eq!(share((1.0, 100.0), 10.0, Scale::Logarithmic), 0.5);
        assert_eq!(share((1.0, 1.0), 1.0, Scale::Logarithmic), 0.0);
        assert_eq!(
            (nice_step(0.9), nice_step(1.2), nice_step(6.0)),
            (1.0, 2.0, 10.0)
        );
        assert_eq!((decade_below(43.0), decade_above(43.0)), (10.0, 100.0));
    }

    #[test]
    fn a_plot_without_points_is_still_a_plot() {
        let plot = Plot {
            title: "nothing < something",
            caption: "",
            unit: "GB/s",
            scale: Scale::Logarithmic,
            curves: &[],
        };
        let svg = plot.to_svg();
        assert!(svg.contains("nothing &lt; something") && svg.ends_with("</svg>\n"));
    }
}
