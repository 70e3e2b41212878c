//! Taking messages in: where a message goes is decided here, then logged in its head, then applied.
//!
//! A plan is made first (which subscriptions and bridges want it, which limits it meets), so that a refused message leaves
//! no trace. Then room is made where the policy is to discard, the message is stored once, and its references are added.

use smallvec::SmallVec;

use crate::log::{AppendError, Position, Purpose};
use crate::message::MessageView;
use crate::proto::DeliveryMode;

use super::asking::{names_sender, needs_responder, preserves};
use super::catalogue::{Destination, Match, Unwanted};
use super::catalogue_record::kinds;
use super::ending::Discards;
use super::error::PublishError;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, Tx};
use super::message_record::{COPIES_MAX, MessageCopy, MessageHead, Reference};
use super::planted::Fault;
use super::records::check_appended;
use super::refusals::Refusal;
use super::room::{Room, refuses, room};
use super::selecting::{Circumstances, wants};
use super::source::Source;
use super::terminal_record::Reason;

/// A message as it comes from a producer.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The message.
    pub view: &'a MessageView<'a>,
    /// The body that was uploaded for it; empty for messages that carry theirs.
    pub uploaded: &'a [u8],
    /// Its producer; 0: none that could send it again.
    pub incarnation: u64,
    /// The producer's number for it.
    pub sequence: u64,
    /// The connection it came on, for noLocal of non-durable subscriptions.
    pub connection: u64,
    /// The connection's client id, for noLocal of durable ones.
    pub client_id: &'a str,
    /// The connection's user, for destinations whose messages name their sender; empty: anonymous.
    pub user: &'a str,
    /// The transaction it belongs to.
    pub transaction: Option<Tx>,
    /// Its number may have been sent before: by its producer before that came back.
    pub may_be_again: bool,
}

impl Incoming<'_> {
    /// What it takes in a store: an uploaded body counts like one that the message carries.
    fn stored_bytes(&self) -> u64 {
        (self.view.bytes().len() + self.uploaded.len()) as u64
    }
}

/// How safe a message is when its confirmation leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Durability {
    /// In memory.
    #[default]
    Accepted,
    /// On this broker's disk.
    Durable,
}

/// A message that was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accepted {
    /// What its confirmation may say, once `wait_for` is committed.
    pub durability: Durability,
    /// The confirmation waits until [`State::committed`] is above this.
    pub wait_for: Option<Position>,
    /// It had arrived before: nothing was stored.
    pub duplicate: bool,
}

/// A source that has to make room, and for how many copies of the message.
#[derive(Clone, Copy, Debug)]
struct Discarding {
    source: SourceId,
    destination: DestinationId,
    copies: u64,
}

/// Room for plans, used again and again.
#[derive(Debug, Default)]
pub(super) struct Planning {
    head: MessageHead,
    /// References that no record names.
    unlogged: SmallVec<[Reference; 4]>,
    /// Sources that must make room first.
    discarding: SmallVec<[Discarding; 2]>,
    sync: bool,
    /// Somebody consumes where a copy comes to.
    consumed: bool,
}

impl Planning {
    /// Adds a reference in one source, as its limits allow.
    fn add(
        &mut self,
        copy: u8,
        source: &Source,
        destination: &Destination,
        incoming: &Incoming<'_>,
    ) -> Result<(), PublishError> {
        let (bytes, delayed) = (incoming.stored_bytes(), self.head.delay_ms > 0);
        let others = self.copies_in(source.id);
        match room(source, &destination.properties, (bytes, others), delayed) {
            Room::Enough => {}
            Room::AfterDiscarding if incoming.transaction.is_none() => {
                let known = self.discarding.iter_mut().find(|known| known.source == source.id);
                match known {
                    Some(known) => known.copies = others + 1,
                    None => self.discarding.push(Discarding {
                        source: source.id,
                        destination: destination.id,
                        copies: others + 1,
                    }),
                }
            }
            // A transaction's messages take effect later: room is made then.
            Room::AfterDiscarding => {}
            Room::Full(limit) if refuses(&destination.properties, destination.kind, delayed) => {
                let name = destination.name.as_str().to_owned();
                return Err(PublishError::DestinationFull { name, limit });
            }
            Room::Full(_) => return Ok(()),
        }
        self.consumed |= source.consumers > 0;
        let reference = Reference {
            copy,
            source: source.id,
            sequence: source.next_sequence,
        };
        if incoming.view.delivery_mode() == DeliveryMode::Persistent && source.logged {
            self.head.references.push(reference);
        } else {
            self.unlogged.push(reference);
        }
        Ok(())
    }
}

