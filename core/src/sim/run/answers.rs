//! What a client does about answers to its requests, where that concerns one thing of a session.

use super::env::{Env, Prepared};
use super::judging::held_nothing;
use super::session::{Asked, Sending, Session};
use crate::proto::reply::Result as Answered;
use crate::proto::{self, ErrorCode};
use crate::sim::facts::TxId;
use crate::sim::history::Event;

/// A producer was opened. What could not go on from there is closed, and opened again when that is answered.
pub fn producer_opened(
    env: &mut Env,
    session: &mut Session,
    at: usize,
    opened: &proto::ProducerOpened,
) -> Vec<Sending> {
    let frames = session.producers[at].opened(env, opened);
    let closes = !session.producers[at].is_open();
    let asked = |frame| (frame, closes.then_some(Asked::CloseProducer(at)));
    frames.into_iter().map(asked).collect()
}

/// A producer was not opened: whether it asks again at once.
pub fn producer_refused(session: &mut Session, at: usize, code: Option<ErrorCode>) -> Vec<Sending> {
    match code {
        Some(ErrorCode::UnknownProducer) => session.producers[at].forgotten(),
        Some(ErrorCode::Conflict) => session.producers[at].taken_over(),
        _ => return Vec::new(),
    }
    vec![(session.producers[at].open_frame(), Some(Asked::Producer(at)))]
}

/// A consumer was opened, or refused.
pub fn consumer_answered(env: &mut Env, session: &mut Session, number: u32, refused: bool) {
    let Some(index) = session.consumers.iter().position(|consumer| consumer.number == number) else {
        return;
    };
    if refused {
        let consumer = session.consumers.remove(index);
        env.note(Event::ConsumerDown(consumer.id));
        env.note(Event::ConsumerGone(consumer.id));
        return;
    }
    let consumer = &mut session.consumers[index];
    consumer.open = true;
    env.note(Event::ConsumerUp(consumer.id));
    if let Some(place) = consumer.place {
        env.note(Event::PlaceUp(place));
    }
}

/// A transaction was prepared, or held nothing, or was rolled back.
pub fn prepare_answered(env: &mut Env, tx: TxId, result: Option<&Answered>) {
    match result {
        Some(Answered::Transacted(done)) if !done.read_only => {
            env.prepared.push(Prepared {
                tx,
                heard: true,
                decision: None,
            });
        }
        Some(Answered::Transacted(_)) => held_nothing(env, tx),
        _ => env.note(Event::RolledBack(tx)),
    }
}
