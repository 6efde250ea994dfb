//! Any text as the description of a bad network, and packets through what was described.

use crate::{Features, magnitude};
use feroce_netio::lossy::{Impairment, Link};

/// Parses `input`; what parses prints so that it parses to the same, and lets packets through.
pub fn run(input: &[u8]) -> Features {
    let text = String::from_utf8_lossy(input);
    let options: Impairment = match text.parse() {
        Ok(options) => options,
        Err(error) => return Features::of(16 + magnitude(error.to_string().len())),
    };
    let printed = options.to_string();
    let again = printed.parse();
    // The queue counts only before a bottleneck, and is not printed without one.
    let expected = match options.rate_bits_per_s {
        Some(_) => options,
        None => Impairment {
            queue_bytes: Impairment::default().queue_bytes,
            ..options
        },
    };
    assert_eq!(again, Ok(expected), "{printed}");
    Features::of(pass(options))
}

/// Sends packets; returns which kinds of fates they had.
fn pass(options: Impairment) -> u32 {
    const PACKETS: u64 = 64;
    let mut link = Link::new(options);
    for number in 0..PACKETS {
        link.push(number * 1000, &[0; 64], number);
    }
    let mut arrived = 0;
    while let Some((bytes, number)) = link.pop(u64::MAX) {
        assert!(bytes.len() == 64 && number < PACKETS);
        arrived += 1;
    }
    let counts = link.counts();
    assert_eq!(counts.offered, PACKETS);
    let lost = counts.lost + counts.overflowed;
    assert_eq!(arrived + lost, PACKETS + counts.duplicated, "{counts:?}");
    let seen = [
        counts.lost,
        counts.duplicated,
        counts.reordered,
        counts.corrupted,
    ];
    seen.iter()
        .fold(0, |kinds, &count| kinds << 1 | u32::from(count > 0))
}

/// Texts with every name.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "loss=1%,reorder=0.25%,dup=1/1000,corrupt=100%,delay=25us,hold=1.5ms,rate=2.5G,queue=256K",
        "seed=18446744073709551615,loss=50%",
        "delay=18446744073709551615ns,hold=18446744073709551615ns,reorder=100%,dup=100%",
        "rate=1,queue=0",
        "",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
