//! An exporter beside the clients of a run: it has cuts begun at any moment, reads them, confirms them, late, twice and
//! wrongly, and holds what they say against a model.
//!
//! A cut has to be what there was at its position, and its events what leads there from the cut before, or the gaps say
//! what they do not tell of. Whether that is so is judged by [`crate::sim::audit`], which follows the tables' description. A
//! cut that waits comes again as it was, whatever was lost meanwhile; one whose export is durable never does. The same
//! stretch of the log is told by the same bytes whenever, and by whichever copy of the log, it is told.

use std::collections::BTreeMap;

use super::broker::World;
use super::env::Env;
use super::machine::Machine;
use crate::log::Position;
use crate::sim::audit::{Events, Found, pieces};
use crate::snapshot::gaps::Gap;
use crate::snapshot::keeper::{Bounds, Keeper, KeeperError, Progress};
use crate::snapshot::pieces::{Header, Piece};
use crate::state::{MANIFEST_HASH_BYTES, State};

/// Rounds after which a cut must have got stuck.
const ROUNDS_MAX: usize = 2_000;

/// What there was when a cut began, or a little later.
struct Begun {
    /// Its position is not below.
    from: Position,
    /// Where the log ended then: its position is below.
    end: Position,
    /// What the tables held then, and what happened from the first to the second place: of that what lies above the cut's
    /// position leads from the cut to what they held. None: a segment was just being sealed.
    then: Option<(Found, Events)>,
}

/// A cut that was read.
#[derive(Clone)]
struct Known {
    cut: Header,
    found: Found,
    manifest: [u8; MANIFEST_HASH_BYTES],
}

/// See the module's documentation.
pub struct Auditor {
    bounds: Bounds,
    /// Those of which none was exported since.
    begun: Vec<Begun>,
    /// A cut was being written when that was last looked at.
    was_making: bool,
    /// The log's end before the engine was polled, or called.
    before: Position,
    /// What lay below was settled when that was last looked at.
    settled: Position,
    /// The cut that waited when that was last looked at.
    ready: Option<Header>,
    /// The one that was read last, and may be confirmed.
    read: Option<(Header, Found)>,
    /// What cuts said that were read and are not exported durably. One that was given up may come again, as it was, when
    /// the power is lost before its file is gone for good.
    seen: Vec<(Header, Found)>,
    /// Those that were exported, whether or not that is durable: the last two.
    exported: Vec<Known>,
    /// The last one whose export is durable, by this number and what came before it.
    durable: u64,
    /// Where the record of the last export is.
    record: Option<Position>,
    /// By stretch of the log, what tells of it.
    told: BTreeMap<(Position, Position), Vec<Piece>>,
    /// The disk is another one than at the last look.
    pub(super) has_moved: bool,
    cuts: u64,
    replays: u64,
    gaps: u64,
}

impl Auditor {
    /// An exporter that has seen nothing yet.
    pub fn new(env: &mut Env) -> Self {
        let bounds = Bounds {
            bytes_max: env.pick(&[20_000, 100_000, 1 << 30, 1 << 30]).unwrap_or(1 << 30),
            age_max_ms: env.pick(&[2_000, 60_000, 7 * 24 * 3_600_000]).unwrap_or(60_000),
        };
        Self {
            bounds,
            begun: Vec::new(),
            was_making: false,
            before: Position::ZERO,
            settled: Position::ZERO,
            ready: None,
            read: None,
            seen: Vec::new(),
            exported: Vec::new(),
            durable: 0,
            record: None,
            told: BTreeMap::new(),
            has_moved: false,
            cuts: 0,
            replays: 0,
            gaps: 0,
        }
    }

    /// What may be kept in this run.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Cuts that were read, replays that led to one, and gaps.
    pub fn figures(&self) -> (u64, u64, u64) {
        (self.cuts, self.replays, self.gaps)
    }

    /// The engine is about to be polled, or called.
    pub fn look_before(&mut self, machine: &mut Machine) {
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        (self.was_making, self.before) = (keeper.is_making(), state.log().end());
    }

    /// It was: a cut may have begun, or be whole, or an export be durable.
    pub fn look_after(&mut self, env: &mut Env, machine: &mut Machine) {
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        if keeper.is_making() && !self.was_making {
            let (from, end) = (self.before, state.log().end());
            let events = Events::between(state, from, end).ok();
            self.begun.push(Begun {
                from,
                end,
                then: events.map(|(events, _)| (Found::in_tables(state), events)),
            });
            env.tell(|| format!("a cut begins above {}", self.before));
        }
        if self.record.is_some_and(|record| record < state.log().settled()) {
            self.record = None;
            self.durable = self.exported.last().map_or(self.durable, |known| known.cut.number);
            self.seen.retain(|(cut, _)| cut.number > self.durable);
        }
        self.settled = state.log().settled();
        self.ready = waits(keeper, state);
    }

