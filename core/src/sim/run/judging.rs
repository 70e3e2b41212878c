//! What is wrong by itself, without looking at the rest of the history: errors that no client caused, answers that deny what
//! was sent, sights of what is not there. A client calls these with what it hears.

use super::env::Env;
use crate::proto::{self, ErrorCode};
use crate::sim::facts::{Key, Message, Mode, PlaceId, Sort, TxId};
use crate::sim::history::Event;

/// What a browser sees is there: it was sent, to this place, like that, and nothing of an open transaction.
pub fn look(env: &mut Env, place: PlaceId, recognised: Option<(Key, bool)>) {
    let facts = &env.history.facts;
    let right = recognised.is_some_and(|(key, intact)| {
        let undecided = facts
            .message(key)
            .transaction
            .is_some_and(|tx| !env.decided.contains(&tx));
        intact && facts.copies(key, place) > 0 && !undecided
    });
    if !right {
        let name = facts.place(place).name.clone();
        env.complaints
            .push(format!("a browser of {name} saw what was not there: {recognised:?}"));
    }
}

/// The broker says that there is nothing in a transaction. What was acknowledged in it may be gone; a message may not.
pub fn held_nothing(env: &mut Env, tx: TxId) {
    // To a topic, nobody may have subscribed.
    let kept = |message: &Message| message.mode == Mode::Persistent && message.sort == Sort::Queue;
    let sent = |message: &Message| message.transaction == Some(tx) && kept(message);
    if env.history.facts.messages.iter().any(sent) {
        env.complaints
            .push(format!("{tx:?} has messages, and was answered as if it had none"));
    }
    env.note(Event::RolledBack(tx));
}

/// Errors that a well-behaved client may meet. Any other is a defect.
pub fn check_code(env: &mut Env, error: Option<&proto::Error>) {
    use ErrorCode as Code;
    let Some(error) = error else { return };
    let expected = matches!(
        error.code(),
        Code::InUse
            | Code::ClientIdInUse
            | Code::StoreFull
            | Code::DestinationFull
            | Code::TransactionRolledBack
            | Code::UnknownProducer
            | Code::StoreFailed
            | Code::Idle
            | Code::SlowConsumer
            | Code::NoSuchSubscription
            | Code::Unavailable
    );
    // A link of before may have opened it once more.
    let expected = expected || (error.code() == Code::Conflict && error.subject == "name");
    if !expected {
        env.complaints.push(format!(
            "unexpected error {:?} of {}: {}",
            error.code(),
            error.subject,
            error.message
        ));
    }
}
