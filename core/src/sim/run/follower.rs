//! A second state, on a disk of its own, that is fed from the first one's log as a standby would be, and takes over from it.
//!
//! It writes what it takes, and keeps its log in order, as a leader does; its disk may be full, lack descriptors for a
//! while, fail for good, or lose power. With the same log both have to answer identically: what follows from the log is
//! compared as text ([`State::dump`]), after every chunk that brings it to where the leader is, and with what it would be
//! after a start of its own.

use super::broker::World;
use super::env::Env;
use super::machine::Machine;
use crate::log::{LogError, OpenMode, Position};
use crate::sim::{Faults, SimDisk, Worker};
use crate::state::{State, StateError, StateOptions};
use std::sync::Arc;

/// Its name among the readers of the leader's log.
const READER: &str = "follower";
/// How far it may stay behind: further than any run goes.
const BOUND_BYTES: u64 = 1 << 30;

/// See the module's documentation.
pub struct Follower {
    disk: SimDisk,
    options: StateOptions,
    state: Option<State>,
    claimed: bool,
    /// Something goes wrong with its disk now.
    suffers: bool,
    /// It cannot go on for want of something that comes back by itself.
    waits: bool,
    /// It had all that its leader had, once.
    whole: bool,
}

/// What a follower's own work came to.
enum Worked {
    Well,
    Failed,
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
            suffers: false,
            waits: false,
            whole: false,
        }
    }

    /// Claims what it does not have for sure, as it has to after each start of the leader, before that one's upkeep. When
    /// some of that is gone it begins anew.
    pub fn claim(&mut self, env: &mut Env, leader: &mut State) {
        self.claimed = false;
        let Some(mut position) = self.open(env).map(|state| state.committed()) else {
            return;
        };
        if position > Position::FIRST && !leader.log().has_all_from(position) {
            env.tell(|| format!("the follower begins anew: of what follows {position} some is gone"));
            self.state = None;
            self.disk = SimDisk::new(env.random.next_u64());
            (self.suffers, self.whole) = (false, false);
            position = Position::FIRST;
        }
        self.claimed = leader.register_reader(READER, position, BOUND_BYTES);
    }

    fn open(&mut self, env: &mut Env) -> Option<&mut State> {
        if self.state.is_none() {
            match State::open(Arc::new(self.disk.clone()), self.options.clone(), env.now()) {
                Ok((state, _)) => self.state = Some(state),
                // What its disk lacks for a while keeps it from starting for a while.
                Err(error) if self.suffers => env.tell(|| format!("the follower does not start yet: {error}")),
                Err(error) => env.complaints.push(format!("the follower does not start: {error}")),
            }
        }
        self.state.as_mut()
    }

    /// It ends, and will start again: with the loss of what it had not synced, or only its process.
    fn end(&mut self, env: &mut Env) {
        let power = self.disk.is_down() || env.random.one_in(2);
        env.tell(|| format!("the follower ends, power {power}"));
        self.state = None;
        if power {
            self.disk.power_cycle();
        } else {
            self.disk.kill_process();
        }
        self.disk.set_faults(Faults::default());
        self.suffers = false;
    }

    /// Nothing is wrong with its disk any more.
    pub fn heal(&mut self) {
        self.disk.set_faults(Faults::default());
        self.suffers = false;
        if let Some(state) = &mut self.state {
            state.request_watermark_sync();
        }
    }

    /// Something goes wrong with its disk, or does so no more.
    fn something_breaks(&mut self, env: &mut Env) {
        let now = self.disk.operations();
        let faults = match env.random.below(4) {
            0 => Faults {
                space_bytes: Some(self.disk.used_bytes() + env.between(0, 60_000)),
                ..Faults::default()
            },
            1 => Faults {
                shortage_one_in: env.pick(&[1, 3, 12]).unwrap_or(3),
                ..Faults::default()
            },
            2 => Faults {
                fail_sync_at: Some(now + env.between(1, 10)),
                ..Faults::default()
            },
            _ => Faults {
                crash_at: Some(now + env.between(1, 20)),
                ..Faults::default()
            },
        };
        env.tell(|| format!("the follower's disk: {faults:?}"));
        self.disk.set_faults(faults);
        self.suffers = true;
    }

    /// Takes some of what is durable, writes it, and keeps its log in order. Whether there may be more.
    ///
    /// `powered` is the disk that `leader` reads: when its power is lost there is nothing to read until it starts again.
    pub fn read(&mut self, env: &mut Env, leader: &mut State, powered: &SimDisk, calm: bool) -> bool {
        self.waits = false;
        if env.random.one_in(20) {
            self.end(env);
            self.claim(env, leader);
        }
        if !calm && env.random.one_in(25) {
            self.something_breaks(env);
        } else if self.suffers && env.random.one_in(8) {
            self.heal();
        }
        if !self.claimed {
            self.claim(env, leader);
        }
        if !self.claimed {
            return false;
        }
        let bytes_max = env.pick(&[1, 10_000, 1 << 20]).unwrap_or(1);
        if self.open(env).is_none() {
            if self.disk.is_down() {
                self.end(env);
            }
            return false;
        }
        let Some(state) = &mut self.state else { return false };
        state.tick(env.now());
        let from = state.log().end();
        let more = from < leader.committed();
        if more {
            let taken = leader
                .read_log(from, bytes_max)
                .and_then(|chunk| state.append_log(&chunk));
            env.tell(|| {
                let end = taken.as_ref().map(|end| end.0);
                format!("the follower reads from {}, {bytes_max} bytes: {end:?}", from.0)
            });
            match taken {
                Ok(_) => {}
                Err(StateError::Log(LogError::NoSpace)) => self.waits = true,
                // The leader's disk may lack descriptors or memory for a while: it reads again later.
                Err(StateError::Log(LogError::Disk(error))) if error.passes() || powered.is_down() => self.waits = true,
                Err(_) if self.suffers => self.waits = true,
                Err(error) => {
                    env.complaints
                        .push(format!("the follower at {} cannot go on: {error}", from.0));
                    return false;
                }
            }
        }
        if matches!(self.work(env), Worked::Failed) {
            self.end(env);
            self.claim(env, leader);
            return true;
        }
        if let Some(state) = &self.state {
            // What it may still lose it has to be able to read again.
            leader.advance_reader(READER, state.committed());
        }
        self.compare_with_start(env);
        more
    }

    /// Writes what it has, and does some upkeep.
    fn work(&mut self, env: &mut Env) -> Worked {
        let rounds = env.pick(&[0, 1, 4, 12]).unwrap_or(1);
        let Some(state) = &mut self.state else {
            return Worked::Well;
        };
        for _ in 0..rounds {
            let written = match state.next_write() {
                Ok(Some(job)) => state.complete_write(job.run()).map(|_| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            let kept = match state.maintenance() {
                Ok(Some(job)) => state.complete_maintenance(job.run()).map(|()| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match (written, kept) {
                (Ok(false), Ok(false)) => break,
                (Ok(_), Ok(_)) => {}
                (Err(error), _) | (_, Err(error)) => {
                    env.tell(|| format!("the follower has failed: {error}"));
                    if !self.suffers {
                        env.complaints.push(format!("the follower has failed: {error}"));
                    }
                    return Worked::Failed;
                }
            }
        }
        if env.random.one_in(4) {
            state.request_watermark_sync();
        }
        Worked::Well
    }

    /// What it has taken piece by piece is what a start makes of its disk.
    fn compare_with_start(&mut self, env: &mut Env) {
        // Before that it may know of messages whose queue is named further on.
        let Some(state) = self.state.as_ref().filter(|_| self.whole && env.random.one_in(3)) else {
            return;
        };
        if state.committed() < state.log().end() {
            return;
        }
        let fork = self.disk.fork(env.random.next_u64());
        match State::open(Arc::new(fork), self.options.clone(), env.now()) {
            // Of what a loss of power kept behind its end, a start may find more once what was before that is there again.
            Ok((started, _)) if started.log().end() > state.log().end() => {}
            Ok((started, _)) => complain_of_difference(env, "after a start", state, &started),
            Err(error) => env.complaints.push(format!("the follower would not start: {error}")),
        }
    }

    /// Whether it has all that the leader has, for sure.
    fn has_all(&self, leader: &State) -> bool {
        let has = |state: &State| state.committed() >= leader.end() && state.log().end() >= leader.end();
        self.claimed && !self.waits && self.state.as_ref().is_some_and(has)
    }

    /// Its disk, and itself if it goes on as it is.
    fn give_up(self, live: bool) -> (SimDisk, Option<State>) {
        (self.disk, self.state.filter(|_| live))
    }
}

impl World {
    /// Lets all that was appended become durable and brings the follower to the same place. Whether it got there.
    fn catch_up(&mut self) -> bool {
        if self.follower.is_none() {
            return false;
        }
        for _ in 0..40 {
            self.poll_machine();
            if !self.machine.run(Worker::Writer) {
                break;
            }
        }
        let finished = self.machine.is_finished();
        let (Some(follower), Some(host)) = (&mut self.follower, &mut self.machine.host) else {
            return false;
        };
        let state = host.engine_mut().state_mut();
        if finished || state.committed() < state.end() {
            return false;
        }
        for _ in 0..1_000 {
            if follower.has_all(state) {
                return true;
            }
            follower.read(&mut self.env, state, &self.machine.disk, self.calm);
            if follower.waits && !self.calm {
                return false;
            }
        }
        if self.calm && follower.claimed {
            self.env.complaints.push("the follower does not catch up".to_owned());
        }
        false
    }

    /// Brings the follower to where the leader is, and compares.
    pub fn compare_follower(&mut self) {
        if self.calm
            && let Some(follower) = &mut self.follower
        {
            follower.heal();
        }
        if self.catch_up() {
            self.compare_now();
        }
    }

    /// Compares, if the follower has all that the leader has.
    pub fn compare_now(&mut self) {
        let (Some(follower), Some(host)) = (&mut self.follower, &self.machine.host) else {
            return;
        };
        let leader = host.engine().state();
        let Some(following) = follower.state.as_ref().filter(|_| follower.has_all(leader)) else {
            return;
        };
        complain_of_difference(&mut self.env, "from its leader", following, leader);
        follower.whole = true;
        self.comparisons += 1;
    }

    /// The leader is lost for good, and the follower, which has all that was confirmed, is the broker from now on.
    pub fn take_over(&mut self) {
        if !self.catch_up() {
            return;
        }
        let Some(follower) = self.follower.take() else { return };
        self.env.tell(|| "the follower takes over".to_owned());
        self.machine.crash(&mut self.env, true);
        // One that goes on as it is counts lives and delays on its own monotonic clock, while a start does by the wall clock.
        let live = self.env.random.one_in(2) && !self.wall_jumped;
        let (disk, state) = follower.give_up(live);
        self.machine.inherit(disk, state);
        if let Some(auditor) = &mut self.auditor {
            auditor.has_moved = true;
        }
        self.follower = Some(Follower::new(&self.machine, self.env.random.next_u64()));
        self.after_stop();
        self.takeovers += 1;
    }
}

/// What follows from the log alone has to be the same.
fn complain_of_difference(env: &mut Env, what: &str, one: &State, other: &State) {
    let (one, other) = (logged(&one.dump()), logged(&other.dump()));
    if one == other {
        return;
    }
    let only = |one: &str, other: &str| {
        let lines = one.lines().filter(|line| !other.lines().any(|same| same == *line));
        lines.take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    let (here, there) = (only(&one, &other), only(&other, &one));
    env.complaints
        .push(format!("the follower differs {what}: {here:?} against {there:?}"));
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
