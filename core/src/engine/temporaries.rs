//! Names: temporary destinations, and looking names up.
//!
//! A temporary destination belongs to the connection that made it: only that may consume from it, everybody may send to
//! it, and it ends with the connection (EMS-DEST-A03, EMS-CLI-A28).

use super::engine::Engine;
use super::errors::{of_state, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::tickets::name_excerpt;
use crate::name::{DestinationName, TEMPORARY_PREFIX};
use crate::proto::reply::Result as Answered;
use crate::proto::{self, ErrorCode, lookup};
use crate::state::{DestinationId, Kind, Origin, Properties};

impl Engine {
    /// What temporary destinations get, those that are there and those that will be (EMS-DEST-A39).
    pub(super) fn configure_temporaries(&mut self, given: Vec<(Kind, Properties)>) {
        for (kind, properties) in given {
            let all = self.state.catalogue().destinations();
            let mut there: Vec<DestinationId> = all
                .filter(|found| found.origin == Origin::Temporary && found.kind == kind)
                .map(|found| found.id)
                .collect();
            there.sort_unstable();
            for id in there {
                self.state.configure_destination(id, properties.clone());
            }
            self.temporary_properties[usize::from(kind == Kind::Topic)] = Some(properties);
        }
    }

    pub(super) fn create_temporary(&mut self, stream: u64, kind: i32) -> Handled {
        let kind = super::state_kind(kind)?;
        let limit = self.settings.limits.temporaries;
        let Some(key) = self.streams.get(&stream).and_then(|stream| stream.connection) else {
            return Ok(Outcome::Done);
        };
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(Outcome::Done);
        };
        if connection.temporaries.len() >= limit as usize {
            let what = "A connection may not make more temporary destinations";
            return Err(over_limit("temporaries", u64::from(limit), what));
        }
        connection.temporary_next += 1;
        // The epoch keeps names apart over restarts; the broker's name must not bring dots or wildcards with it.
        let broker: String = self
            .settings
            .broker
            .chars()
            .take(64)
            .map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' })
            .collect();
        let name = format!(
            "{TEMPORARY_PREFIX}{broker}.{:x}-{key:x}.{}",
            self.state.epoch(),
            connection.temporary_next
        );
        let name = DestinationName::parse(&name)
            .map_err(|error| refuse(ErrorCode::Internal, "temporary", format!("{error}.")))?;
        let prefetch = if kind == Kind::Queue { 5 } else { 64 };
        let configured = self.temporary_properties[usize::from(kind == Kind::Topic)].clone();
        let properties = configured.unwrap_or_else(|| Properties {
            prefetch,
            ..Properties::default()
        });
        let id = self
            .state
            .ensure_destination(kind, &name, Origin::Temporary, properties)
            .map_err(|error| of_state(&error))?;
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.temporaries.push(id);
        }
        let destination = proto::Destination {
            kind: super::wire_kind(kind),
            name: name.as_str().to_owned(),
        };
        let created = proto::TemporaryCreated {
            destination: Some(destination),
        };
        Ok(Outcome::Answer(Answered::TemporaryCreated(created)))
    }

    pub(super) fn delete_temporary(&mut self, stream: u64, frame: &proto::DeleteTemporary) -> Handled {
        let Some(destination) = &frame.destination else {
            return Err(refuse(
                ErrorCode::InvalidArgument,
                "destination",
                "Which destination is to be deleted?",
            ));
        };
        let kind = super::state_kind(destination.kind)?;
        let name = &destination.name;
        let id = self.state.destination(kind, name).map(|found| found.id);
        let key = self.streams.get(&stream).and_then(|stream| stream.connection);
        let connection = key.and_then(|key| self.connections.get_mut(&key));
        let (Some(id), Some(connection)) = (id, connection) else {
            let message = format!("There is no {kind} named {name}.");
            return Err(refuse(ErrorCode::NoSuchDestination, name_excerpt(name), message));
        };
        let Some(index) = connection.temporaries.iter().position(|&own| own == id) else {
            let message = "Only the connection that made a temporary destination may delete it.";
            return Err(refuse(ErrorCode::NotAllowed, name_excerpt(name), message));
        };
        if self.has_consumers(id) {
            let message = format!("The temporary destination {name} has an active consumer.");
            return Err(refuse(ErrorCode::InUse, name_excerpt(name), message));
        }
        if let Some(connection) = key.and_then(|key| self.connections.get_mut(&key)) {
            connection.temporaries.remove(index);
        }
        self.end_temporary(id);
        Ok(Outcome::Done)
    }

    fn has_consumers(&self, id: DestinationId) -> bool {
        self.consumers
            .values()
            .any(|consumer| consumer.destination == Some(id) && consumer.browsing.is_none())
    }

    fn end_temporary(&mut self, id: DestinationId) {
        let reason = refuse(
            ErrorCode::NoSuchDestination,
            "temporary",
            "The temporary destination was deleted.",
        );
        self.close_consumers_of(id.source(), &reason, false);
        // It is in memory only, and with its messages: nothing can keep it.
        let _ = self.state.delete_destination(id, true, "client");
    }

    /// Ends the temporary destinations of a connection that ends.
    pub(super) fn end_temporaries(&mut self, key: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        for id in std::mem::take(&mut connection.temporaries) {
            self.end_temporary(id);
        }
    }

    pub(super) fn lookup(&mut self, stream: u64, frame: &proto::Lookup) -> Handled {
        match &frame.what {
            None => Err(refuse(ErrorCode::InvalidArgument, "what", "What is to be looked up?")),
            Some(lookup::What::Destination(destination)) => {
                let kind = super::state_kind(destination.kind)?;
                let Some(found) = self.state.destination(kind, &destination.name) else {
                    let message = format!("There is no {kind} named {}.", name_excerpt(&destination.name));
                    return Err(refuse(
                        ErrorCode::NoSuchDestination,
                        name_excerpt(&destination.name),
                        message,
                    ));
                };
                Ok(Outcome::Answer(Answered::LookedUp(proto::LookedUp {
                    destination_id: found.id.0,
                    generation: found.generation,
                    is_static: matches!(found.origin, Origin::Static | Origin::System),
                    prefetch: found.properties.prefetch,
                    upload_bytes: 0,
                })))
            }
            Some(lookup::What::Upload(upload)) => {
                let connection = self.streams.get(&stream).and_then(|stream| stream.connection);
                let connection = connection.and_then(|key| self.connections.get(&key));
                let producer = connection.and_then(|connection| connection.producers.get(&upload.producer));
                let Some(producer) = producer.and_then(|key| self.producers.get(key)) else {
                    let subject = format!("producer {}", upload.producer);
                    return Err(refuse(
                        ErrorCode::Closed,
                        subject,
                        "The connection has no such producer.",
                    ));
                };
                let upload_bytes = producer
                    .uploads
                    .bodies
                    .get(&upload.upload_id)
                    .map_or(0, |body| body.bytes.len() as u64);
                Ok(Outcome::Answer(Answered::LookedUp(proto::LookedUp {
                    upload_bytes,
                    ..Default::default()
                })))
            }
        }
    }
}
