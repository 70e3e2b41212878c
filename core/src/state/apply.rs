//! What each record does to the tables. Live operation, recovery and a standby all come through here, so they cannot differ.

use crate::log::Position;
use crate::name::{DestinationName, Pattern};
use crate::selector::{Scope, Selector};

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::catalogue::{Subscription, Unwanted};
use super::catalogue_record::{DestinationHead, Origin, SubscriptionHead, TransactionHead, WatermarkHead, kinds};
use super::codec::HeadError;
use super::destroyed::DELETED;
use super::due::DueHead;
use super::exported::Exported;
use super::ids::{Kind, SourceId};
use super::message_record::{MessageHead, Reference};
use super::names::NameHead;
use super::note::Note;
use super::planted::Fault;
use super::queue::{DELAYED, EXPIRES, Entry, GATED, IN_FLIGHT, MOVED, PRESERVE};
use super::returning::ReturnHead;
use super::source::{Moved, Source};
use super::starts::StartHead;
use super::tables::{Gate, Liveness, Tables};
use super::terminal_record::{MoveHead, Reason, TerminalHead};
use super::transaction::{PREPARED_HOLDER, PendingEntry};
use super::volatile::is_volatile;

impl Tables {
    /// Applies one record as it stands in the log.
    ///
    /// # Errors
    /// A head that cannot be understood.
    pub fn apply(
        &mut self,
        liveness: &mut impl Liveness,
        position: Position,
        epoch: u64,
        kind: u8,
        head: &[u8],
        payload_bytes: u32,
    ) -> Result<(), HeadError> {
        self.begin_epoch(liveness, epoch);
        match kind {
            kinds::MESSAGE => {
                let mut message = MessageHead::default();
                message.decode(head)?;
                self.apply_message(liveness, position, payload_bytes, &message, &[]);
            }
            kinds::TERMINAL => self.apply_terminal(liveness, position, TerminalHead::decode(head)?),
            kinds::MOVE => self.apply_move(liveness, position, &MoveHead::decode(head)?),
            kinds::DESTINATION => self.apply_destination(liveness, &DestinationHead::decode(head)?)?,
            kinds::SUBSCRIPTION => self.apply_subscription(liveness, &SubscriptionHead::decode(head)?)?,
            kinds::WATERMARK => self.apply_watermark(position, WatermarkHead::decode(head)?),
            kinds::TRANSACTION => self.apply_transaction(liveness, position, TransactionHead::decode(head)?),
            kinds::CHECKPOINT => self.apply_checkpoint(liveness, position, head)?,
            kinds::START => self.apply_start(epoch, &StartHead::decode(head)?),
            kinds::PRODUCER_NAME => self.apply_name(&NameHead::decode(head)?),
            kinds::EXPORTED => self.exported = Some(Exported::decode(head)?),
            kinds::NOTE => drop(Note::decode(head)?),
            kinds::RETURN => self.apply_return(&ReturnHead::decode(head)?),
            kinds::DUE => self.delays.met(DueHead::decode(head)?.until_ms),
            _ => return Err(HeadError::Kind(kind)),
        }
        Ok(())
    }

    /// The store was opened for writing.
    pub(super) fn apply_start(&mut self, epoch: u64, head: &StartHead) {
        self.starts.note(epoch, head.id);
        if let Some(secret) = head.secret {
            self.starts.keep(secret);
        }
    }

