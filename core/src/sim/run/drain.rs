//! The end of a run: everything is repaired, whoever was connected finishes, and every place is emptied.

use super::broker::World;
use super::client::Client;
use super::scene::{self, At, ClientPlan, ConsumerPlan, SessionPlan};
use crate::proto::AcknowledgeMode;
use crate::sim::Faults;
use crate::sim::facts::Predicate;
use crate::state::UNDELIVERED_NAME;

/// Rounds after which something must have got stuck.
const ROUNDS_MAX: usize = 20_000;
/// Longer than any delay, and than the wall clock was set back before a restart.
const DELAY_MS: u64 = 2_500 + 20 * 20_000;

/// After which the broker tries again what found no room.
const RETRY_MS: u64 = 1_000;

impl World {
    /// See the module's documentation.
    pub fn drain(&mut self) {
        self.calm = true;
        self.machine.set_faults(Faults::default());
        // What was run before and found the disk full says so only when it is completed.
        self.poll();
        self.restart_if_finished();
        if self.env.random.one_in(4) {
            // What was confirmed has to be there after one more loss of power.
            self.crash(true);
        }
        for stream in self.zombies.clone() {
            self.bury(stream);
        }
        self.finish_clients();
        self.compare_follower();
        if self.env.random.one_in(3) {
            self.machine.stop(&mut self.env);
            self.after_stop();
        }
        self.sweep();
        self.compare_follower();
        self.drain_cuts();
        self.complain_of_leftovers();
    }

