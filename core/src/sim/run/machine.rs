//! The machine that a run's broker stands on: disk, engine, and the jobs that are under way between them.
//!
//! Every job is taken, run and completed in steps of its own, so that a crash, a frame or the clock can come between any
//! two of them.

use super::env::Env;
use super::scene;
use crate::engine::{Answer, Configuration, Engine, Polled, Question, Settings};
use crate::log::{OpenMode, Options, WriteDone, WriteJob};
use crate::name::DestinationName;
use crate::sim::history::Event;
use crate::sim::{Faults, SimDisk};
use crate::state::{Kind, Properties, ReadJob, SECRET_BYTES, Start, State, StateOptions, UpkeepDone, UpkeepJob};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A job on its way.
enum Stage<J, D> {
    Taken(J),
    Run(D),
}

/// See the module's documentation.
pub struct Machine {
    /// The disk.
    pub disk: SimDisk,
    /// The broker; none while it is down.
    pub engine: Option<Engine>,
    /// Streams with output to take.
    pub ready: BTreeSet<u64>,
    tickets: Vec<(u64, Question)>,
    write: Option<Stage<WriteJob, WriteDone>>,
    upkeep: Option<Stage<UpkeepJob, UpkeepDone>>,
    reads: Vec<ReadJob>,
    options: StateOptions,
    /// Why the broker has to be stopped: its log is finished.
    pub failed: Option<String>,
    /// How often it was started, so that each start brings another secret: the first one's has to hold.
    starts: u8,
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
        refusals_max: env.pick(&[1, 2, 65_536]).unwrap_or(2),
        checkpoint_bytes: env
            .pick(&[None, Some(8 << 10), Some(32 << 10), Some(128 << 10)])
            .flatten(),
        ..StateOptions::default()
    }
}

impl Machine {
    /// A machine with an empty disk and a broker.
    pub fn new(env: &mut Env, seed: u64) -> Self {
        let mut machine = Self {
            disk: SimDisk::new(seed ^ 0xd15c),
            engine: None,
            ready: BTreeSet::new(),
            tickets: Vec::new(),
            write: None,
            upkeep: None,
            reads: Vec::new(),
            options: options(env),
            failed: None,
            starts: 0,
        };
        machine.start(env);
        machine
    }

    /// How the broker is opened.
    #[must_use]
    pub fn options(&self) -> &StateOptions {
        &self.options
    }

    /// Starts the broker on what the disk holds.
    pub fn start(&mut self, env: &mut Env) {
        let disk = Arc::new(self.disk.clone());
        let mut options = self.options.clone();
        options.start = Start {
            id: env.random.next_u64() | 1,
            secret: [self.starts; SECRET_BYTES],
        };
        self.starts = self.starts.wrapping_add(1);
        match State::open(disk, options, env.now()) {
            Ok((state, report)) => {
                env.tell(|| format!("opened: {report:?}"));
                let settings = Settings {
                    broker: "sim".to_owned(),
                    ..Settings::default()
                };
                let mut engine = Engine::new(state, settings, env.now());
                let configured = engine.configure(configuration());
                for (kind, name, refused) in configured.refused {
                    env.complaints
                        .push(format!("{kind} {name} could not be configured: {refused:?}"));
                }
                env.tell(|| format!("after the start:\n{}", engine.state().dump()));
                self.engine = Some(engine);
            }
            Err(error) => {
                // A power loss while it starts is for the next start; anything else is the end of the run.
                if !self.disk.is_down() {
                    env.complaints.push(format!("the broker does not start: {error}"));
                }
                self.failed = Some(error.to_string());
            }
        }
    }

    /// Stops the broker: with the power, or only its process.
    pub fn crash(&mut self, env: &mut Env, power: bool) {
        env.tell(|| format!("crash, power {power}"));
        self.engine = None;
        self.write = None;
        self.upkeep = None;
        self.reads.clear();
        self.tickets.clear();
        self.ready.clear();
        self.failed = None;
        if power || self.disk.is_down() {
            self.disk.power_cycle();
        } else {
            self.disk.kill_process();
        }
        env.note(Event::Stopped);
    }

    /// A clean stop.
    pub fn stop(&mut self, env: &mut Env) {
        self.finish_jobs(env);
        let before = self.engine.as_ref().map(|engine| engine.state().dump());
        env.tell(|| format!("before the stop:\n{}", before.unwrap_or_default()));
        if let Some(engine) = self.engine.take()
            && let Err(error) = engine.stop()
        {
            env.tell(|| format!("the stop failed: {error}"));
        }
        self.crash(env, false);
    }

