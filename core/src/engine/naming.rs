//! Producers with a name of the application's own: one program at a time has it, and goes on with its numbers.
//!
//! The later opening takes over, as a program that was started again must not wait until the broker gives its dead link
//! up. The earlier is told, and has nothing to come back with: its token names another opening.

use super::engine::Engine;
use super::errors::{Refused, of_state, refuse};
use crate::proto::{self, AcknowledgeMode, ErrorCode};
use crate::state::{DestinationId, NameError, Named, PRODUCER_NAME_CHARS_MAX, State};

/// Whose name it is, the name, and where.
pub type Name = (String, String, DestinationId);

impl Engine {
    /// Whether a producer may have the name that it asks for.
    pub(super) fn check_name(&self, session: u64, open: &proto::OpenProducer) -> Result<(), Refused> {
        if open.name.is_empty() {
            return Ok(());
        }
        if open.name.chars().count() > PRODUCER_NAME_CHARS_MAX || open.name.chars().any(char::is_control) {
            let message = format!(
                "A producer's name has at most {PRODUCER_NAME_CHARS_MAX} characters, none of them a control character."
            );
            return Err(refuse(ErrorCode::InvalidName, "name", message));
        }
        if open.destination.is_none() {
            let message = "A producer with a name is bound to a destination: its numbers are kept there.";
            return Err(refuse(ErrorCode::InvalidArgument, "name", message));
        }
        let transacted = |session: &super::session::Session| session.mode == AcknowledgeMode::Transacted;
        if self.sessions.get(&session).is_some_and(transacted) {
            // A number of a transaction that is rolled back has been used and is not stored.
            let message =
                "A producer of a transacted session has no name: what is sent again is decided by its transactions.";
            return Err(refuse(ErrorCode::NotAllowed, "name", message));
        }
        Ok(())
    }

    /// Opens a name, or goes on with it after a link broke. Whoever had it open is told.
    pub(super) fn open_by_name(
        &mut self,
        open: &proto::OpenProducer,
        destination: DestinationId,
        user: &str,
    ) -> Result<Named, Refused> {
        if !State::may_have_named_producers(destination) {
            let message = "A temporary destination ends with its connection, and its producers have no names.";
            return Err(refuse(ErrorCode::NotAllowed, "name", message));
        }
        let named = if open.incarnation == 0 {
            self.state
                .open_named(user, &open.name, destination, open.unknown_is_new)
                .map_err(|error| of_name(&error))?
        } else {
            self.same_opening(open, destination, user)?
        };
        // Also one of another incarnation: the broker may have had to forget the name while that was open.
        let name = (user.to_owned(), open.name.clone(), destination);
        if let Some(&earlier) = self.named.get(&name) {
            if open.incarnation != 0 {
                // It is the same that comes back, before the end of its stream is known.
                self.keep_uploads_of(earlier);
            }
            self.expel_producer(earlier, taken_over());
        }
        Ok(named)
    }

    /// A producer that comes back by its token: it is the one that opened the name last.
    fn same_opening(
        &self,
        open: &proto::OpenProducer,
        destination: DestinationId,
        user: &str,
    ) -> Result<Named, Refused> {
        let unknown = || {
            let message = "The broker does not know this opening of the name: its store is another one or an older copy, or it \
                           has forgotten the name.";
            refuse(ErrorCode::UnknownProducer, "name", message)
        };
        let shown = self.state.opening_of_token(&open.token, open.incarnation, user);
        let known = self.state.named_producer(user, &open.name, destination);
        match (shown, known.filter(|named| named.incarnation == open.incarnation)) {
            (Some(shown), Some(named)) if shown == named.opening => Ok(named),
            (Some(shown), Some(named)) if shown < named.opening => Err(taken_over()),
            _ => Err(unknown()),
        }
    }
}

fn taken_over() -> Refused {
    let message = "The producer of this name was opened again, by another connection or program: it is theirs now.";
    refuse(ErrorCode::Conflict, "name", message)
}

fn of_name(error: &NameError) -> Refused {
    match error {
        NameError::Forgotten => {
            let message =
                "The broker had to forget names of producers of this user: it cannot tell whether this one is new.";
            refuse(ErrorCode::UnknownProducer, "name", message)
        }
        NameError::State(error) => of_state(error),
    }
}
