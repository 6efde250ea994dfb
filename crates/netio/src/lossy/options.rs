//! The properties of a bad network, and their text form.

use std::fmt;
use std::str::FromStr;

use super::Ratio;

/// Default of [`Impairment::hold_ns`].
const HOLD_NS: u64 = 100_000;

/// Default of [`Impairment::queue_bytes`].
const QUEUE_BYTES: u64 = 1 << 20;

/// Names of the text form, in the order they are printed.
const NAMES: &str = "loss, dup, reorder, corrupt, delay, hold, rate, queue, seed";

/// Properties of a network. The default is a perfect one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairment {
    /// `loss`: packets that vanish.
    pub loss: Ratio,
    /// `dup`: packets that arrive twice, the copy up to [`Self::hold_ns`] later.
    pub duplicate: Ratio,
    /// `reorder`: packets held back by up to [`Self::hold_ns`], so that later ones overtake.
    pub reorder: Ratio,
    /// `corrupt`: packets that arrive with one byte changed.
    pub corrupt: Ratio,
    /// `delay`: time every packet takes, in nanoseconds.
    pub delay_ns: u64,
    /// `hold`: most that reordering and duplication add, in nanoseconds.
    pub hold_ns: u64,
    /// `rate`: bits per second of the bottleneck; `None` for no bottleneck.
    pub rate_bits_per_s: Option<u64>,
    /// `queue`: bytes that wait before the bottleneck at most.
    pub queue_bytes: u64,
    /// `seed`: names the sequence of fates.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: Ratio::ZERO,
            duplicate: Ratio::ZERO,
            reorder: Ratio::ZERO,
            corrupt: Ratio::ZERO,
            delay_ns: 0,
            hold_ns: HOLD_NS,
            rate_bits_per_s: None,
            queue_bytes: QUEUE_BYTES,
            seed: 0,
        }
    }
}

/// The form that is parsed, with everything spelled out.
impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "loss={},dup={},reorder={},corrupt={},delay={}ns,hold={}ns",
            self.loss, self.duplicate, self.reorder, self.corrupt, self.delay_ns, self.hold_ns
        )?;
        if let Some(rate) = self.rate_bits_per_s {
            write!(f, ",rate={rate},queue={}", self.queue_bytes)?;
        }
        write!(f, ",seed={}", self.seed)
    }
}

/// The part of the text form that is wrong, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impairment {part:?}: {reason}")]
pub struct ImpairmentError {
    part: String,
    reason: String,
}

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, ImpairmentError> {
        let mut options = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            if part.is_empty() {
                continue;
            }
            let fail = |reason: &str| ImpairmentError {
                part: part.to_owned(),
                reason: reason.to_owned(),
            };
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| fail("expected name=value"))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(fail("given twice"));
            }
            seen.push(name);
            options.set(name, value).map_err(|reason| fail(&reason))?;
        }
        Ok(options)
    }
}

impl Impairment {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "loss" => self.loss = ratio(value)?,
            "dup" => self.duplicate = ratio(value)?,
            "reorder" => self.reorder = ratio(value)?,
            "corrupt" => self.corrupt = ratio(value)?,
            "delay" => self.delay_ns = duration(value)?,
            "hold" => self.hold_ns = duration(value)?,
            "rate" => {
                let rate = scaled(value, 1000).filter(|rate| *rate > 0);
                self.rate_bits_per_s =
                    Some(rate.ok_or("a rate is bits per second, such as 5G, 2.5G or 100M")?);
            }
            "queue" => {
                self.queue_bytes =
                    scaled(value, 1024).ok_or("a queue is bytes, such as 65536, 256K or 1M")?;
            }
            "seed" => {
                self.seed = value.parse().map_err(|_| "a seed is a number below 2^64")?;
            }
            _ => return Err(format!("unknown name; known are {NAMES}")),
        }
        Ok(())
    }
}