    /// A later epoch begins: transactions of earlier ones that were never prepared are over.
    pub fn begin_epoch(&mut self, liveness: &mut impl Liveness, epoch: u64) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        self.transactions.epoch = epoch;
        for id in self.transactions.abandoned(epoch) {
            self.apply_rollback(liveness, Position::ZERO, id);
        }
    }

    /// A message arrived. `unlogged` are references that no record names: non-durable subscriptions.
    pub fn apply_message(
        &mut self,
        liveness: &mut impl Liveness,
        position: Position,
        bytes: u32,
        head: &MessageHead,
        unlogged: &[Reference],
    ) {
        if head.incarnation != 0
            && let Some(origin) = head.copies.first()
        {
            let (who, to, sequence, refused) = (head.incarnation, origin.destination, head.sequence, &head.refused);
            if is_volatile(position) {
                self.producers.arrive_unlogged(who, to, sequence, refused);
            } else {
                self.producers.arrive(who, to, sequence, position, refused);
            }
        }
        if !self.live {
            // Their definitions may be lost: nobody else may get their numbers.
            head.copies
                .iter()
                .for_each(|copy| self.catalogue.note_id(copy.destination.0));
        }
        if head.transaction != 0 {
            self.transactions.entry(head.transaction).messages += u64::from(!is_volatile(position));
        }
        for reference in head.references.iter().chain(unlogged) {
            let pending = self.pending_entry(position, bytes, head, reference);
            if pending.entry.is(DELAYED) {
                self.note_over(&pending);
            }
            let source = self.source_or_placeholder(reference.source);
            source.next_sequence = source.next_sequence.max(reference.sequence + 1);
            if self.planted_arrival(liveness, pending, head.transaction) {
                continue;
            }
            if head.transaction == 0 {
                self.hold(liveness, position);
                self.add_entry(&pending);
            } else {
                let source = self.source_or_placeholder(reference.source);
                source.statistics.pending_messages += 1;
                source.statistics.pending_bytes += u64::from(bytes);
                self.hold(liveness, position);
                self.transactions.entry(head.transaction).entries.push(pending);
            }
        }
    }

    /// For [`Fault::LoseArrival`] and [`Fault::DoubleArrival`] alone: whether it is lost.
    fn planted_arrival(&mut self, liveness: &mut impl Liveness, pending: PendingEntry, transaction: u64) -> bool {
        let Entry { position, sequence, .. } = pending.entry;
        if !self.live || is_volatile(position) {
            return false;
        }
        let victim = || format!("{} {sequence} {}", pending.source.0, position.0);
        if self.planted.strikes(Fault::LoseArrival, victim) {
            return true;
        }
        if transaction == 0 && self.planted.strikes(Fault::DoubleArrival, victim) {
            self.arrive_again(liveness, pending);
        }
        false
    }

    fn arrive_again(&mut self, liveness: &mut impl Liveness, mut pending: PendingEntry) {
        pending.entry.sequence += 1;
        let source = self.source_or_placeholder(pending.source);
        source.next_sequence = source.next_sequence.max(pending.entry.sequence + 1);
        self.hold(liveness, pending.entry.position);
        self.add_entry(&pending);
    }

    fn pending_entry(&self, position: Position, bytes: u32, head: &MessageHead, reference: &Reference) -> PendingEntry {
        let mut flags = if head.preserve { PRESERVE } else { 0 };
        let expires_ms = match head.expires_ms(reference.copy) {
            0 => 0,
            wall_ms => {
                flags |= EXPIRES;
                self.monotonic_of(wall_ms)
            }
        };
        let (mut ready_ms, mut due_ms) = (0, 0);
        if head.delay_ms > 0 && (self.delays.is_reading() || head.deliver_at_ms() > self.now.wall_ms) {
            flags |= DELAYED;
            due_ms = head.deliver_at_ms();
            ready_ms = self.monotonic_of(due_ms);
        }
        let entry = Entry {
            sequence: reference.sequence,
            position,
            bytes,
            flags,
            copy: reference.copy,
            count: 0,
        };
        PendingEntry {
            source: reference.source,
            priority: head.priority,
            entry,
            expires_ms,
            ready_ms,
            due_ms,
            destination: head.destination(reference.copy).unwrap_or_default(),
        }
    }

    /// References end, now or with their transaction.
    pub fn apply_terminal(&mut self, liveness: &mut impl Liveness, position: Position, head: TerminalHead) {
        for target in &head.targets {
            liveness.depend(position, *target);
        }
        if head.transaction == 0 {
            self.end_references(liveness, &head);
            return;
        }
        liveness.hold(position);
        self.lock_references(&head);
        self.transactions
            .entry(head.transaction)
            .terminals
            .push((position, head));
    }

    pub fn end_references(&mut self, liveness: &mut impl Liveness, head: &TerminalHead) {
        let victim = || {
            format!(
                "{} {}",
                head.source.0,
                head.ranges.first().map_or(0, |(first, _)| *first)
            )
        };
        if self.live && self.planted.strikes(Fault::EndTooLittle, victim) {
            return;
        }
        let planted = self.planted_ranges(head);
        let Some(source) = self.sources.get_mut(&head.source) else {
            return;
        };
        let mut removed: smallvec::SmallVec<[(u8, Entry); 64]> = smallvec::SmallVec::new();
        for (first, last) in planted.as_deref().unwrap_or(&head.ranges) {
            source.queue.remove_range(*first, *last, |priority, entry| {
                removed.push((priority, entry));
            });
        }
        let count = removed.len() as u64;
        let statistics = &mut source.statistics;
        match head.reason {
            Reason::Acknowledged => statistics.acknowledged_total += count,
            Reason::Expired => statistics.expired_total += count,
            Reason::Discarded | Reason::MaxRedelivery => statistics.discarded_total += count,
            Reason::Purged | Reason::Moved | Reason::Dead | Reason::Damaged | Reason::Deleted => {}
        }
        if head.reason.destroys() {
            self.note_destroyed(head.source, head.reason.name(), count);
        }
        for (priority, entry) in removed {
            self.note_removed(liveness, head.source, priority, &entry);
        }
    }

    /// For [`Fault::EndTooMuch`] and [`Fault::EndNeighbour`] alone: what ends, with that which waits behind it, or with that in
    /// place of the last.
    fn planted_ranges(&mut self, head: &TerminalHead) -> Option<Vec<(u64, u64)>> {
        if !self.planted.is_armed() || !self.live {
            return None;
        }
        let (first, last) = *head.ranges.last()?;
        let (_, entry) = self.sources.get(&head.source)?.queue.find(last + 1)?;
        let next = entry.sequence;
        if entry.is(IN_FLIGHT) {
            return None;
        }
        let mut ranges = head.ranges.to_vec();
        let of = |sequence: u64| move || format!("{} {sequence}", head.source.0);
        if self.planted.strikes(Fault::EndNeighbour, of(last)) {
            ranges.pop();
            if first < last {
                ranges.push((first, last - 1));
            }
        } else if !self.planted.strikes(Fault::EndTooMuch, of(next)) {
            return None;
        }
        ranges.push((next, next));
        Some(ranges)
    }

    /// What a transaction acknowledged is nobody else's until it is decided.
    fn lock_references(&mut self, head: &TerminalHead) {
        let Some(source) = self.sources.get_mut(&head.source) else {
            return;
        };
        for sequence in head.ranges.iter().flat_map(|(first, last)| *first..=*last) {
            if let Some(flight) = source.queue.flight_mut(sequence) {
                flight.transaction = head.transaction;
                flight.holder = PREPARED_HOLDER;
            } else if let Some((priority, _)) = source.queue.find(sequence)
                && let Some(entry) = source.queue.take(priority, sequence, PREPARED_HOLDER)
            {
                if let Some(flight) = source.queue.flight_mut(sequence) {
                    flight.transaction = head.transaction;
                }
                source.statistics.in_flight_messages += 1;
                source.statistics.in_flight_bytes += u64::from(entry.bytes);
            }
        }
    }

    /// A message goes from one source to another.
    pub fn apply_move(&mut self, liveness: &mut impl Liveness, position: Position, head: &MoveHead) {
        self.hold(liveness, head.position);
        if !is_volatile(head.position) {
            liveness.hold(position);
            liveness.depend(position, head.position);
            if head.previous != Position::ZERO {
                liveness.depend(position, head.previous);
            }
        }
        if let Some(source) = self.sources.get_mut(&head.from.0) {
            source.statistics.undelivered_total += 1;
            if matches!(head.reason, Reason::Expired) {
                source.statistics.expired_total += 1;
            }
        }
        self.remove_entry(liveness, head.from.0, head.priority, head.from.1);
        let entry = Entry {
            sequence: head.to.1,
            position: head.position,
            bytes: head.bytes,
            flags: MOVED,
            copy: head.copy,
            count: 0,
        };
        let record = if is_volatile(head.position) {
            Position::ZERO
        } else {
            position
        };
        let live = self.live && record != Position::ZERO;
        let target = self.source_or_placeholder(head.to.0);
        target.next_sequence = target.next_sequence.max(head.to.1 + 1);
        target.moved.insert(
            head.to.1,
            Moved {
                reason: head.reason,
                origin: head.origin,
                record,
            },
        );
        let mut pending = PendingEntry {
            source: head.to.0,
            priority: head.priority,
            entry,
            expires_ms: 0,
            ready_ms: 0,
            due_ms: 0,
            destination: head.origin,
        };
        if live {
            pending.entry.flags |= GATED;
            self.gates.push_back(Gate {
                position,
                entries: vec![(head.to.0, head.priority, head.to.1)],
            });
        }
        self.add_entry(&pending);
    }

    fn apply_destination(&mut self, liveness: &mut impl Liveness, head: &DestinationHead) -> Result<(), HeadError> {
        if head.deleted {
            self.drop_destination(liveness, head.id);
            return Ok(());
        }
        self.recover_destination(liveness, head)
    }

    /// A destination as a record describes it.
    pub fn recover_destination(
        &mut self,
        liveness: &mut impl Liveness,
        head: &DestinationHead,
    ) -> Result<(), HeadError> {
        let name = DestinationName::parse(&head.name).map_err(|_| HeadError::Range("destination name"))?;
        let earlier = self.catalogue.id_of(head.kind, name.as_str());
        if let Some(earlier) = earlier.filter(|earlier| *earlier < head.id) {
            // One name is one destination's: the record of the earlier one's end is gone, or lost.
            self.drop_destination(liveness, earlier);
        }
        self.create_destination(head.id, head.kind, name, head.generation, head.origin);
        Ok(())
    }

    /// A destination exists from now on, or has another origin.
    pub fn create_destination(
        &mut self,
        id: super::ids::DestinationId,
        kind: Kind,
        name: DestinationName,
        generation: u64,
        origin: Origin,
    ) {
        if let Some(destination) = self.catalogue.destination_mut(id) {
            destination.origin = origin;
        } else {
            self.catalogue.insert_destination(id, kind, name, generation, origin);
        }
        if kind == Kind::Queue {
            let logged = origin != Origin::Temporary;
            let source = self
                .sources
                .entry(id.source())
                .or_insert_with(|| Source::new(id.source(), None, logged));
            source.destination = Some(id);
            source.delayed_to = FxHashMap::default();
            source.named = true;
        }
    }

    /// A destination is no more, with all it held; says how many messages.
    pub fn drop_destination(&mut self, liveness: &mut impl Liveness, id: super::ids::DestinationId) -> u64 {
        self.catalogue.note_id(id.0);
        let messages = self.drop_source(liveness, id.source());
        self.catalogue.remove_destination(id);
        self.timers.release(id, self.now.monotonic_ms);
        self.drop_names_at(id);
        messages
    }

    fn apply_subscription(&mut self, liveness: &mut impl Liveness, head: &SubscriptionHead) -> Result<(), HeadError> {
        if head.deleted {
            self.drop_subscription(liveness, head.id);
            return Ok(());
        }
        self.recover_subscription(liveness, head)
    }

    /// A durable subscription as a record describes it.
    pub fn recover_subscription(
        &mut self,
        liveness: &mut impl Liveness,
        head: &SubscriptionHead,
    ) -> Result<(), HeadError> {
        let pattern = Pattern::parse(&head.pattern).map_err(|_| HeadError::Range("subscription pattern"))?;
        let selector = Selector::parse_optional(&head.selector, Scope::Ordinary)
            .map_err(|_| HeadError::Range("subscription selector"))?
            .map(Arc::new);
        let earlier = self.catalogue.subscription_named(&head.client_id, &head.name);
        if let Some(earlier) = earlier.map(|earlier| earlier.id).filter(|earlier| *earlier < head.id) {
            self.drop_subscription(liveness, earlier);
        }
        let unwanted = if head.no_local {
            Unwanted::Client(head.client_id.as_str().into())
        } else {
            Unwanted::Nobody
        };
        self.create_subscription(Subscription {
            id: head.id,
            client_id: head.client_id.clone(),
            name: head.name.clone(),
            durable: true,
            shared: head.shared,
            is_static: head.is_static,
            pattern,
            selector_text: head.selector.clone(),
            selector,
            unwanted,
        });
        Ok(())
    }

    /// A subscription exists from now on.
    pub fn create_subscription(&mut self, subscription: Subscription) {
        let id = subscription.id;
        let durable = subscription.durable;
        if self.catalogue.subscription(id).is_some() {
            self.catalogue.remove_subscription(id);
        }
        self.catalogue.insert_subscription(subscription);
        let source = self.sources.entry(id).or_insert_with(|| Source::new(id, None, durable));
        source.named = true;
    }

    /// A subscription is no more, with all it held; says how many messages.
    pub fn drop_subscription(&mut self, liveness: &mut impl Liveness, id: SourceId) -> u64 {
        self.catalogue.note_id(id.0);
        let messages = self.drop_source(liveness, id);
        self.catalogue.remove_subscription(id);
        messages
    }

    /// What a destination or subscription held goes with it; says how many messages.
    fn drop_source(&mut self, liveness: &mut impl Liveness, id: SourceId) -> u64 {
        let counts = self.sources.get(&id).is_some_and(|source| source.logged);
        let messages = self.remove_source(liveness, id);
        if counts {
            self.note_destroyed(id, DELETED, messages);
        }
        messages
    }

    pub fn apply_watermark(&mut self, position: Position, head: WatermarkHead) {
        let live = self.live;
        let source = self.source_or_placeholder(head.source);
        source.watermark.logged = head.below;
        if live {
            self.watermarks.push_back((position, head.source, head.below));
        } else {
            source.watermark.durable = head.below;
        }
    }

    /// Whether a reference of a message record still stands; for compaction.
    pub fn is_live(&self, source: SourceId, priority: u8, sequence: u64) -> bool {
        self.sources
            .get(&source)
            .is_some_and(|source| source.queue.get(priority, sequence).is_some())
    }

    /// Entries that are in flight and not spoken for by a transaction are removed at once; used for what no record names.
    pub fn remove_unlogged(&mut self, liveness: &mut impl Liveness, id: SourceId, sequence: u64) -> bool {
        let Some(source) = self.sources.get(&id) else {
            return false;
        };
        let Some(priority) = source.queue.flight(sequence).map(|flight| flight.priority) else {
            return false;
        };
        match self.remove_entry(liveness, id, priority, sequence) {
            Some(entry) => {
                debug_assert!(entry.is(IN_FLIGHT), "only deliveries are acknowledged");
                true
            }
            None => false,
        }
    }
}
