//! Handing messages out: which one is next for a consumer, what it is, and what happens when it comes back.

use bytes::Bytes;

use crate::log::{AppendError, LogError, Position, Read};
use crate::message::MessageView;
use crate::selector::Selector;

use super::catalogue_record::{WatermarkHead, kinds};
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, UNDELIVERED};
use super::message_record::MessageHead;
use super::queue::{DELAYED, EXPIRED, Entry, IN_FLIGHT, MOVED};
use super::selecting::{Circumstances, wants};
use super::source::{Candidate, Cursor};
use super::terminal_record::{MoveHead, Reason};
use super::timers::TimerKind;
use super::upkeep::ReadJob;
use super::volatile::{VolatileRead, is_volatile};
use super::witness::What;

/// What is next for a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This one; [`State::deliver`] takes it.
    Ready {
        /// Its number in the source.
        sequence: u64,
        /// Its priority, for [`State::deliver`].
        priority: u8,
        /// Its size.
        bytes: u32,
    },
    /// The selector must look at a message that is not in memory: a read was asked for, try again when it is complete.
    NeedsRead(Position),
    /// There is one, but the redelivery watermark is being raised; the source is dirty again when that is durable.
    Reserving,
    /// Expired messages are being taken out, and nothing is handed out until that is done; the source is dirty again then.
    Expiring,
    /// Nothing is ready; the source is dirty again when something may be.
    Empty,
}

/// A message as it is handed out. What its record says (times, id) comes with the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// Where the message is: for [`State::payload`].
    pub position: Position,
    /// Which copy of it: for [`StoredMessage`]'s fields.
    pub copy: u8,
    /// Its size.
    pub bytes: u32,
    /// Times it was handed out, this one included, since the broker started.
    pub delivery_count: u32,
    /// It may have been delivered before.
    pub redelivered: bool,
    /// It is here by a move: why.
    pub reason: Option<Reason>,
}

/// A message and what the broker knows about it.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// What the broker knows: ask it with the delivery's `copy`.
    pub head: MessageHead,
    /// The Message as the producer encoded it.
    pub bytes: Bytes,
}

/// What asking for a message's bytes gives.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "made once for each delivery and taken apart at once: a box would cost more"
)]
pub enum Payload {
    /// Here.
    Ready(StoredMessage),
    /// It is being read; ask again when a read is complete.
    Reading,
    /// Its record fails its checksum; never delivered.
    Damaged(String),
}

/// What became of a delivery that was given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// It is in its place again.
    Returned,
    /// It was delivered as often as allowed, or expired meanwhile: moved to `$sys.undelivered` or another queue.
    Moved,
    /// As `Moved`, where neither its queue nor its sender keeps it.
    Destroyed,
    /// It was not in flight.
    NotInFlight,
}

impl State {
    /// The next message for a consumer: highest priority first, first come first served within each. A consumer with a
    /// selector gives its own cursor; others share the source's.
    pub fn next_ready(&mut self, id: SourceId, cursor: &mut Cursor, selector: Option<&Selector>) -> Next {
        loop {
            // While expired messages wait to be taken out, nothing is handed out: what may be one cannot be, and what
            // stands behind it must not overtake it. The source is dirty again afterwards.
            if self.overdue {
                return Next::Expiring;
            }
            let committed = self.tables.committed;
            let Some(source) = self.tables.sources.get_mut(&id) else {
                return Next::Empty;
            };
            if selector.is_some() {
                source.refresh(cursor);
            }
            let found = source.candidate(selector.map(|_| &*cursor), committed);
            let (level, index) = match found {
                Candidate::Entry { level, index } => (level, index),
                Candidate::None => return Next::Empty,
                Candidate::Reserving(sequence) => {
                    // Without its record nothing is delivered; it is tried again when there may be space.
                    if self.reserve(id, sequence).is_err() && !self.unreserved.contains(&id) {
                        self.unreserved.push(id);
                    }
                    return Next::Reserving;
                }
            };
            let Some(level) = source.queue.levels().get(level) else {
                return Next::Empty;
            };
            let (priority, Some(entry)) = (level.priority, level.at(index).copied()) else {
                return Next::Empty;
            };
            if let Some(selector) = selector {
                match self.is_selected(id, &entry, selector) {
                    Some(true) => {}
                    Some(false) => {
                        if let Some(source) = self.tables.sources.get(&id) {
                            source.pass(cursor, priority, entry.sequence);
                        }
                        continue;
                    }
                    None => return Next::NeedsRead(entry.position),
                }
            }
            return Next::Ready {
                sequence: entry.sequence,
                priority,
                bytes: entry.bytes,
            };
        }
    }

