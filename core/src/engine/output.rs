//! What goes out: one `ServerBatch` at a time, put together when the host asks for it.
//!
//! The host asks when its previous write is done, so batches grow with the load and a lone message leaves at once. First
//! come the frames that answer something, in order; then confirmations and credit, merged to what they are by now; then
//! deliveries, consumer by consumer in turns. Sizes are counted before anything is written, so nothing is written twice.

use super::consumer::Outgoing;
use super::engine::Engine;
use super::owed::Holder;
use crate::message::MessageView;
use crate::proto::{self, AcknowledgeMode, server_frame};
use crate::state::{Delivered, DestinationId, Payload, StoredMessage};
use crate::wire::{bytes_field_size, put_bytes_field, put_bytes_header, put_varint_field, varint_field_size};
use bytes::Bytes;
use prost::Message as _;
use std::collections::VecDeque;

/// Answers that may wait on one stream. A client that asks and never reads is cut off beyond it.
pub const CONTROL_BYTES_MAX: usize = 8 << 20;

/// What one consumer may put out before another gets its turn.
const TURN_BYTES: usize = 128 << 10;

/// The room kept for the frame around deliveries: three tags and lengths, session, consumer, epoch, time.
const ENVELOPE_BYTES: usize = 64;

/// What waits to go out on one stream.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded frames, each as a field of `ServerBatch`.
    pub control: VecDeque<Vec<u8>>,
    /// The bytes in `control`.
    pub control_bytes: usize,
    /// Producers with confirmations or credit to tell.
    pub confirming: VecDeque<u64>,
    /// Consumers with deliveries, or with Drained, to send.
    pub delivering: VecDeque<u64>,
}

impl Outbox {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.control.is_empty() && self.confirming.is_empty() && self.delivering.is_empty()
    }
}

/// One delivery whose payload is at hand and whose size is known.
pub(super) struct Item {
    outgoing: Outgoing,
    /// Times, id and destination of this copy.
    told: Told,
    payload: Bytes,
    message_bytes: usize,
    uploaded: std::ops::Range<usize>,
    uploaded_bytes: usize,
    destination_bytes: usize,
    /// Who sent it, if its destination asks for that; else empty.
    sender: Box<str>,
    size: usize,
}

/// What is told about a message beside its bytes.
#[derive(Clone, Copy)]
struct Told {
    arrived_ms: u64,
    expires_ms: u64,
    deliver_at_ms: u64,
    id: (u64, u64),
    destination: Option<DestinationId>,
}

impl Told {
    fn of(stored: &StoredMessage, delivered: &Delivered) -> Self {
        let (head, copy) = (&stored.head, delivered.copy);
        Self {
            arrived_ms: head.arrived_ms,
            // What was moved does not expire again, whatever it was moved for: a consumer must not drop it for its age.
            expires_ms: if delivered.reason.is_some() {
                0
            } else {
                head.told_expiration_ms(copy)
            },
            deliver_at_ms: if head.delay_ms == 0 { 0 } else { head.deliver_at_ms() },
            id: head.id(copy),
            destination: head.destination(copy),
        }
    }
}

/// Encodes a frame as a field of `ServerBatch`.
#[must_use]
pub fn encoded(session: u32, frame: server_frame::Frame) -> Vec<u8> {
    let frame = proto::ServerFrame {
        session,
        frame: Some(frame),
    };
    let length = frame.encoded_len();
    let mut out = Vec::with_capacity(bytes_field_size(1, length));
    put_bytes_header(&mut out, 1, length);
    // Encoding into a vector cannot fail: it grows.
    frame.encode_raw(&mut out);
    out
}

impl Engine {
    /// Puts a frame into a stream's outbox.
    pub(super) fn send(&mut self, stream: u64, session: u32, frame: server_frame::Frame) {
        self.note_refusal(stream, &frame);
        self.send_encoded(stream, encoded(session, frame));
    }