    /// Every client connects once more, sends again what it has to, commits what it began, and says goodbye.
    fn finish_clients(&mut self) {
        for index in 0..self.clients.len() {
            if let Some(link) = &mut self.clients[index].link {
                link.slow = false;
            }
        }
        self.settle();
        for index in 0..self.clients.len() {
            if self.clients[index].link.is_none() {
                self.connect(index);
            }
        }
        self.settle();
        for client in &mut self.clients {
            client.reopen_producers();
            for session in 0..client.sessions.len() {
                if !client.sessions[session].open {
                    continue;
                }
                let mut frames = client.sessions[session].acknowledge(&mut self.env, 2);
                frames.extend(client.sessions[session].commit(&mut self.env));
                client.send(session, frames);
            }
            client.flush(&mut self.env);
        }
        self.settle();
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.link.is_some() && client.up {
                let waits = client.waits_for();
                if !waits.is_empty() {
                    self.env
                        .complaints
                        .push(format!("client {index} waits for ever: {waits:?}"));
                }
            } else {
                self.env.complaints.push(format!("client {index} could not connect"));
            }
            for session in 0..client.sessions.len() {
                if client.sessions[session].open {
                    let frames = client.sessions[session].close(&mut self.env);
                    client.send(session, frames);
                }
            }
            client.flush(&mut self.env);
        }
        self.settle();
        for index in 0..self.clients.len() {
            self.cut(index, true);
        }
    }

    /// Everybody who owns a durable subscription, and one for the queues, takes and acknowledges what there is.
    fn sweep(&mut self) {
        let mut plans: Vec<ClientPlan> = self.clients.iter().map(|client| durables_of(&client.plan)).collect();
        let queue = |name: &str| ConsumerPlan {
            at: At::queue(name),
            predicate: Predicate::All,
            no_local: false,
            subscription: None,
            browse: false,
        };
        let queues = scene::queues().chain([UNDELIVERED_NAME]).map(queue).collect();
        plans.push(ClientPlan {
            client_id: "sweeper".to_owned(),
            sessions: vec![individual(queues)],
        });
        let first = self.clients.len() as u32;
        let mut producers = self.producers;
        self.clients = (first..)
            .zip(plans)
            .map(|(id, plan)| Client::new(id, plan, &mut producers))
            .collect();
        for index in 0..self.clients.len() {
            // noLocal looks at who sent, so whoever sweeps up keeps the number.
            self.clients[index].id = index as u32;
            self.clients[index].quiet = true;
            self.connect(index);
        }
        self.settle();
        self.advance(DELAY_MS);
        self.settle();
        for index in 0..self.clients.len() {
            let waits = self.clients[index].waits_for();
            if !waits.is_empty() {
                self.env
                    .complaints
                    .push(format!("sweeper {index} waits for ever: {waits:?}"));
            }
        }
    }

    /// After the sweep nothing is left in the broker.
    fn complain_of_leftovers(&mut self) {
        let mut left = self.left();
        while !left.is_empty() {
            // What expired in thousands and found no room for its records is tried again a second later.
            self.advance(RETRY_MS);
            self.settle();
            let total = |left: &[(&str, u64)]| left.iter().map(|(_, count)| count).sum::<u64>();
            let before = std::mem::replace(&mut left, self.left());
            if total(&left) >= total(&before) {
                break;
            }
        }
        for (name, count) in left {
            self.env
                .complaints
                .push(format!("{count} messages are left in {name}, and nobody gets them"));
        }
    }

    /// What is left in queues, and how much.
    fn left(&self) -> Vec<(&'static str, u64)> {
        let Some(host) = &self.machine.host else {
            return Vec::new();
        };
        let state = host.engine().state();
        let messages = |name: &str| {
            let found = state.destination(crate::state::Kind::Queue, name)?;
            Some(state.source(found.id.source())?.statistics.messages)
        };
        let names = scene::queues().chain([UNDELIVERED_NAME]);
        let counted = names.map(|name| (name, messages(name).unwrap_or_default()));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Goes on until nothing moves any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.restart_if_finished();
            if self.round() {
                continue;
            }
            // Nobody has anything to do now. What found no room on the disk is tried again when the host's time comes.
            let Some(at) = self.machine.goes_on_at_ms() else {
                if self.machine.forgot_to_write() {
                    self.env
                        .complaints
                        .push("something is appended, and nobody writes it".to_owned());
                }
                return;
            };
            self.advance(at.saturating_sub(self.env.clock.monotonic_ms()).max(1));
        }
        self.env.complaints.push("the run does not come to rest".to_owned());
    }

    fn round(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.clients.len() {
            moved |= self.serve(index);
        }
        if self.machine.is_due(&self.env) {
            self.poll();
            moved = true;
        }
        for stream in self.machine.ready.clone() {
            moved |= self.take_output(stream);
        }
        self.close_ended();
        moved |= self.answer();
        moved |= self.calm && self.coordinate();
        moved |= self.workers_step();
        moved
    }

    /// Moves what is on a client's wire, and lets it grant and acknowledge.
    fn serve(&mut self, index: usize) -> bool {
        let mut moved = self.deliver_upward(index);
        let client = &mut self.clients[index];
        while client.link.as_ref().is_some_and(|link| !link.down.is_empty()) {
            client.receive(&mut self.env);
            moved = true;
        }
        if client.quiet {
            for session in 0..client.sessions.len() {
                let frames = client.sessions[session].sweep(&mut self.env);
                moved |= !frames.is_empty();
                client.send(session, frames);
            }
            client.flush(&mut self.env);
        }
        moved
    }
}

fn individual(consumers: Vec<ConsumerPlan>) -> SessionPlan {
    SessionPlan {
        mode: AcknowledgeMode::Individual,
        relays: false,
        producers: Vec::new(),
        consumers,
    }
}

/// A client's durable subscriptions, each once.
fn durables_of(plan: &ClientPlan) -> ClientPlan {
    let mut consumers: Vec<ConsumerPlan> = Vec::new();
    for consumer in plan.sessions.iter().flat_map(|session| &session.consumers) {
        let durable = consumer.subscription.as_ref().is_some_and(|(_, durable, _)| *durable);
        if durable
            && consumers
                .iter()
                .all(|other| other.subscription != consumer.subscription)
        {
            consumers.push(consumer.clone());
        }
    }
    ClientPlan {
        client_id: plan.client_id.clone(),
        sessions: vec![individual(consumers)],
    }
}
