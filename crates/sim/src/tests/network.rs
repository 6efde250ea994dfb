//! What the network does to packets, against closed forms.

use crate::{
    Flow, HostId, LeafSpine, LinkConfig, Rate, Roce, RoceSettings, Span, Time, World, back_to_back,
};

const RATE: Rate = Rate::gigabits(100);
const LINK: LinkConfig = LinkConfig {
    rate: RATE,
    delay: Span::from_micros(1),
};

pub(super) fn roce(topology: crate::Topology, seed: u64) -> World {
    World::new(topology, seed, "a test", |_| {
        Box::new(Roce::new(RoceSettings::new(RATE)))
    })
}

/// One packet of 1,000 bytes: framing 66, BTH 12, RETH 16, ICRC 4; its acknowledge is one of the
/// least length.
#[test]
fn a_single_packet_takes_what_it_must() {
    let mut world = roce(back_to_back(LINK).topology, 1);
    let flow = world.add_flow(&Flow::write(HostId(0), HostId(1), 1000));
    assert!(world.run(Time::from_micros(100)).unwrap());
    let there = RATE.span_of(1000 + 66 + 12 + 16 + 4) + LINK.delay;
    let back = RATE.span_of(66 + 12 + 4 + 4) + LINK.delay;
    let end = Time::ZERO + there + back;
    assert_eq!(world.result(flow).finished, Some(end));
}

/// Path delay, the longest packet's time per further hop, all bytes at the rate of the line, and
/// the way back of the last acknowledge. The first packet is the longest: it has a RETH.
#[test]
fn a_long_message_runs_at_the_rate_of_the_line() {
    let fabric = LeafSpine::new(2, 2, RATE, Span::from_micros(8)).build();
    let mut world = roce(fabric.topology, 1);
    let flow = world.add_flow(&Flow::write(HostId(0), HostId(2), 2 << 20));
    assert!(world.run(Time::from_micros(1000)).unwrap());
    let (packets, framing) = (512, 66 + 12 + 4);
    let packet = RATE.span_of(4096 + framing + 16);
    let bytes = packets * (4096 + framing) + 16;
    let there = RATE.span_of(bytes) + packet * 3 + LINK.delay * 4;
    let back = RATE.span_of(framing + 4) * 4 + LINK.delay * 4;
    assert_eq!(world.result(flow).finished, Some(Time::ZERO + there + back));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let fabric = LeafSpine::new(2, 4, RATE, Span::from_micros(8)).build();
        let mut world = roce(fabric.topology, seed);
        for sender in 0..7 {
            world.add_flow(&Flow::write(HostId(sender), HostId(7), 200_000));
        }
        world.run_until_quiet(Time::from_micros(100_000)).unwrap();
        (world.trace_hash(), world.events_handled())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}
