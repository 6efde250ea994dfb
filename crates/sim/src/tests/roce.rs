//! RoCEv2 over networks that do harm.

use crate::{
    Action, Chance, Fault, Flow, HostId, Impairment, LeafSpine, Operation, Rate, Roce,
    RoceSettings, Span, Time, World,
};

const RATE: Rate = Rate::gigabits(100);

/// Every kind of harm in both directions; payloads are compared.
#[test]
fn bytes_and_messages_arrive_once_through_every_harm() {
    for seed in 0..6 {
        let fabric = LeafSpine::new(2, 2, RATE, Span::from_micros(8)).build();
        let impairment = Impairment {
            loss: Chance::percent(1),
            duplication: Chance::percent(2),
            corruption: Chance::percent(1),
            reordering: Chance::percent(2),
            reordering_max: Span::from_micros(5),
        };
        let settings = RoceSettings::new(RATE).with(|settings| settings.is_checked = true);
        let mut world = World::new(fabric.topology, seed, "a test", |_| {
            Box::new(Roce::new(settings))
        });
        for link in [fabric.edges[0][0], fabric.edges[0][3]] {
            for channel in link.channels() {
                world.add_fault(Fault {
                    at: Time::ZERO,
                    action: Action::Impair(channel, impairment),
                });
            }
        }
        for operation in [Operation::Write, Operation::Send, Operation::Read] {
            world.add_flow(&Flow {
                operation,
                messages: 30,
                depth: 4,
                ..Flow::write(HostId(0), HostId(3), 10_000)
            });
        }
        world.run_until_quiet(Time::from_micros(1_000_000)).unwrap();
        let total = world.network().total();
        assert!(total.lost > 0 && total.duplicated > 0 && total.reordered > 0);
        assert!(world.total_statistics().corrupt > 0, "seed {seed}");
    }
}
