//! How fast the simulator is: events and hops per second of real time, one core.
//!
//! `cargo run --release -p feroce-sim --example bench [HOSTS_PER_LEAF [LEAVES]]`: a permutation of
//! 2 MB messages over RoCEv2, the load by which SIMULATORS-style figures are usually given.

use feroce_sim::{
    EventQueue, Flow, HostId, LeafSpine, Random, Rate, Roce, RoceSettings, Span, Time, World,
};
use std::time::Instant;

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let hosts_per_leaf = numbers.next().unwrap_or(16);
    let leaves = numbers.next().unwrap_or(8);
    queue();
    permutation(leaves, hosts_per_leaf);
}

/// The queue alone: as many events as a busy fabric has, each followed by one a while later.
fn queue() {
    const WAITING: u64 = 10_000;
    const POPPED: u64 = 20_000_000;
    let mut random = Random::new(1, 0);
    let mut queue = EventQueue::new(1);
    for number in 0..WAITING {
        queue.push(Time::from_picos(random.below(2_000_000)), number);
    }
    let started = Instant::now();
    for _ in 0..POPPED {
        let Some((now, number)) = queue.pop() else {
            return;
        };
        let ahead = Span::from_picos(80_000 + random.below(1_500_000));
        queue.push_shuffled(now + ahead, number);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "event queue, {WAITING} waiting: {:.1} million events/s",
        POPPED as f64 / seconds / 1e6
    );
}

fn permutation(leaves: u32, hosts_per_leaf: u32) {
    let rate = Rate::gigabits(100);
    let fabric = LeafSpine::new(leaves, hosts_per_leaf, rate, Span::from_micros(12)).build();
    let hosts = fabric.topology.host_count();
    let started = Instant::now();
    let mut world = World::new(fabric.topology, 1, "the benchmark", |_| {
        Box::new(Roce::new(RoceSettings::new(rate)))
    });
    let mut order: Vec<u32> = (0..hosts).collect();
    Random::new(1, 0).shuffle(&mut order);
    for (index, &host) in order.iter().enumerate() {
        let next = order[(index + 1) % order.len()];
        world.add_flow(&Flow::write(HostId(host), HostId(next), 2_000_000));
    }
    let built = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let is_over = world.run(Time::from_micros(1_000_000));
    let seconds = started.elapsed().as_secs_f64();
    let hops = world.network().total().packets;
    println!(
        "permutation of 2 MB over {hosts} hosts: over {is_over:?} at {}, built in {built:.2} s, \
         run in {seconds:.2} s: {:.2} million hops/s, {:.2} million events/s",
        world.now(),
        hops as f64 / seconds / 1e6,
        world.events_handled() as f64 / seconds / 1e6,
    );
}
