//! ICRCs: no bytes panic, sums do not depend on how they are taken, and what is changed shows.

use crate::{Features, magnitude, packets};
use arbitrary::{Arbitrary, Unstructured};
use feroce_wire::header::Bth;
use feroce_wire::icrc::{self, Flow, GRH_LEN, Seed, Verdict};
use std::net::IpAddr;

/// What the first bytes of an input choose.
#[derive(Arbitrary, Debug)]
struct Choice {
    addresses: Addresses,
    ports: (u16, u16),
    ipv4_id: u16,
    ipv4_fragment: u16,
    guess: u16,
    split: u16,
    flip_at: u16,
    flip: u8,
}

#[derive(Arbitrary, Debug)]
enum Addresses {
    V4([[u8; 4]; 2]),
    V6([[u8; 16]; 2]),
}

impl Choice {
    fn flow(&self) -> Flow {
        let [source, destination] = match self.addresses {
            Addresses::V4(pair) => pair.map(IpAddr::from),
            Addresses::V6(pair) => pair.map(IpAddr::from),
        };
        Flow {
            source,
            destination,
            source_port: self.ports.0,
            destination_port: self.ports.1,
            ipv4_id: self.ipv4_id,
            ipv4_fragment: self.ipv4_fragment,
        }
    }
}

/// Takes a flow, then the bytes of a packet, from `input`.
pub fn run(input: &[u8]) -> Features {
    let mut features = Features::default();
    let mut unstructured = Unstructured::new(input);
    let Ok(choice) = Choice::arbitrary(&mut unstructured) else {
        return features;
    };
    let body = unstructured.take_rest();
    let flow = choice.flow();
    let verdict = icrc::check(&flow, body);
    features.add(kind(verdict));
    features.add(3 + u32::from(flow.source.is_ipv6()));
    if body.len() < Bth::LEN {
        assert_eq!(verdict, Verdict::Bad);
        return features;
    }
    let sealed = seal(
        &Seed::new(&flow, body.len() + icrc::LEN),
        body,
        choice.split,
    );
    check_v2(&choice, &flow, &sealed);
    check_v1(&choice, body);
    features.add(16 + magnitude(body.len()));
    features
}

fn kind(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Good => 0,
        Verdict::GoodWithId(_) => 1,
        Verdict::Bad => 2,
    }
}

/// Sums in two pieces, which must be as good as one, and appends the sum.
fn seal(seed: &Seed, body: &[u8], split: u16) -> Vec<u8> {
    let split = Bth::LEN + usize::from(split) % (body.len() - Bth::LEN + 1);
    let mut sum = seed.start(&body[..split]);
    sum.update(&body[split..]);
    let icrc = sum.finish();
    assert_eq!(icrc, seed.of(body));
    [body, &icrc].concat()
}

fn check_v2(choice: &Choice, flow: &Flow, sealed: &[u8]) {
    assert_eq!(icrc::check(flow, sealed), Verdict::Good);
    let blind = Flow {
        ipv4_id: choice.guess,
        ..*flow
    };
    let found = icrc::check(&blind, sealed);
    if flow.source.is_ipv6() || choice.guess == flow.ipv4_id {
        assert_eq!(found, Verdict::Good);
    } else {
        assert_eq!(found, Verdict::GoodWithId(flow.ipv4_id));
    }
    // A change within four bytes always shows to who knows the identification; who does not may
    // take it for another one, but never for nothing.
    let (at, changed) = change(choice, sealed);
    if at == MASKED || choice.flip == 0 {
        assert_eq!(icrc::check(flow, &changed), Verdict::Good);
    } else {
        assert_ne!(icrc::check(flow, &changed), Verdict::Good);
        if flow.source.is_ipv6() {
            assert_eq!(icrc::check(flow, &changed), Verdict::Bad);
        }
    }
}

fn check_v1(choice: &Choice, body: &[u8]) {
    let mut grh = [0; GRH_LEN];
    let known = body.len().min(GRH_LEN);
    grh[..known].copy_from_slice(&body[..known]);
    let sealed = seal(&Seed::of_grh(&grh), body, choice.split);
    assert_eq!(icrc::check_v1(&grh, &sealed), Verdict::Good);
    let (at, changed) = change(choice, &sealed);
    let same = at == MASKED || choice.flip == 0;
    let expected = if same { Verdict::Good } else { Verdict::Bad };
    assert_eq!(icrc::check_v1(&grh, &changed), expected);
}

/// The byte of the BTH that holds FECN and BECN, which routers may change.
const MASKED: usize = 4;

/// Flips bits of one byte; returns which byte.
fn change(choice: &Choice, sealed: &[u8]) -> (usize, Vec<u8>) {
    let at = usize::from(choice.flip_at) % sealed.len();
    let mut changed = sealed.to_vec();
    changed[at] ^= choice.flip;
    (at, changed)
}

/// A choice for each family in front of every packet.
pub fn seeds() -> Vec<Vec<u8>> {
    let choices = [0_u8, 0x80].map(|family| [&[family; 4][..], &[0x5a; 48]].concat());
    let bodies = packets::bodies();
    bodies
        .iter()
        .flat_map(|body| {
            choices
                .iter()
                .map(move |choice| [&choice[..], body].concat())
        })
        .collect()
}