/// `1%`, `0.25%` or `3/1000`.
fn ratio(text: &str) -> Result<Ratio, String> {
    const EXPECTED: &str = "a ratio between 0 and 1 is written 1%, 0.25% or 3/1000";
    let parsed = if let Some(percent) = text.strip_suffix('%') {
        decimal(percent.trim()).and_then(|(digits, scale)| {
            Ratio::new(
                u32::try_from(digits).ok()?,
                u32::try_from(scale.checked_mul(100)?).ok()?,
            )
        })
    } else {
        text.split_once('/').and_then(|(above, below)| {
            Ratio::new(above.trim().parse().ok()?, below.trim().parse().ok()?)
        })
    };
    parsed.ok_or_else(|| EXPECTED.to_owned())
}

/// `250ns`, `25us`, `1.5ms` or `2s`, in nanoseconds.
fn duration(text: &str) -> Result<u64, String> {
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit_ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => 0,
    };
    exact(number.trim(), unit_ns)
        .filter(|_| unit_ns > 0)
        .ok_or_else(|| "a time is written 250ns, 25us, 1.5ms or 2s".to_owned())
}

/// A number with an optional K, M or G, which stand for powers of `base`.
fn scaled(text: &str, base: u64) -> Option<u64> {
    let (number, factor) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], base),
        b'm' | b'M' => (&text[..text.len() - 1], base * base),
        b'g' | b'G' => (&text[..text.len() - 1], base * base * base),
        _ => (text, 1),
    };
    exact(number.trim(), factor)
}

/// `text` times `factor`, if that is a whole number.
fn exact(text: &str, factor: u64) -> Option<u64> {
    let (digits, scale) = decimal(text)?;
    let product = digits.checked_mul(factor)?;
    product.is_multiple_of(scale).then_some(product / scale)
}

/// A decimal number as digits and the power of ten they are divided by.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = [whole, fraction].concat();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let scale = 10u64.checked_pow(fraction.len().try_into().ok()?)?;
    Some((digits.parse().ok()?, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_read() {
        let text = "loss=1%, reorder=0.25%,dup=1/1000,corrupt=100%,delay=25us,hold=1.5ms,\
                    rate=2.5G,queue=256K,seed=18446744073709551615";
        let expected = Impairment {
            loss: Ratio::percent(1),
            duplicate: Ratio::new(1, 1000).unwrap(),
            reorder: Ratio::new(25, 10_000).unwrap(),
            corrupt: Ratio::percent(100),
            delay_ns: 25_000,
            hold_ns: 1_500_000,
            rate_bits_per_s: Some(2_500_000_000),
            queue_bytes: 262_144,
            seed: u64::MAX,
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!(expected.to_string().parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Impairment::default()));
    }

    #[test]
    fn an_error_names_the_part_and_the_reason() {
        for (text, part, reason) in [
            ("loss=1%,los=2%", "los=2%", "unknown name; known are loss"),
            ("loss", "loss", "expected name=value"),
            ("loss=1", "loss=1", "a ratio"),
            ("loss=101%", "loss=101%", "a ratio between 0 and 1"),
            ("loss=-1%", "loss=-1%", "a ratio"),
            ("loss=.%", "loss=.%", "a ratio"),
            ("dup=1/0", "dup=1/0", "a ratio"),
            ("loss=1%,loss=2%", "loss=2%", "given twice"),
            ("delay=25", "delay=25", "a time"),
            ("delay=0.5ns", "delay=0.5ns", "a time"),
            ("delay=99999999999999999999s", "delay=999", "a time"),
            ("rate=0", "rate=0", "a rate"),
            ("rate=fast", "rate=fast", "a rate"),
            ("queue=", "queue=", "a queue"),
            ("seed=x", "seed=x", "a seed"),
        ] {
            let error = text.parse::<Impairment>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("impairment \"{part}")),
                "{error}"
            );
            assert!(error.contains(reason), "{error}");
        }
    }
}
