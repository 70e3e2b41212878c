//! A cut while it is written: the keeper's part of it, stage by stage.

use crate::log::{Position, Sought};
use crate::state::{State, Walked};

use super::cutting::{Cutting, Ending, Work};
use super::keeper::{CUT, Job, Keeper, KeeperError};
use super::pieces::{Header, Kind, name};

/// Places that one call walks past: some milliseconds; in tests so few that there are several calls.
const LOOKS_MAX: usize = if cfg!(test) { 16 } else { 50_000 };

/// Where a cut that is being written stands.
pub(super) enum Stage {
    Walk,
    Messages,
    Checkpoint(Position),
    Events,
}

/// A cut that is being written.
pub(super) struct Making {
    pub(super) number: u64,
    pub(super) position: Position,
    pub(super) checkpoint_end: Position,
    pub(super) ending: Ending,
    pub(super) pending: Vec<crate::state::CutRow>,
    pub(super) stage: Stage,
    /// Unless a job has it.
    pub(super) cutting: Option<Box<Cutting>>,
    /// The job that is out left something to do.
    pub(super) more: bool,
}

impl Keeper {
    pub(super) fn make(&mut self, state: &mut State) -> Result<Making, KeeperError> {
        let begun = state.begin_cut()?;
        let exported = state.exported();
        let header = Header {
            kind: Kind::Cut,
            store_id: state.store_id(),
            number: Self::next_number(state),
            from: exported.map_or(begun.position, |exported| exported.position),
            to: begun.position,
            epoch: state.epoch(),
            bytes: 0,
            rows: 0,
            time_ms: state.now().wall_ms,
        };
        let cutting = Box::new(Cutting::create(self.disk.clone(), header)?);
        self.reuse(&header.file_name());
        if !self.claims {
            // The chain begins here, or goes on after its claim was lost.
            if exported.is_none() {
                self.distilled = begun.position;
            } else {
                self.note_gap(begun.position, "the claim on the log was lost");
            }
            self.claim(state);
        }
        Ok(Making {
            number: header.number,
            position: begun.position,
            checkpoint_end: begun.checkpoint_end,
            ending: Ending {
                transactions: begun.transactions,
                counters: begun.counters,
            },
            pending: begun.pending,
            stage: Stage::Walk,
            cutting: Some(cutting),
            more: false,
        })
    }

    pub(super) fn next_of_cut(&mut self, state: &mut State) -> Option<Job> {
        let making = self.making.as_mut()?;
        let work = match &mut making.stage {
            _ if making.more => Some(Work::More),
            Stage::Walk => {
                let mut rows = std::mem::take(&mut making.pending);
                match state.walk_cut(LOOKS_MAX, &mut rows) {
                    Walked::More => {}
                    Walked::All => making.stage = Stage::Messages,
                    Walked::GivenUp => {
                        self.abandon(state, "too many messages went while it was written");
                        return None;
                    }
                }
                Some(Work::Rows(rows))
            }
            Stage::Messages => {
                let wanted = making.cutting.as_ref().and_then(|cutting| cutting.wanted());
                let sought = wanted.map_or(Sought::Nowhere, |wanted| state.log().heads(wanted, making.position));
                match sought {
                    Sought::Here(request) => Some(Work::Messages(request)),
                    Sought::Later => return None,
                    // What is not in the log any more has no row: that is for the audit to say.
                    Sought::Nowhere => {
                        making.stage = Stage::Checkpoint(making.position);
                        return self.next_of_cut(state);
                    }
                }
            }
            Stage::Checkpoint(at) => match state.log().heads(*at, making.checkpoint_end.plus(1)) {
                Sought::Here(request) => {
                    *at = request.to;
                    Some(Work::Checkpoint(request))
                }
                Sought::Later => return None,
                Sought::Nowhere => {
                    making.stage = Stage::Events;
                    return self.next_of_cut(state);
                }
            },
            // The cut is whole last, so that a file of one means that its events are there.
            Stage::Events if state.log().settled() <= making.checkpoint_end => return None,
            Stage::Events if self.distilled < making.position && self.claims => return self.distill_next(state),
            Stage::Events => Some(Work::Finish(std::mem::take(&mut making.ending))),
        };
        let cutting = self.making.as_mut()?.cutting.take()?;
        work.map(|work| Job::Cut(cutting, work))
    }

    /// Gives up the cut that is being written.
    pub(super) fn abandon(&mut self, state: &mut State, why: &str) {
        state.drop_cut();
        state.remove_reader(CUT);
        if let Some(making) = self.making.take() {
            self.trash.push(name(Kind::Cut, making.number));
            self.failed = Some(why.to_owned());
            self.end_without_chain(state);
        }
    }

    pub(super) fn cut_goes_on(&mut self, state: &mut State, cutting: Box<Cutting>, is_done: bool) {
        let is_too_large = cutting.bytes() > self.bounds.bytes_max;
        match &mut self.making {
            Some(_) if is_too_large => self.abandon(state, "it takes more space than it may"),
            Some(making) => (making.cutting, making.more) = (Some(cutting), !is_done),
            None => self.trash.push(name(Kind::Cut, cutting.number())),
        }
    }
}
