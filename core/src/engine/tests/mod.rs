//! Tests of the layer over the simulated disk: an engine, a host that runs every job at once, one client with real frames.

mod acknowledging;
mod closing;
mod configuring;
mod dispatching;
mod expelling;
mod joining;
mod naming;
mod overdue;
mod producers;
mod recovered;
mod refusing;
mod resuming;
mod room;
mod transacting;
mod uploading;
mod waiting_for_receivers;
mod waiting_for_room;

use super::*;
use crate::log::Options;
use crate::proto::client_frame::Frame as Sent;
use crate::proto::server_frame::Frame as Got;
use crate::proto::{self, AcknowledgeMode};
use crate::sim::{Faults, SimDisk};
use crate::state::{Now, Properties, SECRET_BYTES, SourceId, Start, State, StateOptions};
use prost::Message as _;
use std::sync::Arc;

struct Bench {
    disk: SimDisk,
    engine: Option<Engine>,
    now: Now,
    stream: u64,
    /// Whether the client is the broker itself: it needs no heartbeats.
    internal: bool,
    /// What dynamic destinations get.
    properties: Properties,
    /// What the next start accepts.
    limits: Limits,
    /// How many producers' numbers the next start remembers.
    producers_max: usize,
    /// How many producers have names, in the next start.
    named_producers_max: usize,
    /// Who connects.
    user: String,
    /// Memory for what is not logged, in the next start.
    volatile_bytes: u64,
    frames: Vec<proto::ServerFrame>,
    /// Streams with output that nobody has taken yet.
    ready: Vec<u64>,
    /// The last start id; each start draws the next.
    starts: u64,
}