    /// Lets go of jobs under way by completing them.
    pub fn finish_jobs(&mut self, env: &mut Env) {
        for _ in 0..3 {
            self.step_write(env);
            self.step_upkeep(env);
        }
    }

    /// Whether the broker cannot go on.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.failed.is_some() || self.disk.is_down() || self.engine.is_none()
    }

    /// Tells the broker the time.
    pub fn tick(&mut self, env: &mut Env) {
        if let Some(engine) = &mut self.engine {
            engine.tick(env.now());
        }
    }

    /// Both jobs run at once, as their threads do: operation by operation, in an order that the seed draws.
    fn run_both(&mut self, env: &mut Env) -> bool {
        if !matches!(
            (&self.write, &self.upkeep),
            (Some(Stage::Taken(_)), Some(Stage::Taken(_)))
        ) || env.random.one_in(4)
        {
            return false;
        }
        let (Some(Stage::Taken(write)), Some(Stage::Taken(upkeep))) = (self.write.take(), self.upkeep.take()) else {
            return false;
        };
        let (written, kept) = self.disk.interleave(|| write.run(), || upkeep.run());
        self.write = Some(Stage::Run(written));
        self.upkeep = Some(Stage::Run(kept));
        true
    }

    /// One step of the write under way, or the beginning of one. Whether there was something to do.
    pub fn step_write(&mut self, env: &mut Env) -> bool {
        if self.run_both(env) {
            return true;
        }
        let Some(engine) = &mut self.engine else { return false };
        let result = match self.write.take() {
            None => match engine.next_write() {
                Ok(None) => return false,
                Ok(Some(job)) => {
                    self.write = Some(Stage::Taken(job));
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Some(Stage::Taken(job)) => {
                self.write = Some(Stage::Run(job.run()));
                Ok(())
            }
            Some(Stage::Run(done)) => engine.complete_write(done),
        };
        if let Err(error) = result {
            env.tell(|| format!("write failed: {error}"));
            self.failed = Some(error.to_string());
        }
        true
    }

    /// One step of the upkeep under way, or the beginning of one. Whether there was something to do.
    pub fn step_upkeep(&mut self, env: &mut Env) -> bool {
        if self.run_both(env) {
            return true;
        }
        let Some(engine) = &mut self.engine else { return false };
        let result = match self.upkeep.take() {
            None => match engine.maintenance() {
                Ok(None) => return false,
                Ok(Some(job)) => {
                    self.upkeep = Some(Stage::Taken(job));
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Some(Stage::Taken(job)) => {
                self.upkeep = Some(Stage::Run(job.run()));
                Ok(())
            }
            Some(Stage::Run(done)) => engine.complete_maintenance(done),
        };
        if let Err(error) = result {
            env.tell(|| format!("upkeep failed: {error}"));
            self.failed = Some(error.to_string());
        }
        true
    }

    /// Does the reads that deliveries wait for. Whether there were any.
    pub fn step_reads(&mut self, env: &mut Env) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        self.reads.extend(engine.take_reads());
        if self.reads.is_empty() {
            return false;
        }
        let index = env.random.below(self.reads.len() as u64) as usize;
        let job = self.reads.swap_remove(index);
        engine.complete_read(job.run());
        true
    }

    /// Asks what is ready.
    pub fn poll(&mut self) -> Option<u64> {
        let engine = self.engine.as_mut()?;
        let Polled {
            ready,
            tickets,
            deadline_ms,
        } = engine.poll();
        self.ready.extend(ready);
        self.tickets
            .extend(tickets.into_iter().map(|ticket| (ticket.ticket, ticket.question)));
        deadline_ms
    }

    /// Answers one of the questions that wait. Whether there was one.
    pub fn answer(&mut self, env: &mut Env) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        if self.tickets.is_empty() {
            return false;
        }
        let index = env.random.below(self.tickets.len() as u64) as usize;
        let (ticket, question) = self.tickets.swap_remove(index);
        let answer = match question {
            Question::Hello { .. } => Answer::Admitted { user: String::new() },
            Question::Destination { .. } => Answer::Create(Properties::default()),
            Question::Pattern { .. } => Answer::Admitted { user: String::new() },
        };
        engine.answer(ticket, answer);
        true
    }

    /// What a host does about once a second: notes what is durable, and tries again what found no space.
    pub fn once_a_second(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.state_mut().request_watermark_sync();
        }
    }

    /// How many bytes the disk holds now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        use crate::log::disk::Disk as _;
        let names = self.disk.list().unwrap_or_default();
        names
            .iter()
            .filter_map(|name| self.disk.contents(name))
            .map(|bytes| bytes.len() as u64)
            .sum()
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