    /// Puts an encoded frame into a stream's outbox.
    pub(super) fn send_encoded(&mut self, id: u64, frame: Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.outbox.control_bytes += frame.len();
        stream.outbox.control.push_back(frame);
        self.announce(id);
    }

    /// Notes that a stream has output, for the next `poll`.
    pub(super) fn announce(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.waiting_since_ms.is_none() {
            stream.waiting_since_ms = Some(self.now.monotonic_ms);
            self.liveness_at_ms = self
                .liveness_at_ms
                .min(self.now.monotonic_ms + self.settings.slow_consumer_ms);
        }
        if !stream.announced {
            stream.announced = true;
            self.ready.push(id);
        }
    }

    /// The next batch for a stream, at most `bytes_max` long unless one frame alone is longer; `None`: nothing now.
    /// The host calls this when it was told by `poll` that there is output, until it gets `None`.
    pub fn take_output(&mut self, id: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let now_ms = self.now.monotonic_ms;
        let stream = self.streams.get_mut(&id)?;
        stream.announced = false;
        let mut out = Vec::new();
        while let Some(frame) = stream.outbox.control.front() {
            if !out.is_empty() && out.len() + frame.len() > bytes_max {
                break;
            }
            out.extend_from_slice(frame);
            stream.outbox.control_bytes -= frame.len();
            stream.outbox.control.pop_front();
        }
        if stream.outbox.control.is_empty() {
            self.put_confirms(id, &mut out, bytes_max);
            self.put_deliveries(id, &mut out, bytes_max);
        }
        let stream = self.streams.get_mut(&id)?;
        stream.waiting_since_ms = (!stream.outbox.is_empty()).then_some(now_ms);
        if out.is_empty() {
            return None;
        }
        stream.sent_ms = now_ms;
        Some(out)
    }

    fn put_confirms(&mut self, id: u64, out: &mut Vec<u8>, bytes_max: usize) {
        while out.len() < bytes_max {
            let Some(stream) = self.streams.get_mut(&id) else {
                return;
            };
            let Some(key) = stream.outbox.confirming.pop_front() else {
                return;
            };
            let Some(producer) = self.producers.get_mut(&key) else {
                continue;
            };
            producer.queued = false;
            let Some(session) = self.sessions.get(&producer.session) else {
                continue;
            };
            let number = producer.number;
            if !producer.confirmed.is_empty() {
                let confirmed = producer.confirmed.drain(..).map(|range| proto::Confirmed {
                    producer: number,
                    first: range.first,
                    last: range.last,
                    durability: range.durability.into(),
                    arrived_ms: range.arrived_ms,
                });
                let confirm = proto::Confirm {
                    confirmed: confirmed.collect(),
                };
                out.extend_from_slice(&encoded(session.number, server_frame::Frame::Confirm(confirm)));
            }
            if producer.credit_due {
                producer.credit_due = false;
                let credit = proto::ProducerCredit {
                    producer: number,
                    sequence_limit: producer.granted_sequence,
                    bytes_limit: producer.granted_bytes,
                };
                out.extend_from_slice(&encoded(session.number, server_frame::Frame::ProducerCredit(credit)));
            }
        }
    }

    fn put_deliveries(&mut self, id: u64, out: &mut Vec<u8>, bytes_max: usize) {
        while out.is_empty() || out.len() + ENVELOPE_BYTES < bytes_max {
            let Some(stream) = self.streams.get_mut(&id) else {
                return;
            };
            let Some(key) = stream.outbox.delivering.pop_front() else {
                return;
            };
            if let Some(consumer) = self.consumers.get_mut(&key) {
                consumer.queued = false;
            }
            let before = out.len();
            self.put_turn(id, key, out, bytes_max);
            if out.len() == before
                && !out.is_empty()
                && self.streams.get(&id).is_some_and(|s| !s.outbox.delivering.is_empty())
            {
                // What comes next does not fit behind what is there.
                return;
            }
        }
    }