impl Bench {
    fn new(properties: Properties) -> Self {
        let mut bench = Self {
            disk: SimDisk::new(1),
            engine: None,
            now: Now {
                wall_ms: 1_700_000_000_000,
                monotonic_ms: 1_000,
            },
            stream: 0,
            internal: true,
            properties,
            limits: Limits::default(),
            producers_max: StateOptions::default().producers_max,
            named_producers_max: StateOptions::default().named_producers_max,
            user: String::new(),
            volatile_bytes: StateOptions::default().volatile_bytes,
            frames: Vec::new(),
            ready: Vec::new(),
            starts: 0,
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        self.engine = None;
        self.disk.kill_process();
        let options = StateOptions {
            log: Options {
                segment_bytes: 256 * 1024,
                record_bytes_max: 64 * 1024,
                commit_bytes_max: 64 * 1024,
                ..Options::default()
            },
            start: self.draw(),
            producers_max: self.producers_max,
            named_producers_max: self.named_producers_max,
            volatile_bytes: self.volatile_bytes,
            ..StateOptions::default()
        };
        let (state, _) = State::open(Arc::new(self.disk.clone()), options, self.now).unwrap();
        let settings = Settings {
            limits: self.limits.clone(),
            ..Settings::default()
        };
        self.engine = Some(Engine::new(state, settings, self.now));
        self.settle();
    }

    /// The connection is lost, and with it what the client has not heard yet.
    fn reconnect(&mut self) {
        self.close();
        self.frames.clear();
        self.connect();
    }

    /// Of the producer that was opened last.
    fn incarnation(&mut self) -> u64 {
        let producers = self.engine().producers.values();
        producers.map(|producer| producer.incarnation).max().unwrap()
    }

    /// As the broker gave it out with the incarnation.
    fn token(&mut self, incarnation: u64) -> Vec<u8> {
        let token = self.engine().state().producer_token(incarnation, "");
        token.map_or_else(Vec::new, |token| token.to_vec())
    }

    fn draw(&mut self) -> Start {
        self.starts += 1;
        Start {
            id: self.starts,
            secret: [7; SECRET_BYTES],
        }
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }

    fn settle(&mut self) {
        self.run(true);
    }

    /// Runs jobs until none is left; without upkeep no room is made in the log.
    fn run(&mut self, upkeep: bool) {
        loop {
            let mut idle = true;
            if let Ok(Some(job)) = self.engine().next_write() {
                let done = job.run();
                // A failure is for the engine to tell its clients.
                let _ = self.engine().complete_write(done);
                idle = false;
            }
            for job in self.engine().take_reads() {
                let done = job.run();
                self.engine().complete_read(done);
                idle = false;
            }
            if upkeep && let Ok(Some(job)) = self.engine().maintenance() {
                let done = job.run();
                let _ = self.engine().complete_maintenance(done);
                idle = false;
            }
            let polled = self.engine().poll();
            for request in polled.tickets {
                let answer = match request.question {
                    Question::Hello { .. } | Question::Pattern { .. } => Answer::Admitted {
                        user: self.user.clone(),
                    },
                    Question::Destination { .. } | Question::Properties { .. } => {
                        Answer::Create(self.properties.clone())
                    }
                };
                self.engine().answer(request.ticket, answer);
                idle = false;
            }
            self.ready.extend(polled.ready);
            for stream in std::mem::take(&mut self.ready) {
                while let Some(bytes) = self.engine().take_output(stream, 1 << 20) {
                    let batch = proto::ServerBatch::decode(bytes.as_slice()).unwrap();
                    self.frames.extend(batch.frames);
                }
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    fn advance(&mut self, ms: u64) {
        self.now = Now {
            wall_ms: self.now.wall_ms + ms,
            monotonic_ms: self.now.monotonic_ms + ms,
        };
        let now = self.now;
        self.engine().tick(now);
        self.engine().state_mut().request_watermark_sync();
        self.settle();
    }

    fn send(&mut self, session: u32, frame: Sent) {
        self.handle(session, frame);
        self.settle();
    }

    fn handle(&mut self, session: u32, frame: Sent) {
        let frame = proto::ClientFrame {
            session,
            request: 0,
            frame: Some(frame),
        };
        let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
        let stream = self.stream;
        self.engine().handle(stream, &batch);
    }

    /// A new connection with session 1.
    fn connect(&mut self) {
        self.connect_as(AcknowledgeMode::Client);
    }

    fn connect_as(&mut self, mode: AcknowledgeMode) {
        self.stream += 1;
        let (stream, internal) = (self.stream, self.internal);
        self.engine().open_stream(stream, "test", internal);
        let hello = proto::Hello {
            protocol_version: PROTOCOL_VERSION,
            ..proto::Hello::default()
        };
        self.send(0, Sent::Hello(hello));
        let open = proto::OpenSession {
            acknowledge_mode: mode.into(),
            ..proto::OpenSession::default()
        };
        self.send(1, Sent::OpenSession(open));
    }

    fn close(&mut self) {
        let stream = self.stream;
        self.engine().close_stream(stream);
        self.settle();
    }

    fn producer(&mut self, incarnation: u64, first_unconfirmed: u64) {
        let open = proto::OpenProducer {
            producer: 1,
            destination: Some(orders()),
            incarnation,
            token: self.token(incarnation),
            left_out: Vec::new(),
            first_unconfirmed,
            ..proto::OpenProducer::default()
        };
        self.send(1, Sent::OpenProducer(open));
    }

    fn publish(&mut self, sequence: u64, text: &str) {
        let mut message = Vec::new();
        crate::wire::put_bytes_field(&mut message, 9, text.as_bytes());
        self.publish_message(sequence, message);
    }

    /// Publishes a message without a body that lives for so long.
    fn publish_for(&mut self, sequence: u64, time_to_live_ms: u64) {
        let mut message = Vec::new();
        crate::wire::put_varint_field(&mut message, 3, time_to_live_ms);
        self.publish_message(sequence, message);
    }

    fn publish_message(&mut self, sequence: u64, message: Vec<u8>) {
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![message.into()],
            ..proto::Publish::default()
        };
        self.send(1, Sent::Publish(publish));
    }

    /// Hands one short message of a transaction in, without waiting for anything. Transaction 0: of none.
    fn publish_in(&mut self, sequence: u64, transaction: u64) {
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![bytes::Bytes::from_static(b"\x4a\x01x").to_vec().into()],
            transaction,
            ..proto::Publish::default()
        };
        self.handle(1, Sent::Publish(publish));
    }

    /// Opens a consumer of `orders` with so much credit.
    fn consumer(&mut self, number: u32, message_limit: u64) {
        let open = proto::OpenConsumer {
            consumer: number,
            destination: Some(orders()),
            credit: Some(proto::Credit {
                message_limit,
                ..proto::Credit::default()
            }),
            ..proto::OpenConsumer::default()
        };
        self.send(1, Sent::OpenConsumer(open));
    }

    fn source(&mut self) -> SourceId {
        let state = self.engine().state();
        state.destination(Kind::Queue, "orders").unwrap().id.source()
    }

    fn confirmed(&self) -> Vec<u64> {
        let confirms = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Confirm(confirm)) => Some(&confirm.confirmed),
            _ => None,
        });
        confirms.flatten().flat_map(|range| range.first..=range.last).collect()
    }

    fn rejected(&self) -> Vec<(u64, ErrorCode)> {
        let rejected = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Rejected(rejected)) => Some((rejected.first, rejected.error.as_ref()?.code())),
            _ => None,
        });
        rejected.collect()
    }

    fn errors(&self) -> Vec<ErrorCode> {
        let errors = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Error(error)) => Some(error.code()),
            _ => None,
        });
        errors.collect()
    }

    fn held(&mut self) -> Option<u64> {
        let state = self.engine().state();
        let id = state.destination(Kind::Queue, "orders")?.id;
        Some(state.held_messages(id))
    }
}