impl Planning {
    /// How many copies of the message are to come into a source already: bridges may lead into one by several ways.
    fn copies_in(&self, id: SourceId) -> u64 {
        // Without bridges a source stands once; looking for it would make wide topics slow.
        if self.head.copies.len() < 2 {
            return 0;
        }
        let references = self.head.references.iter().chain(&self.unlogged);
        references.filter(|reference| reference.source == id).count() as u64
    }
}

impl State {
    /// Takes a message in, or says why not. Nothing is confirmed yet: see [`Accepted::wait_for`].
    ///
    /// # Errors
    /// Why the message is refused; nothing of it is kept.
    pub fn publish(&mut self, to: DestinationId, incoming: &Incoming<'_>) -> Result<Accepted, PublishError> {
        if incoming.incarnation != 0
            && let Some(last) = self.tables.producers.last(incoming.incarnation, to)
            && incoming.sequence <= last.sequence
            && !self.was_refused(to, incoming)?
        {
            // The last number was logged, but this one may have been in memory only.
            let persistent = incoming.view.delivery_mode() == DeliveryMode::Persistent;
            let durability = if persistent && last.position != Position::ZERO {
                Durability::Durable
            } else {
                Durability::Accepted
            };
            let wait_for = (last.position >= self.tables.committed).then_some(last.position);
            self.witness.duplicate(to.source());
            return Ok(Accepted {
                durability,
                wait_for,
                duplicate: true,
            });
        }
        // What was known of its producer when that came back may have left the table since.
        if incoming.may_be_again
            && self.tables.producers.may_have_forgotten(incoming.incarnation)
            && self.tables.producers.last(incoming.incarnation, to).is_none()
        {
            return Err(PublishError::UnknownProducer);
        }
        if self.tables.planted.loses(incoming) {
            return Ok(Accepted {
                durability: Durability::Durable,
                ..Accepted::default()
            });
        }
        let mut planning = std::mem::take(&mut self.planning);
        let mut result = self
            .plan(&mut planning, to, incoming)
            .and_then(|()| self.store(&mut planning, to, incoming));
        if result.is_ok() && self.tables.planted.hits(Fault::DoubleMessage, &planning.head) {
            result = self
                .plan(&mut planning, to, incoming)
                .and_then(|()| self.store(&mut planning, to, incoming));
        }
        self.planning = planning;
        if let (Err(error), Some(tx)) = (&result, incoming.transaction) {
            // All or nothing: with this message missing the transaction can only be rolled back (EMS-TX-A02).
            let id = self.tables.transactions.begin(tx, self.log.epoch());
            let transaction = self.tables.transactions.entry(id);
            transaction.failed.get_or_insert_with(|| error.to_string());
        }
        result
    }

    /// Whether a number below the highest that arrived was refused, and so is new.
    fn was_refused(&self, to: DestinationId, incoming: &Incoming<'_>) -> Result<bool, PublishError> {
        let producers = &self.tables.producers;
        match producers.refusal(incoming.incarnation, to, incoming.sequence) {
            Refusal::None => Ok(false),
            Refusal::Refused => Ok(true),
            Refusal::Unknown => Err(PublishError::UnknownProducer),
        }
    }

    /// Notes that a message was refused, by this layer or by the one above: should its number come again, it is new, unless
    /// it had arrived before, or that cannot be told: it may be sent again here, and its producer was forgotten.
    pub fn note_refused(&mut self, to: DestinationId, incarnation: u64, sequence: u64, may_be_again: bool) {
        let producers = &mut self.tables.producers;
        if incarnation == 0 {
            return;
        }
        if may_be_again && producers.may_have_forgotten(incarnation) && producers.last(incarnation, to).is_none() {
            producers.doubt(incarnation, to, sequence);
        } else {
            producers.note_refused(incarnation, to, sequence);
        }
    }