    /// Writes what one consumer has to send, up to a turn's worth.
    fn put_turn(&mut self, id: u64, key: u64, out: &mut Vec<u8>, bytes_max: usize) {
        let room = if out.is_empty() {
            bytes_max
        } else {
            (bytes_max - out.len()).min(TURN_BYTES.max(bytes_max / 4))
        };
        let mut items = std::mem::take(&mut self.items);
        self.gather(key, room.saturating_sub(ENVELOPE_BYTES), out.is_empty(), &mut items);
        if !items.is_empty() {
            self.put_deliver(key, &items, out);
            self.forget_sent(key, &items);
        }
        items.clear();
        self.items = items;
        self.refill(key);
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        if consumer.drained_due && consumer.outbox.is_empty() {
            let drained = proto::Drained {
                consumer: consumer.number,
                message_limit: consumer.drained(),
            };
            let number = self.sessions.get(&consumer.session).map_or(0, |session| session.number);
            out.extend_from_slice(&encoded(number, server_frame::Frame::Drained(drained)));
        }
        if !consumer.outbox.is_empty() && !consumer.reading {
            self.queue_consumer(id, key);
        }
    }

    /// Moves deliveries from a consumer's outbox into `items`, as many as fit and are at hand.
    fn gather(&mut self, key: u64, room: usize, alone: bool, items: &mut Vec<Item>) {
        let mut used = 0;
        loop {
            let Some(consumer) = self.consumers.get_mut(&key) else {
                return;
            };
            let Some(&outgoing) = consumer.outbox.front() else {
                return;
            };
            let stored = match self.state.payload(outgoing.delivered.position) {
                Payload::Ready(stored) => stored,
                Payload::Reading => {
                    if !consumer.reading {
                        consumer.reading = true;
                        self.reading.push(key);
                    }
                    return;
                }
                Payload::Damaged(why) => {
                    self.drop_damaged(key, outgoing, &why);
                    continue;
                }
            };
            let sent = consumer.uploaded_sent;
            if sent == 0 && stored.head.lifetime_ms(outgoing.delivered.copy) > 0 && self.drop_expired(key, outgoing) {
                continue;
            }
            let Some(item) = self.item(
                key,
                outgoing,
                &stored,
                sent,
                room.saturating_sub(used),
                alone && items.is_empty(),
            ) else {
                return;
            };
            used += bytes_field_size(2, item.size);
            let end = item.uploaded.end;
            let whole = end >= item.uploaded_bytes;
            items.push(item);
            let Some(consumer) = self.consumers.get_mut(&key) else {
                return;
            };
            if whole {
                consumer.outbox.pop_front();
                consumer.outbox_bytes = consumer
                    .outbox_bytes
                    .saturating_sub(u64::from(outgoing.delivered.bytes));
                consumer.uploaded_sent = 0;
            } else {
                consumer.uploaded_sent = end;
                return;
            }
        }
    }