    /// Whether a selector wants an entry; `None` while its message is being read. A damaged one is wanted by nobody with a
    /// selector: a consumer without one meets it and reports it.
    pub(super) fn is_selected(&mut self, id: SourceId, entry: &Entry, selector: &Selector) -> Option<bool> {
        let source = self.tables.sources.get(&id)?;
        if let Some(cached) = source.headers.get(&entry.sequence) {
            let (head_bytes, rest) = cached.split_at_checked(4)?;
            let head_bytes = u32::from_le_bytes(head_bytes.try_into().ok()?) as usize;
            let (head, message) = rest.split_at_checked(head_bytes)?;
            return Some(self.judge(id, entry, head, message, selector));
        }
        let (head, payload) = match self.fetch(entry.position) {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(_) => return Some(false),
        };
        let mut known = MessageHead::default();
        if known.decode(&head).is_err() {
            return Some(false);
        }
        let (message, _) = known.split(&payload);
        self.cache_header(id, entry.sequence, &head, message);
        Some(self.judge(id, entry, &head, message, selector))
    }

    fn judge(&self, id: SourceId, entry: &Entry, head: &[u8], message: &[u8], selector: &Selector) -> bool {
        let mut known = MessageHead::default();
        let (Ok(()), Ok(view)) = (known.decode(head), MessageView::parse(message)) else {
            return false;
        };
        let origin: Option<(Kind, &str)> = if id == UNDELIVERED.source() || entry.is(MOVED) {
            known
                .destination(entry.copy)
                .and_then(|origin| self.destination_name(origin))
        } else {
            None
        };
        let circumstances = Circumstances {
            broker: &self.broker,
            starts: &self.tables.starts,
            arrived_ms: known.arrived_ms,
            id: known.id(entry.copy),
            origin,
            sender: known.sender(entry.copy),
            delivery_count: u32::from(entry.count) + 1,
        };
        wants(selector, &view, &circumstances)
    }

