//! Acknowledgements that found no room in the log.
//!
//! There is a reserve for them, but even that can be used up for a moment. What a client acknowledged, and what the broker
//! itself forgets once it is sent (mode NONE, EMS-CLI-A06), is done with all the same: it stays in flight, whatever becomes
//! of its consumer and session, and its end is logged as soon as there is room, in the order in which it was asked for. Who
//! asked is answered then. Only a restart before that brings a message back, flagged, as after any crash.

use super::engine::Engine;
use super::frames::Frame;
use super::intake::Outcome;
use super::session::session_of;
use crate::proto::reply::Result as Answered;
use crate::proto::{self, server_frame};
use crate::state::{SourceId, StateError};
use std::collections::VecDeque;

/// Whose deliveries are acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) enum Holder {
    /// All of a session's, by its key.
    Session(u64),
    /// One consumer's, by its key.
    Consumer(u64),
}

impl Holder {
    fn is(self, holder: u64) -> bool {
        match self {
            Self::Session(key) => session_of(holder) == key,
            Self::Consumer(key) => holder == key,
        }
    }

    const fn session(self) -> u64 {
        match self {
            Self::Session(key) => key,
            Self::Consumer(key) => key >> super::session::CONSUMER_BITS,
        }
    }
}

/// One that waits.
#[derive(Debug)]
struct Waiting {
    source: SourceId,
    holder: Holder,
    ranges: Vec<(u64, u64)>,
    /// The stream, the session's number and the request to be answered when it is logged.
    answer: Option<(u64, u32, u32)>,
}

/// All that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Owed(VecDeque<Waiting>);

impl Owed {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a delivery of a session is done with, so that nobody may give it back.
    pub fn contains(&self, session: u64, source: SourceId, sequence: u64) -> bool {
        self.0.iter().any(|one| {
            one.source == source
                && one.holder.session() == session
                && one
                    .ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&sequence))
        })
    }
}

impl Engine {
    /// Acknowledges what a holder has of a source, now or when there is room. Whether it was now.
    ///
    /// # Errors
    /// The log is finished.
    pub(super) fn acknowledge_or_owe(
        &mut self,
        source: SourceId,
        holder: Holder,
        ranges: &[(u64, u64)],
    ) -> Result<bool, StateError> {
        if self.owed.is_empty() {
            let acknowledged = self.state.acknowledge(source, ranges, |other| holder.is(other), None)?;
            self.acknowledged(holder.session(), acknowledged.count);
            if !acknowledged.short_of_room {
                return Ok(true);
            }
        }
        self.owed.0.push_back(Waiting {
            source,
            holder,
            ranges: ranges.to_vec(),
            answer: None,
        });
        Ok(false)
    }

    /// Answers a frame when what waits by now is logged.
    pub(super) fn answer_when_logged(&mut self, stream: u64, frame: &Frame<'_>) {
        if frame.request != 0
            && let Some(last) = self.owed.0.back_mut()
        {
            last.answer = Some((stream, frame.session, frame.request));
        }
    }

    /// Logs what could not be for want of room.
    pub(super) fn resume_owed(&mut self) {
        while let Some(one) = self.owed.0.pop_front() {
            let holder = one.holder;
            let result = self
                .state
                .acknowledge(one.source, &one.ranges, |other| holder.is(other), None);
            // Otherwise the log is finished, which is told by other means.
            if let Ok(acknowledged) = result {
                self.acknowledged(holder.session(), acknowledged.count);
                if acknowledged.short_of_room {
                    return self.owed.0.push_front(one);
                }
            }
            if let Some((stream, session, request)) = one.answer {
                let result = Some(Answered::Done(proto::Done {}));
                let reply = server_frame::Frame::Reply(proto::Reply { request, result });
                self.send_after_commit(stream, super::output::encoded(session, reply));
            }
        }
    }
}

/// How an acknowledging frame is answered: at once, or when all of it is logged.
pub(super) fn outcome(logged: bool) -> Outcome {
    if logged {
        Outcome::AnswerCommitted(Answered::Done(proto::Done {}))
    } else {
        Outcome::Owed
    }
}