fn orders() -> proto::Destination {
    proto::Destination {
        kind: DestinationKind::Queue.into(),
        name: "orders".to_owned(),
    }
}

fn limited() -> Properties {
    Properties {
        messages_max: 1,
        ..Properties::default()
    }
}

#[test]
fn a_failed_sync_is_told_to_whoever_waits_and_to_whoever_comes() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "safe");
    bench.disk.set_faults(Faults {
        fail_sync_at: Some(bench.disk.operations() + 1),
        ..Faults::default()
    });
    bench.publish(2, "in doubt");
    assert_eq!(bench.confirmed(), [1]);
    assert_eq!(bench.errors(), [ErrorCode::StoreFailed]);
    let stream = bench.stream;
    assert!(bench.engine().is_closing(stream), "nobody is left waiting");
    bench.stream += 1;
    let stream = bench.stream;
    bench.engine().open_stream(stream, "test", false);
    let hello = proto::Hello {
        protocol_version: PROTOCOL_VERSION,
        ..proto::Hello::default()
    };
    bench.send(0, Sent::Hello(hello));
    assert_eq!(bench.errors(), [ErrorCode::StoreFailed; 2]);
}

#[test]
fn a_dynamic_queue_has_the_properties_of_its_wildcard_entry_after_a_restart_too() {
    let mut bench = Bench::new(limited());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.start();
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "b");
    assert_eq!(bench.rejected(), [(1, ErrorCode::DestinationFull)]);
    // Another configuration reaches it while a producer has it open.
    bench.properties = Properties::default();
    bench.engine().configure(Configuration::default());
    bench.settle();
    bench.publish(2, "c");
    assert_eq!(bench.rejected().len(), 1);
    assert_eq!(bench.held(), Some(2));
}