    /// The broker has started again.
    pub fn look_at_start(&mut self, env: &mut Env, machine: &mut Machine) {
        // What it did next may have been to give it up.
        let found = machine.found_cut;
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        let number = state.exported().map_or(0, |exported| exported.number);
        if number < self.durable {
            env.complaints
                .push(format!("cut {} was exported durably, and is forgotten", self.durable));
        }
        let mut expected = self.ready.take();
        let was_lost = self.exported.last().is_some_and(|known| known.cut.number > number);
        if was_lost && let Some(known) = self.exported.pop() {
            // What was told of an export that was not durable is as if it had not been.
            expected = Some(known.cut);
            self.read = Some((known.cut, known.found));
        }
        (self.durable, self.record) = (number, None);
        // These positions come again, of other records.
        self.begun.retain(|begun| begun.from < self.settled);
        if std::mem::take(&mut self.has_moved) {
            // The files of cuts and events are not copied: the next cut is another one.
            self.read = None;
            self.seen.clear();
        } else if let Some(cut) = expected.filter(|cut| cut.number > number) {
            if found != Some(cut) {
                env.complaints
                    .push(format!("{cut:?} waited to be exported; after a start it is {found:?}"));
            }
        }
        self.ready = waits(keeper, state);
    }

    /// Does one thing that an exporter does, or should not do.
    fn act(&mut self, env: &mut Env, machine: &mut Machine) {
        self.look_before(machine);
        match env.random.below(8) {
            0..=2 => self.begin(env, machine),
            3..=5 => self.look(env, machine),
            6 => self.confirm(env, machine),
            _ => self.confirm_wrongly(env, machine),
        }
        self.look_after(env, machine);
    }

    fn begin(&mut self, env: &mut Env, machine: &mut Machine) {
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        match keeper.begin(state) {
            Ok(()) | Err(KeeperError::NoSpace) => {}
            Err(error) => env.complaints.push(format!("a cut cannot be begun: {error}")),
        }
        machine.touched = true;
    }

    /// Reads the cut that waits, with its events.
    fn look(&mut self, env: &mut Env, machine: &mut Machine) {
        let disk = machine.disk.clone();
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        let Progress::Ready {
            cut,
            previous,
            events,
            gaps,
        } = keeper.progress(state)
        else {
            return;
        };
        if disk.is_down() {
            return;
        }
        env.tell(|| format!("an exporter reads {cut:?} with {events:?} and {gaps:?}"));
        if let Err(wrong) = self.judge(&disk, state, &cut, previous, &events, &gaps) {
            env.tell(|| format!("cut {}: {wrong}", cut.number));
            // The disk may lack descriptors for a while.
            if !wrong.contains("os error") {
                env.complaints.push(format!("cut {}: {wrong}", cut.number));
            }
        }
    }

    fn judge(
        &mut self,
        disk: &crate::sim::SimDisk,
        state: &State,
        cut: &Header,
        previous: Option<[u8; MANIFEST_HASH_BYTES]>,
        events: &[Header],
        gaps: &[Gap],
    ) -> Result<(), String> {
        self.judge_chain(cut, previous)?;
        adjoin(cut, events, gaps)?;
        self.gaps += gaps.len() as u64;
        let found = Found::in_file(disk, cut)?;
        let seen = self.seen.iter().find(|(header, _)| header == cut);
        if seen.is_some_and(|(_, seen)| *seen != found) {
            return Err("it says something else than before".to_owned());
        }
        let was_seen = seen.is_some();
        let begun = self
            .begun
            .iter()
            .rev()
            .find(|begun| begun.from <= cut.to && cut.to < begun.end);
        if let Some(begun) = begun {
            if let Some((expected, events)) = &begun.then {
                let then = events.clone().from(cut.to).replay(found.clone())?;
                if then != *expected {
                    return Err(format!("it is not what there was: {}", difference(&then, expected)));
                }
            }
        } else if !was_seen {
            return Err("nobody saw it begin".to_owned());
        }
        let mut told = Events::default();
        for header in events {
            self.judge_events(disk, state, header)?;
            told.add_file(disk, header)?;
        }
        let before = self.exported.last().filter(|known| known.cut.number + 1 == cut.number);
        if let Some(before) = before.filter(|_| gaps.is_empty()) {
            let then = told.replay(before.found.clone())?;
            if then != found {
                return Err(format!("events do not lead to it: {}", difference(&then, &found)));
            }
            self.replays += 1;
        }
        if !was_seen {
            self.seen.push((*cut, found.clone()));
        }
        self.read = Some((*cut, found));
        self.cuts += 1;
        Ok(())
    }

