//! Damage: at any moment of a run a copy of the broker's disk, as a crash leaves it, is damaged in one place, and what a
//! start makes of it is compared with what it makes of the sound copy.
//!
//! Nothing is excused that the damage does not explain. A start that says nothing has found everything. One that refuses
//! says "damaged", and a forced one names what is lost: no message is missing beside that, but those whose transaction or
//! destination is among it; and what is lost, but for the last write, lay in the file that was damaged. What can be read has the right bytes. Only the last write may be cut as torn in silence
//! (`docs/log-format.md`, "The window that remains"). And what a forced start leaves needs no force.
//!
//! A store that is open when it is damaged goes on: it reads, scrubs, compacts and writes its checkpoint. Only what is
//! damaged cannot be read, and that is known; it does not fail; and its next start finds what one on the damaged copy has to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::auditing::adjoin;
use super::broker::World;
use super::env::Env;
use crate::log::{Dropped, LogError, Position, RecoveryReport};
use crate::sim::SimDisk;
use crate::sim::audit::pieces;
use crate::snapshot::keeper::{Bounds, Keeper, Progress};
use crate::state::{Payload, ReadJob, Start, State, StateError, StateOptions};

/// What a loss of one sector takes.
const SECTOR_BYTES: u64 = 512;

/// What is wrong with one place.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// A bit is another one.
    Bit,
    /// A sector is empty.
    Sector,
    /// The disk cannot give the block back.
    Unreadable,
}

impl World {
    /// See the module's documentation.
    pub fn probe_damage(&mut self) {
        let proven = self.machine.proven();
        if self.machine.is_finished() || proven == Position::ZERO {
            return;
        }
        let sound = self.machine.disk.fork(self.env.random.next_u64());
        if self.env.random.one_in(2) {
            sound.power_cycle();
        }
        let damaged = sound.fork(self.env.random.next_u64());
        let Some((file, what)) = damage(&mut self.env, &damaged) else {
            return;
        };
        let options = self.options_of_a_copy();
        let mut probe = Probe {
            env: &mut self.env,
            options,
            bounds: self.machine.bounds,
            proven,
            file,
            what,
        };
        probe.run(&sound, &damaged);
        self.probes += 1;
    }

    /// Those of the machine, under another start.
    fn options_of_a_copy(&mut self) -> StateOptions {
        let mut options = self.machine.options().clone();
        options.start = Start {
            id: self.env.random.next_u64() | 1,
            secret: [99; crate::state::SECRET_BYTES],
        };
        options
    }

    /// The same of a copy that is open when it is damaged.
    pub fn probe_live(&mut self) {
        let proven = self.machine.proven();
        if self.machine.is_finished() || proven == Position::ZERO {
            return;
        }
        let sound = self.machine.disk.fork(self.env.random.next_u64());
        sound.kill_process();
        let live = sound.fork(self.env.random.next_u64());
        let options = self.options_of_a_copy();
        let mut probe = Probe {
            env: &mut self.env,
            options,
            bounds: self.machine.bounds,
            proven,
            file: String::new(),
            what: "nothing yet".to_owned(),
        };
        probe.run_live(&sound, &live);
        self.probes += 1;
    }
}

/// Seconds that a store lives on after it was damaged, and jobs that it does in each.
const LIVED_SECONDS: u64 = 8;
const JOBS_A_SECOND: u32 = 40;

/// Damages one place of a disk; in which file, and what it did, in words.
fn damage(env: &mut Env, disk: &SimDisk) -> Option<(String, String)> {
    let names: Vec<String> = disk.names().into_iter().filter(|name| name != "lock").collect();
    let name = env.pick(&names)?;
    let bytes = disk.contents(&name).filter(|bytes| !bytes.is_empty())?;
    // Most of a file is empty: what holds something is more interesting, and what holds nothing is looked at, too.
    let mut offset = 0;
    for _ in 0..env.pick(&[1, 40, 40])? {
        offset = env.random.below(bytes.len() as u64);
        if bytes[offset as usize] != 0 {
            break;
        }
    }
    let wrong = env.pick(&[Wrong::Bit, Wrong::Sector, Wrong::Unreadable])?;
    match wrong {
        Wrong::Bit => disk.edit(&name, |bytes| bytes[offset as usize] ^= 1 << (offset % 8)),
        Wrong::Sector => disk.edit(&name, |bytes| {
            let from = (offset / SECTOR_BYTES * SECTOR_BYTES) as usize;
            let to = bytes.len().min(from + SECTOR_BYTES as usize);
            bytes[from..to].fill(0);
        }),
        Wrong::Unreadable => disk.make_unreadable(&name, offset),
    }
    let what = format!("{wrong:?} at {offset} of {name}");
    Some((name, what))
}

struct Probe<'a> {
    env: &'a mut Env,
    options: StateOptions,
    /// What may be kept for audits, where cuts are taken.
    bounds: Option<Bounds>,
    /// What lies below is known to be durable by more than the last write.
    proven: Position,
    /// The damaged file.
    file: String,
    what: String,
}

