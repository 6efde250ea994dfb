//! Setting a connection up: offers, cookies, versions. docs/spec/metaroce/connections.md.

use super::config::EndpointConfig;
use super::siphash::siphash;
use crate::Instant;
use core::net::IpAddr;
use core::time::Duration;
use feroce_wire::metaroce::{ConnectionId, Handshake, Planes, VERSION};

/// An offer that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) nonce: u64,
    pub(super) cookie: u64,
    pub(super) target: u32,
    pub(super) origin: u32,
    /// When it was last sent.
    pub(super) sent_at: Instant,
    /// When it is sent (again).
    pub(super) at: Instant,
    pub(super) tries: u32,
    /// Retries that were followed at once.
    pub(super) retries: u8,
    /// When the first was sent.
    pub(super) since: Instant,
}

/// The first repetition of a hello; doubles up to [`HELLO_INTERVAL_MAX`]. It is some twenty round
/// trips of one data centre; over a long way a few hellos more are sent than are needed.
pub(super) const HELLO_INTERVAL: Duration = Duration::from_micros(250);
/// Longest time between two hellos.
pub(super) const HELLO_INTERVAL_MAX: Duration = Duration::from_millis(256);

/// Times a close is sent before the connection is forgotten without an answer.
pub(super) const CLOSE_TRIES: u8 = 4;

/// How long a cookie is good: one period of this many nanoseconds (8.6 s) and the rest of another.
const COOKIE_PERIOD_SHIFT: u32 = 33;

const SALT_COOKIE: u64 = 3;
const SALT_ID: u64 = 4;
const SALT_NONCE: u64 = 5;

fn address_words(address: IpAddr) -> [u64; 2] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let whole = u128::from_be_bytes(octets);
    let high = u64::try_from(whole >> 64).unwrap_or(0);
    [
        high,
        u64::try_from(whole & u128::from(u64::MAX)).unwrap_or(0),
    ]
}

//= MR-CON-003
fn cookie_of(secret: [u64; 2], from: IpAddr, hello: &Handshake, period: u64) -> u64 {
    let [high, low] = address_words(from);
    let words = [SALT_COOKIE, high, low, hello.source.0, hello.nonce, period];
    // Zero means "none".
    siphash(secret, &words).max(1)
}

/// The cookie for an offer: whoever returns it receives packets at that address.
pub(super) fn cookie(secret: [u64; 2], now: Instant, from: IpAddr, hello: &Handshake) -> u64 {
    cookie_of(secret, from, hello, now.nanos() >> COOKIE_PERIOD_SHIFT)
}

/// Whether an offer carries its cookie, of this period or the one before.
pub(super) fn is_good_cookie(
    secret: [u64; 2],
    now: Instant,
    from: IpAddr,
    hello: &Handshake,
) -> bool {
    let period = now.nanos() >> COOKIE_PERIOD_SHIFT;
    let good = |period| cookie_of(secret, from, hello, period) == hello.cookie;
    hello.cookie != 0 && (good(period) || good(period.wrapping_sub(1)))
}

/// The name of the `count`th connection of an endpoint.
//= MR-SEC-001
pub(super) fn connection_id(secret: [u64; 2], count: u64) -> ConnectionId {
    ConnectionId(siphash(secret, &[SALT_ID, count]).max(1))
}

/// The nonce of the `count`th offer of an endpoint.
pub(super) fn nonce(secret: [u64; 2], count: u64) -> u64 {
    siphash(secret, &[SALT_NONCE, count])
}

/// Our side of a handshake.
//= MR-CON-001
pub(super) fn describe(config: &EndpointConfig, local: ConnectionId, offer: &Offer) -> Handshake {
    Handshake {
        source: local,
        nonce: offer.nonce,
        cookie: offer.cookie,
        target: offer.target,
        origin: offer.origin,
        versions: (VERSION, VERSION),
        segment: config.segment,
        features: 0,
        line_rate: u32::try_from(config.line_rate / 1000).unwrap_or(u32::MAX),
        message_window: config.message_window,
        paths: config.paths.max(1),
        planes: Planes::new(&config.planes),
    }
}

/// Whether a version in common exists.
pub(super) fn speaks_our_version(peer: &Handshake) -> bool {
    (peer.versions.0..=peer.versions.1).contains(&VERSION)
}

/// Whether the values of an offer can be worked with.
pub(super) fn is_sane(peer: &Handshake, from: IpAddr) -> bool {
    peer.segment >= 256
        && peer.message_window >= 1
        && peer.source.0 != 0
        && peer.planes.as_slice().contains(&from)
}
