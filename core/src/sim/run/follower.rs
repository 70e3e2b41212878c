//! A second state, on a disk of its own, that is fed from the first one's log as a standby would be.
//!
//! With the same log both have to answer identically; what follows from the log is compared as text ([`State::dump`]).

use super::broker::World;
use super::env::Env;
use super::machine::Machine;
use crate::log::{LogError, OpenMode};
use crate::sim::{SimDisk, Worker};
use crate::state::{State, StateError, StateOptions};
use std::sync::Arc;

/// Its name among the readers of the leader's log.
const READER: &str = "follower";
/// How far it may stay behind: further than any run goes.
const BOUND_BYTES: u64 = 1 << 30;
/// Reads that bringing it to the leader's end may take.
const READS_MAX: u32 = 10_000;

/// See the module's documentation.
pub struct Follower {
    disk: SimDisk,
    options: StateOptions,
    state: Option<State>,
    claimed: bool,
    /// What it asked for last cannot be read for want of something that comes back by itself.
    waits: bool,
}

impl Follower {
    /// A follower with an empty disk.
    #[must_use]
    pub fn new(machine: &Machine, seed: u64) -> Self {
        let mut options = machine.options().clone();
        options.log.mode = OpenMode::Follower;
        Self {
            disk: SimDisk::new(seed ^ 0xf0110),
            options,
            state: None,
            claimed: false,
            waits: false,
        }
    }

    /// Claims what it has not read, as it has to after each start of the leader.
    pub fn claim(&mut self, env: &mut Env, leader: &mut State) {
        if let Some(position) = self.open(env).map(|state| state.log().end()) {
            self.claimed = leader.register_reader(READER, position, BOUND_BYTES);
        }
    }

    fn open(&mut self, env: &mut Env) -> Option<&mut State> {
        if self.state.is_none() {
            match State::open(Arc::new(self.disk.clone()), self.options.clone(), env.now()) {
                Ok((state, _)) => self.state = Some(state),
                Err(error) => env.complaints.push(format!("the follower does not start: {error}")),
            }
        }
        self.state.as_mut()
    }

    /// Takes some of what is durable. Whether there may be more.
    pub fn read(&mut self, env: &mut Env, leader: &mut State) -> bool {
        self.waits = false;
        if env.random.one_in(20) {
            // It restarts, too, and may lose what it had not synced.
            env.tell(|| "the follower loses power".to_owned());
            self.state = None;
            self.disk.power_cycle();
            self.claim(env, leader);
        }
        if !self.claimed {
            self.claim(env, leader);
        }
        if !self.claimed {
            return false;
        }
        let bytes_max = env.pick(&[1, 10_000, 1 << 20]).unwrap_or(1);
        let Some(state) = self.open(env) else { return false };
        let from = state.log().end();
        if from >= leader.committed() {
            return false;
        }
        let taken = leader
            .read_log(from, bytes_max)
            .and_then(|chunk| state.append_log(&chunk));
        env.tell(|| {
            format!(
                "the follower reads from {}, {bytes_max} bytes: {:?}",
                from.0,
                taken.as_ref().map(|end| end.0)
            )
        });
        // The leader's disk may lack descriptors or memory for a while: it reads again later.
        let passes = |error: &StateError| matches!(error, StateError::Log(LogError::Disk(error)) if error.passes());
        let waits = matches!(&taken, Err(error) if passes(error));
        if let Err(error) = taken
            && !waits
        {
            env.complaints
                .push(format!("the follower at {} cannot go on: {error}", from.0));
            return false;
        }
        leader.advance_reader(READER, state.log().end());
        for _ in 0..4 {
            match state.maintenance() {
                Ok(Some(job)) => {
                    if let Err(error) = state.complete_maintenance(job.run()) {
                        env.complaints.push(format!("the follower's upkeep failed: {error}"));
                    }
                }
                Ok(None) => break,
                Err(error) => env.complaints.push(format!("the follower's upkeep failed: {error}")),
            }
        }
        self.waits = waits;
        true
    }
}

impl World {
    /// Lets all that was appended become durable, brings the follower to the same place, and compares.
    pub fn compare_follower(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        for _ in 0..40 {
            self.machine.poll(&mut self.env);
            if !self.machine.run(Worker::Writer) {
                break;
            }
        }
        let finished = self.machine.is_finished();
        let Some(host) = &mut self.machine.host else { return };
        let state = host.engine_mut().state_mut();
        if finished || state.committed() < state.end() {
            return;
        }
        let mut reads = 0;
        while reads < READS_MAX && follower.read(&mut self.env, state) && !follower.waits {
            reads += 1;
        }
        let Some(following) = &follower.state else { return };
        if !follower.claimed || follower.waits {
            return;
        }
        if READS_MAX == reads {
            // It lost its power again and again before it had read all of a long log.
            return;
        }
        let (leader, other) = (logged(&state.dump()), logged(&following.dump()));
        if leader != other {
            let only = |one: &str, other: &str| {
                let lines = one.lines().filter(|line| !other.lines().any(|same| same == *line));
                lines.take(3).map(str::to_owned).collect::<Vec<_>>()
            };
            let (here, there) = (only(&leader, &other), only(&other, &leader));
            self.env
                .complaints
                .push(format!("the follower differs: {here:?} against its {there:?}"));
        }
        self.comparisons += 1;
    }
}

/// A dump without the numbers that a source gives next: what was only in memory has used some of them up.
fn logged(dump: &str) -> String {
    let lines = dump.lines().map(
        |line| match (line.split_once(" next "), line.split_once(" watermark ")) {
            (Some((source, _)), Some((_, watermark))) => format!("{source} watermark {watermark}"),
            _ => line.to_owned(),
        },
    );
    lines.collect::<Vec<_>>().join("\n")
}