#[test]
fn on_a_full_disk_producers_are_refused_and_acknowledgements_go_on() {
    let mut bench = Bench::new(Properties::default());
    bench.internal = false;
    bench.connect();
    bench.producer(0, 0);
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    let text = "x".repeat(16_000);
    let mut sent = 0;
    while bench.confirmed().len() == sent {
        sent += 1;
        assert!(sent < 1000, "the disk is never full");
        bench.publish(sent as u64, &text);
    }
    let full = sent as u64;
    assert_eq!(bench.rejected(), [(full, ErrorCode::StoreFull)]);
    bench.consumer(1, 10_000);
    let source = bench.source().0;
    for last in (8..).step_by(8).take_while(|last| *last < sent as u64 + 8) {
        let ranges = vec![proto::SequenceRange { first: 1, last }];
        let sets = vec![proto::AckSet {
            source,
            ranges,
            epoch: 0,
        }];
        bench.send(1, Sent::Acknowledge(proto::Ack { sets, transaction: 0 }));
        bench.advance(1_000);
    }
    bench.publish(full + 1, &text);
    bench.settle();
    let taken = (1..=full + 1).filter(|sequence| *sequence != full);
    assert_eq!((bench.rejected().len(), bench.confirmed()), (1, taken.collect()));
}

// covers: EMS-DEST-A04
#[test]
fn a_dynamic_queue_goes_when_nobody_needs_it_and_not_before() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for _ in 0..4 {
        bench.advance(300_000);
    }
    assert_eq!(bench.held(), Some(0), "a client has it open");
    bench.publish(1, "a");
    bench.close();
    for _ in 0..4 {
        bench.advance(300_000);
    }
    assert_eq!(bench.held(), Some(1), "it holds a message");
    bench.engine().purge_queue("orders").unwrap();
    bench.advance(300_000);
    assert_eq!(bench.held(), Some(0), "not at once");
    bench.advance(300_000);
    assert_eq!(bench.held(), None);
    bench.start();
    assert_eq!(bench.held(), None);
}

// covers: EMS-DEST-A04
#[test]
fn a_dynamic_queue_stays_as_long_unused_as_it_is_set() {
    for idle_ms in [1_000, 3_600_000] {
        let mut bench = Bench::new(Properties::default());
        bench.engine().settings.dynamic_idle_ms = idle_ms;
        let half_ms = u64::from(idle_ms) / 2;
        // The first look had its time by what was set before.
        bench.advance(u64::from(Settings::default().dynamic_idle_ms) / 2);
        bench.connect();
        bench.producer(0, 0);
        bench.close();
        bench.advance(half_ms - 1);
        assert_eq!(bench.held(), Some(0), "{idle_ms} ms: it was in use at the look before");
        bench.advance(half_ms);
        assert_eq!(bench.held(), Some(0), "{idle_ms} ms: one look found it unused");
        bench.advance(half_ms);
        assert_eq!(bench.held(), None, "{idle_ms} ms: two did");
    }
}

#[test]
fn a_message_that_was_refused_is_not_confirmed_when_it_is_sent_again_behind_later_ones() {
    let mut bench = Bench::new(limited());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "refused");
    bench.engine().purge_queue("orders").unwrap();
    bench.publish(3, "c");
    assert_eq!((bench.confirmed(), bench.rejected().len()), (vec![1, 3], 1));
    let incarnation = bench.incarnation();
    // The answers are lost with the connection, and all is sent again.
    bench.reconnect();
    bench.producer(incarnation, 2);
    bench.publish(2, "refused");
    bench.publish(3, "c");
    assert_eq!(bench.rejected(), [(2, ErrorCode::DestinationFull)]);
    assert_eq!(bench.confirmed(), [3]);
    bench.engine().purge_queue("orders").unwrap();
    bench.reconnect();
    bench.producer(incarnation, 2);
    bench.publish(2, "refused");
    assert_eq!((bench.confirmed(), bench.held()), (vec![2], Some(1)));
    bench.publish(2, "refused");
    assert_eq!((bench.confirmed(), bench.held()), (vec![2, 2], Some(1)));
}