    /// Keeps what selectors look at of a message (EMS-CLI-A20): the head, and the message without its body.
    fn cache_header(&mut self, id: SourceId, sequence: u64, head: &[u8], message: &[u8]) {
        let Some(prefix) = header_part(message) else { return };
        let cost = header_cost(head.len() + prefix.len() + 4);
        if self.tables.header_bytes + cost > self.selector_cache_bytes {
            return;
        }
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return;
        };
        let mut cached = Vec::with_capacity(4 + head.len() + prefix.len());
        cached.extend_from_slice(&(head.len() as u32).to_le_bytes());
        cached.extend_from_slice(head);
        cached.extend_from_slice(prefix);
        source.headers.insert(sequence, cached.into_boxed_slice());
        self.tables.header_bytes += cost;
    }

    /// Takes a message for a consumer: it is in flight until it is acknowledged or given back. `holder` is the engine's.
    pub fn deliver(&mut self, id: SourceId, priority: u8, sequence: u64, holder: u64) -> Option<Delivered> {
        let source = self.tables.sources.get_mut(&id)?;
        let entry = source.queue.take(priority, sequence, holder)?;
        let redelivered = source.is_redelivered(&entry);
        let statistics = &mut source.statistics;
        statistics.in_flight_messages += 1;
        statistics.in_flight_bytes += u64::from(entry.bytes);
        statistics.delivered_total += 1;
        statistics.redelivered_total += u64::from(redelivered);
        self.totals.delivered_total += 1;
        let reason = if entry.is(MOVED) {
            source.moved.get(&sequence).map(|moved| moved.reason)
        } else {
            None
        };
        // A backlog's consumer reserves ahead, so that it need not wait at the watermark.
        source.delivered_below = source.delivered_below.max(sequence + 1);
        let near = sequence + self.redelivery_reserve / 2 > source.watermark.logged;
        if near && source.logged && !is_volatile(entry.position) {
            let _ = self.reserve(id, sequence);
        }
        Some(Delivered {
            position: entry.position,
            copy: entry.copy,
            bytes: entry.bytes,
            delivery_count: u32::from(entry.count) + 1,
            redelivered,
            reason,
        })
    }

    /// Raises a source's redelivery watermark well above a sequence.
    pub(super) fn reserve(&mut self, id: SourceId, sequence: u64) -> Result<(), AppendError> {
        let Some(source) = self.tables.sources.get(&id) else {
            return Ok(());
        };
        if source.watermark.logged > sequence + self.redelivery_reserve / 2 {
            return Ok(());
        }
        let head = WatermarkHead {
            source: id,
            below: sequence + 1 + self.redelivery_reserve,
        };
        self.append_watermark(head)
    }

    /// The head of the message at a position, if that takes no reading.
    pub(super) fn peek_head(&mut self, position: Position) -> Option<MessageHead> {
        let head = if is_volatile(position) {
            match self.tables.volatile.read(position) {
                VolatileRead::Ready(head, _) => head,
                VolatileRead::Spilled(_) | VolatileRead::Gone => return None,
            }
        } else {
            self.log.peek(position)?.head
        };
        let mut known = MessageHead::default();
        known.decode(&head).ok().map(|()| known)
    }

    /// Head and bytes of the message at a position; `None` while they are being read.
    fn fetch(&mut self, position: Position) -> Result<Option<(Bytes, Bytes)>, String> {
        if is_volatile(position) {
            return match self.tables.volatile.read(position) {
                VolatileRead::Ready(head, payload) => Ok(Some((head, payload))),
                VolatileRead::Gone => Err("the message is not in memory any more".to_owned()),
                VolatileRead::Spilled(read) => {
                    let chunk = read.chunk();
                    if self.reading_spilled.insert(chunk) {
                        self.reads.push(ReadJob::Spill(read));
                    }
                    Ok(None)
                }
            };
        }
        match self.log.read(position) {
            Ok(Read::Cached(record)) => Ok(Some((record.head, record.payload))),
            Ok(Read::Miss(request)) => {
                self.reads.push(ReadJob::Log(request));
                Ok(None)
            }
            Ok(Read::Pending) => Ok(None),
            Ok(Read::Later) => {
                // Asked for again when the system may have what it lacked.
                self.later = true;
                Ok(None)
            }
            Err(LogError::Failed(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A message with what the broker knows about it. If it is not in memory, a read is asked for ([`State::take_reads`]).
    pub fn payload(&mut self, position: Position) -> Payload {
        match self.fetch(position) {
            Ok(None) => Payload::Reading,
            Err(why) => Payload::Damaged(why),
            Ok(Some((head, bytes))) => {
                let mut known = MessageHead::default();
                match known.decode(&head) {
                    Ok(()) => Payload::Ready(StoredMessage { head: known, bytes }),
                    Err(error) => Payload::Damaged(error.to_string()),
                }
            }
        }
    }

    /// Gives a delivery back to its source, in its place. `seen`: it counts as delivered, so it comes flagged next time,
    /// and may have been delivered often enough.
    pub fn release(&mut self, id: SourceId, sequence: u64, seen: bool) -> Released {
        self.release_for(id, sequence, seen, 0)
    }

    /// As [`State::release`]; what was seen waits at least so long until it is delivered again.
    pub fn release_for(&mut self, id: SourceId, sequence: u64, seen: bool, delay_ms: u64) -> Released {
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return Released::NotInFlight;
        };
        // What an open transaction took is its own: given back, it could be taken twice.
        if source
            .queue
            .flight(sequence)
            .is_some_and(|flight| flight.transaction != 0)
        {
            return Released::NotInFlight;
        }
        let Some((priority, entry)) = source.queue.give_back(sequence) else {
            return Released::NotInFlight;
        };
        if seen {
            entry.count = entry.count.saturating_add(1);
        }
        let entry = *entry;
        source.statistics.in_flight_messages -= 1;
        source.statistics.in_flight_bytes -= u64::from(entry.bytes);
        source.note_return(priority, sequence);
        self.witness.released(id);
        self.tables.mark_dirty(id);
        let Some(source) = self.tables.sources.get(&id) else {
            return Released::Returned;
        };
        let redelivery_max = self.tables.redelivery_max(source);
        let reason = if entry.is(EXPIRED) {
            Reason::Expired
        } else if seen && redelivery_max > 0 && entry.count >= redelivery_max {
            Reason::MaxRedelivery
        } else {
            if seen {
                self.hold_back(id, &entry, delay_ms);
            }
            return Released::Returned;
        };
        // Nothing is destroyed by what another configuration said.
        let unknown = self.tables.awaits_properties(id);
        let unknown = unknown.filter(|_| self.tables.aside(id, &entry).is_none());
        let put = match unknown {
            Some(_) => None,
            None => self.put_aside(id, priority, &entry, reason).ok(),
        };
        match put {
            Some(true) => Released::Moved,
            Some(false) => Released::Destroyed,
            // Without a record it stays where it is, and is put aside at its next return, or when its timer comes again.
            None => {
                match unknown {
                    _ if reason != Reason::Expired => {}
                    Some(destination) => self.park(destination, TimerKind::Expiry, id, priority, sequence),
                    None => self.retry_later(TimerKind::Expiry, id, priority, sequence),
                }
                Released::Returned
            }
        }
    }

    /// Takes a message that cannot stay out of its source: to where its queue or its sender wants it (true), else away.
    pub(super) fn put_aside(
        &mut self,
        id: SourceId,
        priority: u8,
        entry: &Entry,
        reason: Reason,
    ) -> Result<bool, AppendError> {
        if let Some(target) = self.tables.aside(id, entry) {
            self.move_entry(id, priority, entry, target, reason, "")?;
            return Ok(true);
        }
        self.end_entries(id, &[(priority, *entry)], reason, "")?;
        Ok(false)
    }

    /// Moves a message that is not in flight to another source. The message itself stays where it is stored.
    pub(super) fn move_entry(
        &mut self,
        from: SourceId,
        priority: u8,
        entry: &Entry,
        to: SourceId,
        reason: Reason,
        actor: &str,
    ) -> Result<(), AppendError> {
        let Some(target) = self.tables.sources.get(&to) else {
            return Ok(());
        };
        let to_sequence = target.next_sequence;
        let origin = self.origin_of(from, entry);
        let previous = self
            .tables
            .sources
            .get(&from)
            .and_then(|source| source.moved.get(&entry.sequence))
            .map_or(Position::ZERO, |moved| moved.record);
        let head = MoveHead {
            reason,
            time_ms: self.tables.now.wall_ms,
            actor: actor.to_owned(),
            from: (from, entry.sequence),
            to: (to, to_sequence),
            position: entry.position,
            bytes: entry.bytes,
            priority,
            copy: entry.copy,
            origin,
            previous,
        };
        // From a non-durable subscription a logged message can still be kept: the move is its new reference.
        let position = if is_volatile(entry.position) {
            Position::ZERO
        } else {
            self.head_buffer.clear();
            head.encode(&mut self.head_buffer)?;
            let position = self.append_event(kinds::MOVE)?;
            self.witness.count(0, from, What::Ended(reason), 1);
            self.witness.count(0, to, What::Arrived, 1);
            position
        };
        self.tables.apply_move(&mut self.log, position, &head);
        Ok(())
    }

    /// Where a message of a source was sent, as far as that can be told without reading it.
    fn origin_of(&self, id: SourceId, entry: &Entry) -> DestinationId {
        let Some(source) = self.tables.sources.get(&id) else {
            return DestinationId::default();
        };
        if let Some(moved) = source.moved.get(&entry.sequence) {
            return moved.origin;
        }
        source.destination.unwrap_or_default()
    }

    /// Messages of a source in their order of delivery, after a sequence if one is given: committed, due, not expired.
    /// For looking, not for taking: what is in flight is there too.
    pub fn browse(&self, id: SourceId, after: u64) -> impl Iterator<Item = Browsed> {
        let committed = self.tables.committed;
        let source = self.tables.sources.get(&id);
        source.into_iter().flat_map(move |source| {
            source
                .queue
                .iter()
                .filter(move |(_, entry)| {
                    entry.sequence > after
                        && !entry.is(super::queue::GATED | DELAYED | EXPIRED)
                        && (is_volatile(entry.position) || entry.position < committed)
                })
                .map(move |(priority, entry)| Browsed {
                    sequence: entry.sequence,
                    priority,
                    position: entry.position,
                    copy: entry.copy,
                    bytes: entry.bytes,
                    in_flight: entry.is(IN_FLIGHT),
                    delivery_count: u32::from(entry.count),
                    redelivered: source.is_redelivered(entry),
                    reason: source.moved.get(&entry.sequence).map(|moved| moved.reason),
                })
        })
    }
}

/// A message as a browser finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Browsed {
    /// Its number in the source.
    pub sequence: u64,
    /// 0 to 9.
    pub priority: u8,
    /// For [`State::payload`].
    pub position: Position,
    /// Which copy of the message.
    pub copy: u8,
    /// Its size.
    pub bytes: u32,
    /// A consumer has it.
    pub in_flight: bool,
    /// Deliveries that count, so far.
    pub delivery_count: u32,
    /// It would come flagged.
    pub redelivered: bool,
    /// It is here by a move: why.
    pub reason: Option<Reason>,
}

/// What a cached header part costs in memory, its place in the map included.
pub(super) const fn header_cost(bytes: usize) -> usize {
    bytes + 48
}

/// The part of a message before its body, if the body is last, where encoders write it.
fn header_part(message: &[u8]) -> Option<&[u8]> {
    let view = MessageView::parse(message).ok()?;
    let body = view.body().bytes;
    if body.is_empty() || body.as_ptr_range().end != message.as_ptr_range().end {
        return None;
    }
    // Before the body stand its tag (two bytes at most) and its length.
    let start = message.len() - body.len();
    (start.saturating_sub(12)..start).rev().find_map(|end| {
        let part = message.get(..end)?;
        MessageView::parse(part)
            .is_ok_and(|view| view.body().bytes.is_empty())
            .then_some(part)
    })
}