    /// Notes that a producer passes over some numbers, above all that has arrived of it: should they come, they are new.
    pub fn note_skipped(&mut self, to: DestinationId, incarnation: u64, first: u64, last: u64) {
        self.tables.producers.note_skipped(incarnation, to, first, last);
    }

    /// Notes that a message was refused before it was known where it goes, and may have arrived somewhere before that.
    pub fn note_doubtful(&mut self, incarnation: u64, sequence: u64) {
        if incarnation != 0 {
            self.tables.producers.note_doubtful(incarnation, sequence);
        }
    }

    fn plan(
        &mut self,
        planning: &mut Planning,
        to: DestinationId,
        incoming: &Incoming<'_>,
    ) -> Result<(), PublishError> {
        let Planning {
            head,
            unlogged,
            discarding,
            sync,
            consumed,
        } = planning;
        head.clear();
        unlogged.clear();
        discarding.clear();
        (*sync, *consumed) = (false, false);
        let view = incoming.view;
        head.priority = view.priority();
        head.arrived_ms = self.tables.now.wall_ms;
        head.time_to_live_ms = view.time_to_live_ms();
        head.delay_ms = view.delivery_delay_ms();
        head.incarnation = incoming.incarnation;
        head.sequence = incoming.sequence;
        head.refused = self
            .tables
            .producers
            .refused_before(incoming.incarnation, to, incoming.sequence);
        head.preserve = preserves(view);
        self.tables.catalogue.refresh_routes(to);
        self.plan_copy(planning, to, incoming, None)?;
        self.plan_bridges(planning, to, incoming)?;
        if !planning.head.references.is_empty() {
            self.begin_delaying(planning.head.delay_ms);
        }
        if planning.consumed || !needs_responder(view) {
            return Ok(());
        }
        match self.tables.catalogue.destination(to) {
            Some(Destination { kind, name, .. }) => Err(PublishError::NoResponders {
                kind: *kind,
                name: name.as_str().to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// Adds the copies that bridges make.
    fn plan_bridges(
        &mut self,
        planning: &mut Planning,
        to: DestinationId,
        incoming: &Incoming<'_>,
    ) -> Result<(), PublishError> {
        let view = incoming.view;
        let bridges = match self.tables.catalogue.destination(to) {
            Some(destination) if !destination.routes.bridges.is_empty() => destination.routes.bridges.clone(),
            _ => return Ok(()),
        };
        for target in bridges {
            if let Some(selector) = &target.selector {
                let known = Circumstances {
                    broker: &self.broker,
                    starts: &self.tables.starts,
                    arrived_ms: planning.head.arrived_ms,
                    id: (incoming.incarnation, incoming.sequence),
                    origin: None,
                    sender: planning.head.sender(0),
                    delivery_count: 0,
                };
                if !wants(selector, view, &known) {
                    continue;
                }
            }
            let Some(id) = self.tables.catalogue.id_of(target.kind, target.name.as_str()) else {
                let name = target.name.as_str().to_owned();
                return Err(PublishError::NoSuchDestination {
                    kind: target.kind,
                    name,
                });
            };
            if self.tables.planted.hits(Fault::MissBridge, &planning.head) {
                continue;
            }
            self.bridged += 1;
            self.tables.catalogue.refresh_routes(id);
            self.plan_copy(planning, id, incoming, Some((self.bridge_incarnation, self.bridged)))?;
        }
        Ok(())
    }

    /// Adds one destination's copy to the plan, with the references of whoever wants it.
    fn plan_copy(
        &mut self,
        planning: &mut Planning,
        to: DestinationId,
        incoming: &Incoming<'_>,
        own_id: Option<(u64, u64)>,
    ) -> Result<(), PublishError> {
        let Some(destination) = self.tables.catalogue.destination(to) else {
            return Err(PublishError::NoSuchDestination {
                kind: Kind::Queue,
                name: to.0.to_string(),
            });
        };
        let name = destination.name.as_str();
        let copies = planning.head.copies.len();
        if copies >= COPIES_MAX {
            return Err(PublishError::TooManyCopies(COPIES_MAX - 1, name.to_owned()));
        }
        let copy = copies as u8;
        let expiration_ms = destination.properties.expiration_ms;
        let names_sender = names_sender(&destination.properties, incoming.user, incoming.view);
        if names_sender && planning.head.sender.is_empty() {
            planning.head.sender = incoming.user.into();
        }
        planning.head.copies.push(MessageCopy {
            destination: to,
            own_id,
            expiration_ms,
            names_sender,
        });
        let store = self.tables.stores.get(destination.store);
        let bytes = incoming.stored_bytes();
        if store.quota_bytes > 0 && store.bytes + bytes > store.quota_bytes {
            return Err(PublishError::StoreFull(store.name.clone()));
        }
        let before = planning.head.references.len();
        match destination.kind {
            Kind::Queue => {
                if let Some(source) = self.tables.sources.get(&to.source()) {
                    planning.add(copy, source, destination, incoming)?;
                }
            }
            Kind::Topic => {
                let known = Circumstances {
                    broker: &self.broker,
                    starts: &self.tables.starts,
                    arrived_ms: self.tables.now.wall_ms,
                    id: own_id.unwrap_or((incoming.incarnation, incoming.sequence)),
                    origin: None,
                    sender: if names_sender { incoming.user } else { "" },
                    delivery_count: 0,
                };
                for found in &destination.routes.subscriptions {
                    if is_wanted(found, incoming, &known)
                        && let Some(source) = self.tables.sources.get(&found.source)
                    {
                        planning.add(copy, source, destination, incoming)?;
                    }
                }
            }
        }
        planning.sync |= planning.head.references.len() > before && store.sync;
        Ok(())
    }

    fn store(
        &mut self,
        planning: &mut Planning,
        to: DestinationId,
        incoming: &Incoming<'_>,
    ) -> Result<Accepted, PublishError> {
        let together: Vec<u8>;
        let payload = if incoming.uploaded.is_empty() {
            incoming.view.bytes()
        } else {
            planning.head.message_bytes = incoming.view.bytes().len() as u64;
            together = [incoming.view.bytes(), incoming.uploaded].concat();
            &together
        };
        self.number_references(planning);
        let logged = !planning.head.references.is_empty();
        if !logged && !planning.unlogged.is_empty() && self.tables.volatile.is_full() {
            return Err(PublishError::VolatileFull);
        }
        // A failed log takes nothing more in, whatever it is for.
        if let Some(why) = self.log.failed() {
            return Err(AppendError::Failed(why.to_owned()).into());
        }
        if let Some(tx) = incoming.transaction {
            planning.head.transaction = self.tables.transactions.begin(tx, self.log.epoch());
        }
        if logged {
            // Here alone, before the head's length is asked for: however many copies, one sum. In memory nothing asks for it.
            planning.head.checksum = Some(incoming.view.body().checksum(incoming.uploaded));
            self.tables.planted.spoil(&mut planning.head);
            self.tables.misdirect(&mut planning.head);
        }
        let discarding = std::mem::take(&mut planning.discarding);
        let chosen = self.choose_for(&planning.head, &discarding, payload.len() as u64, logged)?;
        self.head_buffer.clear();
        planning.head.encode(&mut self.head_buffer).map_err(AppendError::from)?;
        check_appended(kinds::MESSAGE, &self.head_buffer).map_err(AppendError::from)?;
        let position = if logged {
            self.log.append(kinds::MESSAGE, &self.head_buffer, payload)?
        } else if planning.unlogged.is_empty() {
            // Nobody wants it: nothing is stored (EMS-STORE-A03), but its number is known.
            if incoming.incarnation != 0 {
                let producers = &mut self.tables.producers;
                producers.arrive_unlogged(incoming.incarnation, to, incoming.sequence, &planning.head.refused);
            }
            self.witness.unwanted(to.source());
            self.count_published(planning, payload.len() as u64);
            return Ok(Accepted {
                durability: Durability::Accepted,
                wait_for: None,
                duplicate: false,
            });
        } else {
            self.tables.volatile.append(&self.head_buffer, payload)
        };
        self.tables.apply_message(
            &mut self.log,
            position,
            payload.len() as u32,
            &planning.head,
            &planning.unlogged,
        );
        self.witness.arrived(&planning.head, &planning.unlogged);
        // Behind the message: a crash in between leaves both, never neither.
        for (source, discarded) in &chosen {
            self.discard(*source, discarded)?;
        }
        self.count_published(planning, payload.len() as u64);
        if logged {
            self.reserve_ahead(planning)?;
        }
        Ok(Accepted {
            durability: if planning.sync {
                Durability::Durable
            } else {
                Durability::Accepted
            },
            wait_for: planning.sync.then_some(position),
            duplicate: false,
        })
    }

    /// What makes room for a message, where the policy is to discard: in all sources or, if the message or the end of what it
    /// takes the place of finds no room in the log, in none.
    fn choose_for(
        &mut self,
        head: &MessageHead,
        discarding: &[Discarding],
        bytes: u64,
        logged: bool,
    ) -> Result<SmallVec<[(SourceId, Discards); 2]>, AppendError> {
        if discarding.is_empty() {
            return Ok(SmallVec::new());
        }
        let chosen: SmallVec<[_; 2]> = discarding
            .iter()
            .map(|one| {
                let chosen = self.choose_discards(one.source, one.destination, (one.copies, bytes));
                (one.source, chosen)
            })
            .collect();
        let mut lengths = Vec::new();
        let mut room = Ok(());
        if logged {
            self.head_buffer.clear();
            room = head.encode(&mut self.head_buffer).map_err(AppendError::from);
            lengths.push(self.head_buffer.len() as u64 + bytes);
        }
        for (source, discarded) in &chosen {
            let heads = self.ending_heads(*source, discarded, Reason::Discarded, "");
            room = room.and_then(|()| self.add_lengths(&heads, &mut lengths));
        }
        // Nothing is discarded for a message that then finds no room itself, and none of it takes from the reserve.
        if logged {
            room = room.and_then(|()| self.log.check_room(&lengths, Purpose::Fill));
        }
        // The ends leave alone what is kept for upkeep, of which publishing knows nothing where there is no reserve yet.
        match room.and_then(|()| self.log.check_room(&lengths, Purpose::Drain)) {
            Ok(()) => Ok(chosen),
            Err(error) => {
                for (source, discarded) in &chosen {
                    self.spare(*source, discarded);
                }
                Err(error)
            }
        }
    }

    /// Gives the references their numbers: two copies may meet in one source.
    fn number_references(&mut self, planning: &mut Planning) {
        let Planning { head, unlogged, .. } = planning;
        if head.references.len() + unlogged.len() < 2 {
            return;
        }
        let mut given: SmallVec<[(SourceId, u64); 8]> = SmallVec::new();
        for reference in head.references.iter_mut().chain(unlogged.iter_mut()) {
            match given.iter_mut().find(|(source, _)| *source == reference.source) {
                Some((_, next)) => {
                    reference.sequence = *next;
                    *next += 1;
                }
                // Without bridges a source stands once; looking for it would make wide topics slow.
                None if head.copies.len() > 1 => given.push((reference.source, reference.sequence + 1)),
                None => {}
            }
        }
    }

    fn count_published(&mut self, planning: &Planning, bytes: u64) {
        self.totals.published_total += 1;
        for copy in &planning.head.copies {
            if let Some(destination) = self.tables.catalogue.destination_mut(copy.destination) {
                destination.published_total += 1;
                destination.published_bytes_total += bytes;
            }
        }
    }

    /// Raises the redelivery watermarks of consumed sources together with the messages, so that deliveries need not wait.
    fn reserve_ahead(&mut self, planning: &Planning) -> Result<(), PublishError> {
        for reference in &planning.head.references {
            let Some(source) = self.tables.sources.get(&reference.source) else {
                continue;
            };
            // Behind a backlog it is delivering that reserves; covering the backlog here would flag all of it after a crash.
            let next_in_line = reference.sequence < source.delivered_below + self.redelivery_reserve;
            let uncovered = reference.sequence + self.redelivery_reserve / 2 > source.watermark.logged;
            if source.consumers > 0 && next_in_line && uncovered {
                // The message is stored; a watermark that cannot be is tried again when it is needed.
                if self.reserve(reference.source, reference.sequence).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn is_wanted(found: &Match, incoming: &Incoming<'_>, known: &Circumstances<'_>) -> bool {
    let local = match &found.unwanted {
        Unwanted::Nobody => false,
        Unwanted::Connection(connection) => *connection == incoming.connection,
        Unwanted::Client(client_id) => **client_id == *incoming.client_id,
    };
    !local
        && found
            .selector
            .as_ref()
            .is_none_or(|selector| wants(selector, incoming.view, known))
}
