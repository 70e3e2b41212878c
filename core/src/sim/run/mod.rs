//! A run of the whole engine from one seed: clients, wires, clock, disk, and what goes wrong with each of them.
//!
//! [`run`] is all that a test needs. One step of a run is one small thing: a client acts, a batch arrives, the broker is
//! polled, a job goes one stage further, time passes, something breaks. Which one comes is drawn from the seed. At the end
//! everything is repaired, whoever was connected finishes, every place is drained, and the history is checked.

mod answers;
mod auditing;
mod broker;
mod client;
mod consumer;
mod coordinator;
mod damage;
mod drain;
mod env;
mod faults;
mod follower;
mod judging;
mod link;
mod machine;
mod places;
mod producer;
mod scene;
mod session;
#[cfg(test)]
mod tests;

pub use env::{Figures, Outcome};

use crate::sim::checker;
use broker::World;

/// Runs one seed for that many steps, drains, and checks.
#[must_use]
pub fn run(seed: u64, steps: u32) -> Outcome {
    run_steps(seed, 0..steps)
}

/// Runs these steps of a seed and no others, drains, and checks. What a step draws does not depend on those before it, so
/// that a failing run can be told by the few steps that make it fail.
#[must_use]
pub fn run_steps(seed: u64, steps: impl IntoIterator<Item = u32>) -> Outcome {
    let mut world = World::new(seed);
    for step in steps {
        world.env.draw_anew(seed, step);
        world.step();
    }
    world.env.draw_anew(seed, u32::MAX);
    world.drain();
    let violations = checker::check(&world.env.history);
    let history = &world.env.history;
    let deliveries = history.events.iter().filter_map(|stamped| match &stamped.event {
        crate::sim::history::Event::Handed(handed) => Some(handed),
        _ => None,
    });
    let cuts = world.auditor.as_ref().map_or((0, 0, 0), |auditor| auditor.figures());
    let figures = Figures {
        messages: history.facts.messages.len() as u64,
        deliveries: u64::from(history.deliveries()),
        redeliveries: deliveries.filter(|handed| handed.redelivered).count() as u64,
        transactions: history.facts.transactions.len() as u64,
        restarts: world.restarts,
        full_starts: world.machine.full_starts,
        comparisons: world.comparisons(),
        takeovers: world.takeovers,
        damages: world.probes,
        cuts: cuts.0,
        replays: cuts.1,
        gaps: cuts.2,
    };
    Outcome {
        violations,
        complaints: world.env.complaints,
        told: world.env.told.unwrap_or_default(),
        figures,
    }
}