impl Probe<'_> {
    fn complain(&mut self, of: &str) {
        let line = format!("damage ({}): {of}", self.what);
        self.env.tell(|| line.clone());
        self.env.complaints.push(line);
    }

    fn open(&mut self, disk: &SimDisk, forced: bool) -> Result<(State, RecoveryReport), StateError> {
        let mut options = self.options.clone();
        options.log.force_start = forced;
        let (mut state, report) = State::open(Arc::new(disk.clone()), options, self.env.now())?;
        if let Some(bounds) = self.bounds
            && let Err(wrong) = judge_kept(disk, &mut state, bounds)
        {
            self.complain(&wrong);
        }
        Ok((state, report))
    }

    fn run(&mut self, sound: &SimDisk, damaged: &SimDisk) {
        let mut reference = match self.open(sound, false) {
            Ok((state, _)) => state,
            Err(error) => return self.complain(&format!("the sound copy does not start: {error}")),
        };
        let first = damaged.fork(self.env.random.next_u64());
        match self.open(&first, false) {
            Ok((mut state, report)) => self.judge(&mut reference, &mut state, &report),
            Err(StateError::Log(LogError::Damaged { .. })) => {
                let (mut state, report) = match self.open(damaged, true) {
                    Ok(opened) => opened,
                    Err(error) => return self.complain(&format!("a forced start is refused: {error}")),
                };
                self.judge(&mut reference, &mut state, &report);
                self.start_again(damaged, state);
            }
            Err(error) => self.complain(&format!("a start is refused otherwise: {error}")),
        }
    }

    /// Damages a store that is open, and lets it live on; then it is started again.
    fn run_live(&mut self, sound: &SimDisk, disk: &SimDisk) {
        let (mut reference, mut state) = match (self.open(sound, false), self.open(disk, false)) {
            (Ok((reference, _)), Ok((state, _))) => (reference, state),
            // What is wrong then, the run itself says.
            _ => return,
        };
        let Some((file, what)) = damage(self.env, disk) else {
            return;
        };
        (self.file, self.what) = (file, format!("live, {what}"));
        let here = messages(&state);
        for _ in 0..LIVED_SECONDS {
            // Comes once a second, and is what scrubbing counts by. No message's time passes.
            state.request_watermark_sync();
            if let Err(error) = live_on(&mut state) {
                return self.complain(&format!("it fails: {error}"));
            }
            self.judge_payloads(&mut reference, &mut state, &RecoveryReport::default(), &here);
        }
        // It may find no room for one.
        let _ = state.checkpoint();
        if let Err(error) = live_on(&mut state) {
            return self.complain(&format!("it fails: {error}"));
        }
        drop(state);
        disk.kill_process();
        sound.kill_process();
        drop(reference);
        self.run(sound, disk);
    }

    /// After a forced start a plain one finds the same.
    fn start_again(&mut self, disk: &SimDisk, mut state: State) {
        while let Ok(Some(job)) = state.next_write() {
            if let Err(error) = state.complete_write(job.run()) {
                return self.complain(&format!("nothing can be written after a forced start: {error}"));
            }
        }
        let before = messages(&state);
        drop(state);
        disk.kill_process();
        match self.open(disk, false) {
            Ok((state, _)) if messages(&state) == before => {}
            Ok(_) => self.complain("the start after a forced one finds other messages"),
            Err(error) => self.complain(&format!("the start after a forced one is refused: {error}")),
        }
    }

    fn judge(&mut self, reference: &mut State, state: &mut State, report: &RecoveryReport) {
        self.env.tell(|| format!("damage ({}): {report:?}", self.what));
        let (there, here) = (messages(reference), messages(state));
        let (full, end) = (reference.log().end(), state.log().end());
        if report.dropped.is_empty() {
            if end >= full {
                if there != here {
                    let lost = there.iter().find(|(key, _)| !here.contains_key(*key));
                    let new = here.iter().find(|(key, _)| !there.contains_key(*key));
                    self.complain(&format!("nothing is reported, and {lost:?} is lost, {new:?} is new"));
                }
            } else if end < self.proven {
                self.complain(&format!("cut at {end} in silence; {} was proven", self.proven));
            }
        } else {
            self.judge_lost(reference, state, report, &there, &here);
        }
        self.judge_payloads(reference, state, report, &here);
    }

    /// What is missing is what was named as lost, or rested on it.
    fn judge_lost(
        &mut self,
        reference: &mut State,
        state: &State,
        report: &RecoveryReport,
        there: &Messages,
        here: &Messages,
    ) {
        let end = state.log().end();
        if end > reference.log().end() {
            // Behind what it drops a forced start reads on, where a plain one cut an unproven tail: what that tail ended is
            // not lost.
            return;
        }
        let lost: Vec<(Key, Position)> = there
            .iter()
            .filter(|(key, position)| {
                !here.contains_key(*key) && !self.explains(report, **position) && **position < end
            })
            .map(|(key, position)| (*key, *position))
            .collect();
        for (key, position) in lost {
            let source = state.source(crate::state::SourceId(key.0));
            let defined = source.is_some_and(|source| {
                source
                    .destination
                    .is_none_or(|id| state.destination_by_id(id).is_some())
            });
            let recognised = read(reference, position)
                .ok()
                .and_then(|bytes| self.env.recognise(&bytes));
            let depends = recognised.is_none_or(|(key, _)| {
                let facts = self.env.history.facts.message(key);
                // Its commit may be what is lost; a bridge's copies are written behind their message.
                facts.transaction.is_some()
            });
            let moved = key.2;
            if defined && !depends && !moved {
                self.complain(&format!(
                    "{key:?} at {position} is lost, and not among {:?}",
                    report.dropped
                ));
                return;
            }
        }
    }

    /// Whether the damage explains that a record is lost: it is named, and lay where the damage is or was not proven.
    fn explains(&self, report: &RecoveryReport, position: Position) -> bool {
        let here = |lost: &Dropped| lost.file.contains(&self.file) || position >= self.proven;
        report.dropped.iter().any(|lost| within(lost, position) && here(lost))
    }

    /// Whatever can be read is what was written; what cannot is said to be damaged.
    fn judge_payloads(&mut self, reference: &mut State, state: &mut State, report: &RecoveryReport, here: &Messages) {
        for (key, position) in here {
            let sound = read(reference, *position);
            let found = read(state, *position);
            match (sound, found) {
                (Ok(sound), Ok(found)) if sound == found => {}
                // It is not there in the sound copy: its end is what was lost.
                (Err(_), _) => {}
                // One that was moved is still known by what moved it.
                (Ok(_), Err(why)) if state.log().damaged_total() > 0 || names(report, *position) => {
                    self.env.tell(|| format!("{key:?} at {position} cannot be read: {why}"));
                }
                (Ok(_), Err(why)) => {
                    return self.complain(&format!(
                        "{key:?} at {position} cannot be read, and nobody is told: {why}"
                    ));
                }
                (Ok(_), Ok(_)) => return self.complain(&format!("{key:?} at {position} has other bytes")),
            }
        }
    }
}

