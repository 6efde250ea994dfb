//! Names of claims, written and read: `feroce/claim/SERVICE/PLACE/…` holds a claim,
//! `feroce/listen/USER/SERVICE/PLACE` receives its requests. The list of all names is the
//! kernel's (`/proc/net/unix`); a stranger's socket under such a name only takes the port.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Place, Service};

const CLAIM: &str = "feroce/claim/";
const LISTEN: &str = "feroce/listen/";

/// Told apart from all addresses: the IPv6 wildcard that stands for IPv4, too.
const DUAL: &str = "*";

/// A claim, as its name tells.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) name: String,
    pub(super) service: Service,
    pub(super) place: Place,
    pub(super) reuse: bool,
    pub(super) listens: bool,
}

/// Claims and listeners of this network namespace.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) claims: Vec<Claimed>,
    /// Names and places.
    pub(super) listeners: Vec<(String, Place)>,
}

/// The name that holds a claim. Where others may have the same, it is made unique.
pub(super) fn claim(service: Service, place: &Place, reuse: bool) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (service, place) = (service_text(service), place_text(place));
    if reuse {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        format!("{CLAIM}{service}/{place}/reuse/{process}.{number}")
    } else {
        format!("{CLAIM}{service}/{place}/only")
    }
}

/// The name that requests are delivered to.
pub(super) fn listener(user: u32, service: Service, place: &Place) -> String {
    let (service, place) = (service_text(service), place_text(place));
    format!("{LISTEN}{user}/{service}/{place}")
}

fn service_text(service: Service) -> String {
    match service {
        Service::Port { space, port } => format!("{space:04x}:{port}"),
        Service::Whole(id) => format!("{id:016x}"),
    }
}

fn parse_service(text: &str) -> Option<Service> {
    match text.split_once(':') {
        Some((space, port)) => Some(Service::Port {
            space: u16::from_str_radix(space, 16).ok()?,
            port: port.parse().ok()?,
        }),
        None => u64::from_str_radix(text, 16).ok().map(Service::Whole),
    }
}

fn place_text(place: &Place) -> String {
    match place {
        place if place.is_dual() => DUAL.to_owned(),
        Place { ip, scope: 0, .. } => ip.to_string(),
        Place { ip, scope, .. } => format!("{ip}%{scope}"),
    }
}

fn parse_place(text: &str) -> Option<Place> {
    if text == DUAL {
        return Some(Place::new(IpAddr::from([0; 16]), 0, false));
    }
    let (ip, scope) = text.split_once('%').unwrap_or((text, "0"));
    Some(Place::new(ip.parse().ok()?, scope.parse().ok()?, true))
}

impl Listing {
    /// Reads what there is, of one service or of all.
    pub(super) fn read(service: Option<Service>) -> io::Result<Self> {
        let bytes =
            fs::read("/proc/thread-self/net/unix").or_else(|_| fs::read("/proc/net/unix"))?;
        Ok(Self::parse(&bytes, service))
    }

    pub(super) fn parse(bytes: &[u8], service: Option<Service>) -> Self {
        let mut listing = Self::default();
        let wanted = |found: Service| service.is_none_or(|service| service == found);
        for line in bytes.split(|&byte| byte == b'\n') {
            // Abstract names stand at the end of the line, behind an at sign.
            let Some(start) = line.iter().position(|&byte| byte == b'@') else {
                continue;
            };
            let Ok(name) = std::str::from_utf8(&line[start + 1..]) else {
                continue;
            };
            if let Some(claimed) = parse_claim(name).filter(|claimed| wanted(claimed.service)) {
                listing.claims.push(claimed);
            } else if let Some((found, place)) = parse_listener(name)
                && wanted(found)
            {
                listing.listeners.push((name.to_owned(), place));
            }
        }
        for claimed in &mut listing.claims {
            let place = claimed.place;
            let is_place = |(_, listener): &(String, Place)| *listener == place;
            claimed.listens = listing.listeners.iter().any(is_place);
        }
        listing
    }

    /// The ports of a port space that are claimed.
    pub(super) fn ports(&self, wanted: u16) -> HashSet<u16> {
        let ports = self
            .claims
            .iter()
            .filter_map(|claimed| match claimed.service {
                Service::Port { space, port } if space == wanted => Some(port),
                _ => None,
            });
        ports.collect()
    }
}

fn parse_claim(name: &str) -> Option<Claimed> {
    let mut words = name.strip_prefix(CLAIM)?.splitn(4, '/');
    Some(Claimed {
        name: name.to_owned(),
        service: parse_service(words.next()?)?,
        place: parse_place(words.next()?)?,
        reuse: words.next()? == "reuse",
        listens: false,
    })
}

fn parse_listener(name: &str) -> Option<(Service, Place)> {
    let mut words = name.strip_prefix(LISTEN)?.splitn(3, '/');
    let _user = words.next()?;
    Some((parse_service(words.next()?)?, parse_place(words.next()?)?))
}
