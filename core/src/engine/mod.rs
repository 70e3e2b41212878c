//! Connections, sessions, producers and consumers over the state: the layer that speaks the wire contract.
//!
//! [`engine::Engine`] is the facade; its documentation says how a host drives it. Below it there is [`crate::state`],
//! which knows what messages are and where they wait; above it a host with sockets, clocks and threads. Left out here:
//! who may do what (the host answers tickets), configuration (the host tells the state), and everything about gRPC.

mod acknowledge;
mod arriving;
mod configuring;
mod confirms;
mod connection;
mod consumer;
mod consuming;
mod damaged;
mod dispatch;
#[allow(clippy::module_inception)]
mod engine;
pub mod errors;
mod failure;
mod figures;
pub mod frames;
mod greeting;
mod intake;
mod kept_uploads;
mod limits;
mod message_ids;
mod naming;
mod output;
mod overdue;
mod owed;
mod postponed;
mod producer;
mod producing;
mod publishing;
mod purging;
mod receivers;
mod reconfiguring;
mod seen;
mod session;
mod stalling;
mod statistics;
mod stream;
mod subscribing;
mod temporaries;
mod tickets;
mod transact;
mod transactions;
mod unused;
mod uploads;
mod withdrawn;

#[cfg(test)]
mod tests;

pub use configuring::{BrokerTotals, Change, Configuration, Configured, DurableDefinition, Totals};
pub use engine::{Engine, Polled};
pub use errors::{Refused, of_state, refuse};
pub use figures::{Figures, Histogram};
pub use greeting::{PROTOCOL_VERSION, hexadecimal};
pub use limits::{Limits, Settings};
pub use reconfiguring::Changes;
pub use statistics::{ConnectionRow, Counts};
pub use tickets::{Answer, Purpose, Question, TicketRequest};

use crate::proto::{DestinationKind, ErrorCode};
use crate::state::Kind;

/// A kind of destination as frames carry it.
#[must_use]
pub fn wire_kind(kind: Kind) -> i32 {
    match kind {
        Kind::Queue => DestinationKind::Queue.into(),
        Kind::Topic => DestinationKind::Topic.into(),
    }
}

/// A kind of destination as the state knows it.
fn state_kind(kind: i32) -> Result<Kind, Refused> {
    match DestinationKind::try_from(kind) {
        Ok(DestinationKind::Queue) => Ok(Kind::Queue),
        Ok(DestinationKind::Topic) => Ok(Kind::Topic),
        _ => Err(refuse(
            ErrorCode::InvalidArgument,
            "destination.kind",
            "A destination is a QUEUE or a TOPIC.",
        )),
    }
}