    /// Takes a delivery back whose time was up before it went out. Whether that was so.
    fn drop_expired(&mut self, key: u64, outgoing: Outgoing) -> bool {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return false;
        };
        let (source, session) = (consumer.source, consumer.session);
        if consumer.browsing.is_some() || !self.state.is_expired_in_flight(source, outgoing.sequence) {
            return false;
        }
        consumer.withdraw(outgoing.sequence);
        self.give_back(session, source, outgoing.sequence, false);
        true
    }

    /// Measures one delivery; `None` if it does not fit into `room`. An uploaded body goes out in as many pieces as it
    /// takes: the first with everything else, the others with the sequence number alone.
    fn item(
        &self,
        key: u64,
        outgoing: Outgoing,
        stored: &StoredMessage,
        sent: usize,
        room: usize,
        alone: bool,
    ) -> Option<Item> {
        let payload = stored.bytes.clone();
        let message_bytes = stored.head.split(&payload).0.len();
        let uploaded_bytes = payload.len() - message_bytes;
        let own = self.consumers.get(&key).and_then(|consumer| consumer.destination);
        let mut item = Item {
            outgoing,
            told: Told::of(stored, &outgoing.delivered),
            payload,
            message_bytes,
            uploaded: sent..sent,
            uploaded_bytes,
            destination_bytes: 0,
            sender: stored.head.sender(outgoing.delivered.copy).into(),
            size: varint_field_size(1, outgoing.sequence),
        };
        if sent == 0 {
            if own != item.told.destination {
                item.destination_bytes = item.told.destination.map_or(0, |id| self.destination_size(id));
            }
            item.size += self.head_size(&item);
        }
        if uploaded_bytes > 0 {
            let left = uploaded_bytes - sent;
            // Ten bytes: the tag, and a length below 2^32.
            let fits = room.saturating_sub(item.size + 10).min(left);
            if fits == 0 || (fits < left && fits < TURN_BYTES && !alone) {
                return None;
            }
            item.uploaded.end = sent + fits;
            item.size += bytes_field_size(11, fits);
        }
        (alone || bytes_field_size(2, item.size) <= room).then_some(item)
    }

    fn head_size(&self, item: &Item) -> usize {
        let (delivered, told) = (&item.outgoing.delivered, &item.told);
        let mut size = bytes_field_size(2, item.message_bytes) + varint_field_size(5, told.arrived_ms);
        if delivered.delivery_count > 1 {
            size += varint_field_size(3, u64::from(delivered.delivery_count));
        }
        if delivered.redelivered {
            size += 2;
        }
        if told.expires_ms != 0 {
            size += varint_field_size(6, told.expires_ms);
        }
        if told.deliver_at_ms != 0 {
            size += varint_field_size(7, told.deliver_at_ms);
        }
        size += bytes_field_size(8, self.message_id_size(told.id));
        if item.destination_bytes != 0 {
            size += bytes_field_size(9, item.destination_bytes);
        }
        if !item.sender.is_empty() {
            size += bytes_field_size(10, item.sender.len());
        }
        if item.uploaded_bytes != 0 {
            size += varint_field_size(12, item.uploaded_bytes as u64);
        }
        let reason = delivered.reason.map_or("", |reason| reason.name());
        if !reason.is_empty() {
            size += bytes_field_size(13, reason.len());
        }
        size
    }

    fn destination_size(&self, id: DestinationId) -> usize {
        self.state
            .destination_name(id)
            .map_or(0, |(_, name)| 2 + bytes_field_size(2, name.len()))
    }

    fn put_deliver(&self, key: u64, items: &[Item], out: &mut Vec<u8>) {
        let Some(consumer) = self.consumers.get(&key) else {
            return;
        };
        let number = self.sessions.get(&consumer.session).map_or(0, |session| session.number);
        let epoch = self.state.epoch();
        let deliveries: usize = items.iter().map(|item| bytes_field_size(2, item.size)).sum();
        let expires = items.iter().any(|item| item.told.expires_ms != 0);
        let time_ms = if expires { self.now.wall_ms } else { 0 };
        let time = if expires { varint_field_size(4, time_ms) } else { 0 };
        let deliver =
            varint_field_size(1, u64::from(consumer.number)) + deliveries + varint_field_size(3, epoch) + time;
        let frame = varint_field_size(1, u64::from(number)) + bytes_field_size(3, deliver);
        out.reserve(bytes_field_size(1, frame));
        put_bytes_header(out, 1, frame);
        put_varint_field(out, 1, u64::from(number));
        put_bytes_header(out, 3, deliver);
        put_varint_field(out, 1, u64::from(consumer.number));
        for item in items {
            let end = out.len() + bytes_field_size(2, item.size);
            put_bytes_header(out, 2, item.size);
            self.put_item(item, out);
            debug_assert_eq!(out.len(), end);
        }
        put_varint_field(out, 3, epoch);
        if expires {
            put_varint_field(out, 4, time_ms);
        }
    }

    fn put_item(&self, item: &Item, out: &mut Vec<u8>) {
        let (delivered, told) = (&item.outgoing.delivered, &item.told);
        put_varint_field(out, 1, item.outgoing.sequence);
        if item.uploaded.start == 0 {
            put_bytes_field(out, 2, &item.payload[..item.message_bytes]);
            if delivered.delivery_count > 1 {
                put_varint_field(out, 3, u64::from(delivered.delivery_count));
            }
            if delivered.redelivered {
                put_varint_field(out, 4, 1);
            }
            put_varint_field(out, 5, told.arrived_ms);
            if told.expires_ms != 0 {
                put_varint_field(out, 6, told.expires_ms);
            }
            if told.deliver_at_ms != 0 {
                put_varint_field(out, 7, told.deliver_at_ms);
            }
            put_bytes_header(out, 8, self.message_id_size(told.id));
            self.put_message_id(told.id, out);
            if item.destination_bytes != 0
                && let Some((kind, name)) = told.destination.and_then(|id| self.state.destination_name(id))
            {
                put_bytes_header(out, 9, item.destination_bytes);
                put_varint_field(out, 1, super::wire_kind(kind) as u64);
                put_bytes_field(out, 2, name.as_bytes());
            }
            if !item.sender.is_empty() {
                put_bytes_field(out, 10, item.sender.as_bytes());
            }
        }
        if item.uploaded_bytes > 0 {
            let start = item.message_bytes + item.uploaded.start;
            put_bytes_field(out, 11, &item.payload[start..item.message_bytes + item.uploaded.end]);
            if item.uploaded.start == 0 {
                put_varint_field(out, 12, item.uploaded_bytes as u64);
            }
        }
        let reason = delivered.reason.map_or("", |reason| reason.name());
        if item.uploaded.start == 0 && !reason.is_empty() {
            put_bytes_field(out, 13, reason.as_bytes());
        }
    }

    /// With the mode NONE the broker forgets what it has sent, and it counts everything that goes out.
    fn forget_sent(&mut self, key: u64, items: &[Item]) {
        let Some(consumer) = self.consumers.get(&key) else {
            return;
        };
        let whole = items.iter().filter(|item| item.uploaded.end >= item.uploaded_bytes);
        let (source, session_key, forget) = (consumer.source, consumer.session, consumer.forget);
        if let Some(session) = self.sessions.get(&session_key)
            && let Some(connection) = self.connections.get_mut(&session.connection)
        {
            connection.delivered_total += whole.clone().count() as u64;
        }
        if !forget {
            return;
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for item in whole {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == item.outgoing.sequence => *last += 1,
                _ => ranges.push((item.outgoing.sequence, item.outgoing.sequence)),
            }
        }
        // A failure means that the log is finished; that is told by other means, and what was sent stays sent.
        let _ = self.acknowledge_or_owe(source, Holder::Consumer(key), &ranges);
        self.made_room |= !self.stalled.is_empty();
    }

    /// Puts a consumer into its stream's list of those that have something to send.
    pub(super) fn queue_consumer(&mut self, id: u64, key: u64) {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        if !consumer.queued
            && let Some(stream) = self.streams.get_mut(&id)
        {
            consumer.queued = true;
            stream.outbox.delivering.push_back(key);
            self.announce(id);
        }
    }
}

/// Whether a message's body travels beside it.
pub(super) fn is_uploaded(view: &MessageView<'_>) -> bool {
    view.body().kind == crate::message::BodyKind::Uploaded
}

/// Whether a mode lets the broker forget a message as soon as it has sent it.
pub(super) fn forgets(mode: AcknowledgeMode) -> bool {
    mode == AcknowledgeMode::None
}
