//! The machine that a run's broker stands on: its disk, and the host that the product has, whose workers take a step when
//! the seed says so.
//!
//! The host is polled as the product's event loop polls it, and no oftener: when something was handed to the engine, when
//! a worker has woken the loop, and when it is the time that the last poll named. Whatever waits for a poll that nobody
//! has a reason for waits for ever, and the end of the run finds it.

use super::env::Env;
use super::follower::Follower;
use super::scene;
use crate::engine::{Answer, Configuration, Engine, Limits, Polled, Question, Settings};
use crate::host::{Executor as _, Host};
use crate::log::{OpenMode, Options, Position};
use crate::name::DestinationName;
use crate::sim::history::Event;
use crate::sim::{Faults, SimDisk, Steps, Worker};
use crate::snapshot::keeper::{Bounds, Keeper};
use crate::snapshot::pieces::Header;
use crate::state::{Kind, Properties, SECRET_BYTES, Start, State, StateOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module's documentation.
pub struct Machine {
    /// The disk.
    pub disk: SimDisk,
    /// The broker; none while it is down.
    pub host: Option<Host<Steps>>,
    /// Streams with output to take.
    pub ready: BTreeSet<u64>,
    /// Something was handed to the engine since it was polled.
    pub touched: bool,
    tickets: Vec<(u64, Question)>,
    /// When it was last polled, and when that poll wants the next one at the latest.
    polled_ms: u64,
    deadline_ms: Option<u64>,
    options: StateOptions,
    /// What was committed before the last write was; zero: nothing was written yet.
    proven: Position,
    /// A follower that goes on as the broker, at the next start.
    heir: Option<State>,
    /// What may be kept for audits, where cuts are taken.
    pub bounds: Option<Bounds>,
    /// The cut that waited to be exported when the broker started.
    pub found_cut: Option<Header>,
    /// Why the broker did not start.
    refused: Option<String>,
    /// How often it was started, so that each start brings another secret: the first one's has to hold.
    starts: u8,
    /// How often it started on a disk with a size.
    pub full_starts: u64,
}

/// What a broker is opened with; small, so that segments roll, caches miss and reserves run out all the time.
fn options(env: &mut Env) -> StateOptions {
    let segment_bytes = env.pick(&[16 << 10, 32 << 10, 64 << 10]).unwrap_or(64 << 10);
    StateOptions {
        broker: "sim".to_owned(),
        log: Options {
            segment_bytes,
            record_bytes_max: segment_bytes / 2,
            commit_bytes_max: segment_bytes / 2,
            cache_bytes: env.pick(&[4 << 10, 64 << 10, 1 << 20]).unwrap_or(64 << 10),
            ahead_count: 3,
            zero_fill: !env.random.one_in(4),
            fill_bytes: env.pick(&[4 << 10, 16 << 10, 64 << 10]).unwrap_or(4 << 10),
            fill_distance_bytes: env.pick(&[4 << 10, 32 << 10]).unwrap_or(4 << 10),
            scrub_bytes_per_second: env.pick(&[0, 4 << 10, 1 << 20]).unwrap_or(0),
            scrub_after_seconds: 1,
            scrub_every_seconds: 3,
            compact_below_percent: env.pick(&[25, 60, 90]).unwrap_or(25),
            mode: OpenMode::Active { epoch: None },
            store_id: [7; 16],
            ..Options::default()
        },
        volatile_bytes: env.pick(&[8 << 10, 1 << 20]).unwrap_or(1 << 20),
        redelivery_reserve: env.pick(&[2, 8, 64, 8192]).unwrap_or(64),
        selector_cache_bytes: env.pick(&[0, 2 << 10, 1 << 20]).unwrap_or(0),
        producers_max: env.pick(&[3, 100_000, 100_000]).unwrap_or(3),
        refusals_max: env.pick(&[1, 2, 65_536]).unwrap_or(2),
        // Not drawn, so that all that is drawn stays as it was: see `Beside`.
        named_producers_max: if segment_bytes > 16 << 10 { 10_000 } else { 2 },
        incarnation_bits: env.pick(&[4, 24, 32]).unwrap_or(32),
        checkpoint_chunk_bytes: env.pick(&[300, 128 << 10]).unwrap_or(300),
        checkpoint_bytes: env
            .pick(&[None, Some(8 << 10), Some(32 << 10), Some(128 << 10)])
            .flatten(),
        ..StateOptions::default()
    }
}

impl Machine {
    /// A machine with an empty disk; the broker has not been started.
    pub fn new(env: &mut Env, seed: u64) -> Self {
        Self {
            disk: SimDisk::new(seed ^ 0xd15c),
            host: None,
            ready: BTreeSet::new(),
            touched: false,
            tickets: Vec::new(),
            polled_ms: 0,
            deadline_ms: None,
            options: options(env),
            proven: Position::ZERO,
            heir: None,
            bounds: None,
            found_cut: None,
            refused: None,
            starts: 0,
            full_starts: 0,
        }
    }

    /// How the broker is opened.
    #[must_use]
    pub fn options(&self) -> &StateOptions {
        &self.options
    }

    /// Starts the broker on what the disk holds. A follower claims what it has not read before the host begins, since
    /// upkeep begins with it.
    pub fn start(&mut self, env: &mut Env, follower: Option<&mut Follower>) {
        let disk = Arc::new(self.disk.clone());
        let mut options = self.options.clone();
        options.start = Start {
            id: env.random.next_u64() | 1,
            secret: [self.starts; SECRET_BYTES],
        };
        self.starts = self.starts.wrapping_add(1);
        self.full_starts += u64::from(self.disk.space_bytes().is_some());
        let opened = match self.heir.take() {
            Some(mut state) => {
                let epoch = state.epoch() + 1;
                state.tick(env.now());
                state.begin_epoch(epoch, options.start).map(|()| state)
            }
            None => State::open(disk, options, env.now()).map(|(state, report)| {
                env.tell(|| format!("opened: {report:?}"));
                state
            }),
        };
        match opened {
            Ok(state) => {
                let settings = Settings {
                    broker: "sim".to_owned(),
                    limits: Limits {
                        transaction_ms: env.transaction_ms,
                        ..Limits::default()
                    },
                    ..Settings::default()
                };
                let mut state = state;
                let keeper = self
                    .bounds
                    .map(|bounds| Keeper::open(Arc::new(self.disk.clone()), &mut state, bounds));
                let mut engine = Engine::new(state, settings, env.now());
                self.found_cut = keeper
                    .as_ref()
                    .and_then(|keeper| keeper.as_ref().ok().and_then(Keeper::waiting));
                match keeper {
                    Some(Ok(keeper)) => engine = engine.with_snapshots(keeper),
                    Some(Err(error)) => return self.refuse(env, &error.to_string()),
                    None => {}
                }
                let configured = engine.configure(configuration());
                for (kind, name, refused) in configured.refused {
                    env.complaints
                        .push(format!("{kind} {name} could not be configured: {refused:?}"));
                }
                env.tell(|| format!("after the start:\n{}", engine.state().dump()));
                if let Some(follower) = follower {
                    follower.claim(env, engine.state_mut());
                }
                self.host = Some(Host::new(engine, Steps::interleaved(&self.disk)));
                self.touched = true;
            }
            Err(error) => self.refuse(env, &error.to_string()),
        }
    }

    fn refuse(&mut self, env: &mut Env, why: &str) {
        // A power loss while it starts is for the next start; anything else is the end of the run.
        if !self.disk.is_down() {
            env.complaints.push(format!("the broker does not start: {why}"));
        }
        self.refused = Some(why.to_owned());
    }

    /// The broker is gone, and what it had told nobody with it.
    fn forget(&mut self) {
        self.host = None;
        self.tickets.clear();
        self.ready.clear();
        (self.touched, self.deadline_ms, self.refused) = (false, None, None);
        (self.polled_ms, self.proven) = (0, Position::ZERO);
    }

    /// Another disk, and what is open on it already if it is to go on so, are the broker's from the next start on.
    pub fn inherit(&mut self, disk: SimDisk, state: Option<State>) {
        disk.set_faults(Faults::default());
        if state.is_none() {
            disk.kill_process();
        }
        (self.disk, self.heir) = (disk, state);
    }

    /// Whether the next start is of a follower that goes on as it is.
    #[must_use]
    pub fn has_heir(&self) -> bool {
        self.heir.is_some()
    }

    /// Stops the broker: with the power, or only its process, in the middle of whatever it does.
    pub fn crash(&mut self, env: &mut Env, power: bool) {
        env.tell(|| format!("crash, power {power}"));
        self.forget();
        if power || self.disk.is_down() {
            self.disk.power_cycle();
        } else {
            self.disk.kill_process();
        }
        self.mend(env);
        env.note(Event::Stopped);
    }

    /// A clean stop, whatever is under way.
    pub fn stop(&mut self, env: &mut Env) {
        if let Some(host) = self.host.take() {
            env.tell(|| format!("before the stop:\n{}", host.engine().state().dump()));
            if let Err(error) = host.stop() {
                env.tell(|| format!("the stop failed: {error}"));
            }
        }
        self.leave(env);
    }

    /// The host is dropped without a stop: its workers finish what they have, and nobody hears of it.
    pub fn drop_host(&mut self, env: &mut Env) {
        env.tell(|| "the host is dropped".to_owned());
        if let Some(host) = &mut self.host {
            host.executor_mut().end();
        }
        self.leave(env);
    }

    /// The host has ended of itself, so the store's lock is free without anybody's help, unless the power went meanwhile.
    fn leave(&mut self, env: &mut Env) {
        self.forget();
        if self.disk.is_down() {
            self.disk.power_cycle();
        }
        self.mend(env);
        env.note(Event::Stopped);
    }

    /// Nothing is wrong with the disk at the next start, but that it may be full still.
    fn mend(&mut self, env: &Env) {
        self.disk.set_faults(Faults {
            space_bytes: self.disk.space_bytes().filter(|_| env.full_for_long),
            ..Faults::default()
        });
    }

    /// Why the broker has to be stopped: it did not start, or its log is finished and it has said so.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.refused.is_some() || self.host.as_ref().is_some_and(|host| host.failed().is_some())
    }

    /// Whether the broker cannot go on.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.failed() || self.disk.is_down() || self.host.is_none()
    }

    /// Tells the broker the time.
    pub fn tick(&mut self, env: &mut Env) {
        if let Some(host) = &mut self.host {
            host.tick(env.now());
        }
    }

    /// A worker does its next job. Whether there was one.
    pub fn run(&mut self, worker: Worker) -> bool {
        self.host.as_mut().is_some_and(|host| host.executor_mut().run(worker))
    }

    /// Both workers do their next jobs at once: operation by operation, in an order that the seed draws. Whether they
    /// could.
    pub fn run_both(&mut self) -> bool {
        self.host.as_mut().is_some_and(|host| host.executor_mut().run_both())
    }

    /// A job of a worker panics.
    pub fn break_worker(&mut self, env: &mut Env, worker: Worker) {
        env.tell(|| format!("a job of the {worker:?} panics"));
        if let Some(host) = &mut self.host {
            host.executor_mut().break_worker(worker);
        }
    }

    /// Whether somebody has a reason to poll.
    #[must_use]
    pub fn is_due(&self, env: &Env) -> bool {
        let woken = self.host.as_ref().is_some_and(|host| host.executor().is_woken());
        let now_ms = env.clock.monotonic_ms();
        // What is due at the very time of the poll before is due when the clock has moved.
        let passed = self.deadline_ms.is_some_and(|deadline| deadline <= now_ms) && now_ms > self.polled_ms;
        self.touched || woken || passed
    }

    /// Asks what is ready.
    pub fn poll(&mut self, env: &mut Env) {
        let Some(host) = &mut self.host else { return };
        let had_failed = host.failed().is_some();
        let committed = host.engine().state().committed();
        // As the event loop does: first the time.
        host.tick(env.now());
        let Polled {
            ready,
            tickets,
            deadline_ms,
        } = host.poll();
        if host.engine().state().committed() > committed {
            self.proven = committed;
        }
        (self.touched, self.deadline_ms) = (false, deadline_ms);
        self.polled_ms = env.clock.monotonic_ms();
        env.tell(|| format!("polled: {ready:?}, again at {deadline_ms:?}"));
        self.ready.extend(ready);
        self.tickets
            .extend(tickets.into_iter().map(|ticket| (ticket.ticket, ticket.question)));
        if let Some(why) = host.failed().filter(|_| !had_failed) {
            env.tell(|| format!("failed: {why}"));
        }
    }

    /// Up to where the log is known to be durable by more than its last write.
    #[must_use]
    pub fn proven(&self) -> Position {
        self.proven
    }

    /// The time for which the host waits to try again what the disk had no room for, if it does; or at which something is
    /// due that is due already, but for the clock.
    #[must_use]
    pub fn goes_on_at_ms(&self) -> Option<u64> {
        let host = self.host.as_ref()?;
        let waits = host.engine().state().log().waits_for_host() && host.failed().is_none();
        self.deadline_ms.filter(|deadline| waits || *deadline <= self.polled_ms)
    }

    /// Whether something is appended that nobody will ever write: no job has it, and nothing will make one.
    #[must_use]
    pub fn forgot_to_write(&self) -> bool {
        let Some(host) = self.host.as_ref().filter(|host| host.failed().is_none()) else {
            return false;
        };
        let log = host.engine().state().log();
        let busy = host.executor().has_job(Worker::Writer) || host.executor().has_job(Worker::Background);
        !busy && !log.waits_for_host() && (log.has_pending() || log.write_in_flight())
    }

    /// Answers one of the questions that wait. Whether there was one.
    pub fn answer(&mut self, env: &mut Env) -> bool {
        let Some(host) = &mut self.host else { return false };
        if self.tickets.is_empty() {
            return false;
        }
        let index = env.random.below(self.tickets.len() as u64) as usize;
        let (ticket, question) = self.tickets.swap_remove(index);
        let answer = match question {
            Question::Hello { .. } => Answer::Admitted { user: String::new() },
            Question::Destination { .. } | Question::Properties { .. } => Answer::Create(Properties::default()),
            Question::Pattern { .. } => Answer::Admitted { user: String::new() },
        };
        host.engine_mut().answer(ticket, answer);
        self.touched = true;
        true
    }

    /// Sets what goes wrong with the disk next.
    pub fn set_faults(&mut self, faults: Faults) {
        self.disk.set_faults(faults);
    }
}

/// The static destinations and bridges. Half of the destinations are dynamic: made when somebody asks.
fn configuration() -> Configuration {
    let mut destinations = Vec::new();
    for name in scene::QUEUES {
        if let Ok(parsed) = DestinationName::parse(name) {
            destinations.push((Kind::Queue, parsed, scene::properties(name)));
        }
    }
    for name in scene::TOPICS {
        if let Ok(parsed) = DestinationName::parse(name) {
            destinations.push((
                Kind::Topic,
                parsed,
                Properties {
                    prefetch: 64,
                    ..Properties::default()
                },
            ));
        }
    }
    Configuration {
        destinations,
        bridges: scene::compiled_bridges(),
        ..Configuration::default()
    }
}