/// What is kept for audits keeps no store from starting, and what is told of it is whole or told to be missing.
fn judge_kept(disk: &SimDisk, state: &mut State, bounds: Bounds) -> Result<(), String> {
    let opened = Keeper::open(Arc::new(disk.clone()), state, bounds);
    let mut keeper = opened.map_err(|error| format!("what is kept for audits refuses the start: {error}"))?;
    for _ in 0..JOBS_A_SECOND {
        let Some(job) = keeper.next_job(state) else { break };
        keeper.complete(state, job.run());
    }
    if let Progress::Ready { cut, events, gaps, .. } = keeper.progress(state) {
        adjoin(&cut, &events, &gaps)?;
        for header in std::iter::once(&cut).chain(&events) {
            // What is damaged inside is found by whoever reads it.
            let _ = pieces(disk, header);
        }
    }
    keeper.let_go(state);
    Ok(())
}

/// Writes what there is to write, and does upkeep.
fn live_on(state: &mut State) -> Result<(), String> {
    for _ in 0..JOBS_A_SECOND {
        let written = match state.next_write() {
            Ok(Some(job)) => state.complete_write(job.run()).map(|_| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        let kept = match state.maintenance() {
            Ok(Some(job)) => state.complete_maintenance(job.run()).map(|_| true),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        match (written, kept) {
            (Ok(false), Ok(false)) => break,
            (Err(error), _) | (_, Err(error)) => return Err(error.to_string()),
            _ => {}
        }
    }
    match state.failed() {
        Some(why) => Err(why.to_owned()),
        None => Ok(()),
    }
}

/// Whether a forced start says that what was at a position is lost.
fn names(report: &RecoveryReport, position: Position) -> bool {
    report.dropped.iter().any(|lost| within(lost, position))
}

/// Whether a stretch that is lost includes a position.
fn within(lost: &Dropped, position: Position) -> bool {
    (lost.position.0..lost.position.0.saturating_add(lost.bytes.max(1))).contains(&position.0)
}

/// A message in a source: source, sequence, and whether it came from another source.
type Key = (u64, u64, bool);
type Messages = BTreeMap<Key, Position>;

/// The logged messages that a state holds, and where their records are.
fn messages(state: &State) -> Messages {
    let mut found = Messages::new();
    for line in state.dump().lines().filter(|line| line.starts_with("message ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        if let (Some(source), Some(sequence), Some(position)) = (number(1), number(2), number(4)) {
            found.insert((source, sequence, line.contains(" from ")), Position(position));
        }
    }
    found
}

/// A message's bytes.
fn read(state: &mut State, position: Position) -> Result<Vec<u8>, String> {
    for _ in 0..100 {
        match state.payload(position) {
            Payload::Ready(message) => return Ok(message.bytes.to_vec()),
            Payload::Damaged(why) => return Err(why),
            Payload::Reading => {
                let jobs: Vec<ReadJob> = state.take_reads();
                for job in jobs {
                    state.complete_read(job.run());
                }
            }
        }
    }
    Err("it is read for ever".to_owned())
}