    fn judge_chain(&self, cut: &Header, previous: Option<[u8; MANIFEST_HASH_BYTES]>) -> Result<(), String> {
        let last = self.exported.last();
        let number = last.map_or(0, |known| known.cut.number) + 1;
        if cut.number != number {
            return Err(format!("its number is not {number}"));
        }
        if previous != last.map(|known| known.manifest) {
            return Err("it does not name the manifest before".to_owned());
        }
        if self.durable >= cut.number {
            return Err("it was exported".to_owned());
        }
        Ok(())
    }

    /// The same stretch is told by the same bytes, now, as the log has it, and whenever it was told before.
    fn judge_events(&mut self, disk: &crate::sim::SimDisk, state: &State, header: &Header) -> Result<(), String> {
        let found = pieces(disk, header)?;
        let stretch = (header.from, header.to);
        if self.told.get(&stretch).is_some_and(|before| *before != found) {
            return Err(format!("{stretch:?} is told otherwise than before"));
        }
        // What is rewritten has not all records any more.
        if state.log().has_all_from(header.from) {
            // A file that is on its way out cannot be read, nor can a segment that is being sealed.
            let again = Events::between(state, header.from, header.to);
            if again.is_ok_and(|(_, again)| again != found) {
                return Err(format!("{stretch:?} is not told as the log has it"));
            }
        }
        self.told.insert(stretch, found);
        Ok(())
    }

    /// Says that the cut that was read is exported; sometimes of one that was given up since, which is refused.
    fn confirm(&mut self, env: &mut Env, machine: &mut Machine) {
        let Some((cut, found)) = self.read.clone() else { return };
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        let waits = waits(keeper, state);
        let is_it = waits == Some(cut);
        // Whoever asks what waits, and finds another one than he has, does not confirm.
        if waits.is_some() && !is_it {
            return;
        }
        let manifest = [env.random.next_u64() as u8; MANIFEST_HASH_BYTES];
        let confirmed = keeper.confirm(state, cut.number, manifest);
        env.tell(|| format!("cut {} is exported: {confirmed:?}", cut.number));
        match confirmed {
            Ok(record) if is_it => {
                self.record = Some(record);
                self.exported.push(Known { cut, found, manifest });
                if self.exported.len() > 2 {
                    self.exported.remove(0);
                }
                self.read = None;
                self.begun.clear();
            }
            Ok(_) => env.complaints.push(format!("{cut:?} does not wait, and was confirmed")),
            // The log takes no record just then.
            Err(KeeperError::State(_)) => {}
            // It was given up, or its events have to be made again first.
            Err(KeeperError::NoSuchCut(_)) if !is_it => {
                self.read.take_if(|_| keeper.waiting() != Some(cut));
            }
            Err(error) => env.complaints.push(format!("{cut:?} cannot be confirmed: {error}")),
        }
        machine.touched = true;
    }

    /// Confirms what does not wait, or once more what was exported: nothing comes of either.
    fn confirm_wrongly(&mut self, env: &mut Env, machine: &mut Machine) {
        let Some((keeper, state)) = snapshots(machine) else {
            return;
        };
        let exported = state.exported();
        let next = exported.map_or(0, |exported| exported.number) + 1;
        let number = env.pick(&[0, next + 1, u64::MAX]).unwrap_or(0);
        if keeper.confirm(state, number, [9; MANIFEST_HASH_BYTES]).is_ok() {
            env.complaints
                .push(format!("there is no cut {number}, and it was confirmed"));
        }
        if let Some(exported) = exported {
            let other = exported.manifest.map(|byte| !byte);
            if keeper.confirm(state, exported.number, other).is_ok() {
                env.complaints
                    .push(format!("cut {} was exported under two manifests", exported.number));
            }
            if let Err(error) = keeper.confirm(state, exported.number, exported.manifest) {
                env.complaints
                    .push(format!("cut {} is not exported any more: {error}", exported.number));
            }
        }
        if state.exported() != exported {
            env.complaints
                .push("what was exported has changed of itself".to_owned());
        }
    }
}

impl World {
    /// What the exporter does beside a step.
    pub fn exporter_acts(&mut self) {
        if let Some(auditor) = &mut self.auditor {
            auditor.act(&mut self.env, &mut self.machine);
        }
    }

    /// With nothing in the way two more cuts come, and what they need goes with them.
    pub fn drain_cuts(&mut self) {
        if self.auditor.is_none() {
            return;
        }
        for _ in 0..3 {
            if !self.drain_cut() {
                self.env.complaints.push("a cut does not come to an end".to_owned());
                return;
            }
        }
        self.settle();
        self.complain_of_files();
    }

    /// Whether a cut was begun, read and confirmed.
    fn drain_cut(&mut self) -> bool {
        let number = |world: &mut Self| snapshots(&mut world.machine).and_then(|(_, state)| state.exported());
        let before = number(self);
        for _ in 0..ROUNDS_MAX {
            let Some(auditor) = &mut self.auditor else { return false };
            auditor.look_before(&mut self.machine);
            auditor.begin(&mut self.env, &mut self.machine);
            auditor.look_after(&mut self.env, &mut self.machine);
            self.settle();
            let Some(auditor) = &mut self.auditor else { return false };
            auditor.look_before(&mut self.machine);
            auditor.look(&mut self.env, &mut self.machine);
            auditor.confirm(&mut self.env, &mut self.machine);
            auditor.look_after(&mut self.env, &mut self.machine);
            self.settle();
            if number(self) != before {
                return true;
            }
            self.advance(1_000);
            if !self.env.complaints.is_empty() {
                return false;
            }
        }
        false
    }

    /// Of what was exported nothing is left, and nothing is claimed for it.
    fn complain_of_files(&mut self) {
        let names = self.machine.disk.names();
        let Some((keeper, state)) = snapshots(&mut self.machine) else {
            return;
        };
        let end = state.log().end();
        let mut wrong = Vec::new();
        if names.iter().any(|name| name.ends_with(".cut")) || state.has_reader("$sys.cut") {
            wrong.push(format!("a cut is left: {names:?}"));
        }
        let begins = state.exported().map_or(end, |exported| exported.position);
        let kept = keeper.kept().0;
        let mut bytes = 0;
        for name in names.iter().filter(|name| name.ends_with(".events")) {
            let from = name
                .split('.')
                .next()
                .and_then(|number| u64::from_str_radix(number, 16).ok());
            if from.is_none_or(|from| from < begins.0) {
                wrong.push(format!("{name} is left, and all below {begins} was exported"));
            }
            bytes += self.machine.disk.contents(name).map_or(0, |bytes| bytes.len() as u64);
        }
        if bytes != kept {
            wrong.push(format!(
                "{bytes} bytes of events are there, {kept} are known of: {names:?}"
            ));
        }
        self.env.complaints.extend(wrong);
    }
}

fn snapshots(machine: &mut Machine) -> Option<(&mut Keeper, &mut State)> {
    let host = machine.host.as_mut().filter(|host| host.failed().is_none())?;
    host.engine_mut().snapshots()
}

/// The cut that waits to be exported.
fn waits(keeper: &Keeper, state: &State) -> Option<Header> {
    match keeper.progress(state) {
        Progress::Ready { cut, .. } => Some(cut),
        _ => None,
    }
}

/// Events and gaps together are all from the cut before up to this one, each part once.
pub fn adjoin(cut: &Header, events: &[Header], gaps: &[Gap]) -> Result<(), String> {
    let mut stretches: Vec<_> = events.iter().map(|header| (header.from, header.to)).collect();
    stretches.extend(gaps.iter().map(|gap| (gap.from, gap.to)));
    stretches.sort_unstable();
    let mut at = cut.from;
    for (from, to) in stretches {
        if from != at || to <= from {
            return Err(format!("events and gaps do not adjoin at {at}: {events:?} {gaps:?}"));
        }
        at = to;
    }
    if at == cut.to {
        Ok(())
    } else {
        Err(format!("events and gaps end at {at}, not at {}", cut.to))
    }
}

fn difference(one: &Found, other: &Found) -> String {
    let more = |one: &Found, other: &Found| {
        let there: Vec<_> = one.there.difference(&other.there).take(3).copied().collect();
        let pending: Vec<_> = one.pending.difference(&other.pending).take(3).copied().collect();
        format!("{there:?} pending {pending:?} prepared {:?}", one.prepared)
    };
    format!("{}; against {}", more(one, other), more(other, one))
}
