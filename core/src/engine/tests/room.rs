//! What becomes of things that have to be logged while the log has no room for them.

use super::*;
use crate::log::AppendError;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;
use crate::state::{Origin, OverflowPolicy, StateError};

impl Bench {
    /// Fills the log to its last record, the reserve included, until upkeep runs again.
    pub(super) fn exhaust(&mut self) {
        self.fill(usize::MAX);
    }

    /// As `exhaust`, by so many records at most, each with a block of its own; how many it took.
    pub(super) fn fill(&mut self, most: usize) -> usize {
        let queue = |bench: &mut Self, name: &str| {
            let name = crate::name::DestinationName::parse(name).unwrap();
            let state = bench.engine().state_mut();
            let made = state.ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default());
            made.unwrap().source()
        };
        let (here, there) = (queue(self, "here"), queue(self, "there"));
        let before = self.engine().state().source(here).unwrap().next_sequence;
        let message = crate::message::MessageView::parse(&[]).unwrap();
        let incoming = crate::state::Incoming {
            view: &message,
            uploaded: &[],
            incarnation: 0,
            sequence: 0,
            connection: 0,
            client_id: "",
            user: "",
            transaction: None,
            may_be_again: false,
        };
        let to = crate::state::DestinationId(here.0);
        self.engine().state_mut().publish(to, &incoming).unwrap();
        self.run(false);
        let (mut from, mut to, mut sequence) = (here, there, before);
        for moved in 0..most {
            let next = self.engine().state().source(to).unwrap().next_sequence;
            match self.engine().state_mut().move_message(from, sequence, to, "test") {
                Ok(()) => (from, to, sequence) = (to, from, next),
                Err(StateError::Append(AppendError::NoSpace)) => return moved,
                Err(other) => panic!("{other}"),
            }
            // A move is gated until it is durable.
            self.run(false);
        }
        most
    }

    fn grant(&mut self, consumer: u32, message_limit: u64) {
        let credit = proto::Credit {
            consumer,
            message_limit,
            ..proto::Credit::default()
        };
        self.handle(1, Sent::Credit(credit));
    }

    fn deliveries(&self) -> Vec<(u64, bool)> {
        let deliver = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(&deliver.deliveries),
            _ => None,
        });
        let deliveries = deliver.flatten();
        deliveries.map(|one| (one.sequence, one.redelivered)).collect()
    }

    fn acknowledge_in(&mut self, last: u64, transaction: u64) {
        let sets = vec![proto::AckSet {
            source: self.source().0,
            ranges: vec![proto::SequenceRange { first: 1, last }],
            epoch: 0,
        }];
        self.send(1, Sent::Acknowledge(proto::Ack { sets, transaction }));
    }

    /// Asks for a decision under the transaction's number as request.
    pub(super) fn decide(&mut self, transaction: u64, verb: Verb) {
        let transact = proto::Transact {
            transaction,
            verb: verb.into(),
            xid: (!matches!(verb, Verb::Commit | Verb::Rollback)).then(|| proto::Xid {
                format: 1,
                global: vec![7],
                branch: vec![],
            }),
            seen: Vec::new(),
        };
        self.ask(transaction as u32, Sent::Transact(transact));
    }

    /// Sends a frame that wants an answer.
    pub(super) fn ask(&mut self, request: u32, frame: Sent) {
        let frame = proto::ClientFrame {
            session: 1,
            request,
            frame: Some(frame),
        };
        let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
        let stream = self.stream;
        self.engine().handle(stream, &batch);
    }

    pub(super) fn answer(&self, request: u32) -> Option<Answered> {
        self.frames.iter().find_map(|frame| match &frame.frame {
            Some(Got::Reply(reply)) if reply.request == request => reply.result.clone(),
            _ => None,
        })
    }
}

pub(super) fn code(answered: Option<Answered>) -> Option<ErrorCode> {
    match answered {
        Some(Answered::Error(error)) => Some(error.code()),
        _ => None,
    }
}

fn is_rolled_back(answered: Option<Answered>) -> bool {
    matches!(answered, Some(Answered::Transacted(transacted)) if transacted.rolled_back)
}

// covers: EMS-CLI-A06
#[test]
fn what_was_sent_without_acknowledgements_does_not_come_again_although_its_end_found_no_room() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::None);
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "b");
    bench.consumer(1, 0);
    bench.exhaust();
    bench.grant(1, 1);
    bench.run(false);
    assert_eq!(bench.deliveries(), [(1, false)]);
    assert_eq!(bench.held(), Some(2), "its end is not logged");
    // Whatever gives back what a session holds leaves it alone.
    bench.handle(1, Sent::Recover(proto::Recover::default()));
    let sets = vec![proto::AckSet {
        source: bench.source().0,
        ranges: vec![proto::SequenceRange { first: 1, last: 1 }],
        epoch: 0,
    }];
    bench.handle(
        1,
        Sent::Release(proto::Release {
            sets,
            seen: false,
            delay_ms: 0,
        }),
    );
    let close = proto::CloseConsumer {
        consumer: 1,
        seen: Vec::new(),
    };
    bench.handle(1, Sent::CloseConsumer(close));
    bench.handle(1, Sent::CloseSession(proto::CloseSession::default()));
    bench.settle();
    assert_eq!(bench.held(), Some(1), "it is forgotten once there is room");
    bench.connect();
    bench.consumer(1, 10);
    assert_eq!(bench.deliveries(), [(1, false), (2, false)]);
}

#[test]
fn an_acknowledgement_that_finds_no_room_holds_and_is_answered_when_there_is_some() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "b");
    bench.consumer(1, 2);
    bench.exhaust();
    let ack = |bench: &mut Bench, request: u32, sequence: u64| {
        let sets = vec![proto::AckSet {
            source: bench.source().0,
            ranges: vec![proto::SequenceRange {
                first: sequence,
                last: sequence,
            }],
            epoch: 0,
        }];
        bench.ask(request, Sent::Acknowledge(proto::Ack { sets, transaction: 0 }));
        bench.run(false);
    };
    ack(&mut bench, 1, 1);
    ack(&mut bench, 2, 2);
    // What is acknowledged is not given back, not even when the session ends.
    bench.handle(1, Sent::Recover(proto::Recover::default()));
    bench.close();
    assert_eq!(
        (bench.held(), bench.deliveries().len()),
        (Some(0), 2),
        "upkeep made room"
    );
    assert!(bench.answer(1).is_none(), "nobody is there to be answered");

    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "c");
    bench.consumer(1, 1);
    bench.exhaust();
    ack(&mut bench, 3, 3);
    assert_eq!((bench.answer(3), bench.held()), (None, Some(1)));
    bench.settle();
    assert!(matches!(bench.answer(3), Some(Answered::Done(_))));
    assert_eq!(bench.held(), Some(0));
}

#[test]
fn an_acknowledgement_that_finds_room_for_its_first_part_only_counts_each_message_once() {
    // More than one record names: the first 4,096 in a run, then every second one.
    let (run, gaps) = (4096_u64, 2500_u64);
    let prepare = || {
        let mut bench = Bench::new(Properties::default());
        bench.connect();
        bench.producer(0, 0);
        // No more at once than a segment takes.
        for (first, count) in [
            (1, run / 2),
            (1 + run / 2, run / 2),
            (1 + run, gaps),
            (1 + run + gaps, gaps),
        ] {
            let publish = proto::Publish {
                producer: 1,
                first_sequence: first,
                messages: vec![bytes::Bytes::from_static(b"\x4a\x01x").to_vec().into(); count as usize],
                ..proto::Publish::default()
            };
            bench.send(1, Sent::Publish(publish));
        }
        bench.consumer(1, run + 2 * gaps);
        assert_eq!(bench.deliveries().len() as u64, run + 2 * gaps);
        bench
    };
    let full = prepare().fill(usize::MAX);
    let mut bench = prepare();
    bench.fill(full - 1);
    let every_second = (0..gaps).map(|gap| proto::SequenceRange {
        first: run + 2 + 2 * gap,
        last: run + 2 + 2 * gap,
    });
    let ranges = std::iter::once(proto::SequenceRange { first: 1, last: run }).chain(every_second);
    let sets = vec![proto::AckSet {
        source: bench.source().0,
        ranges: ranges.collect(),
        epoch: 0,
    }];
    bench.ask(1, Sent::Acknowledge(proto::Ack { sets, transaction: 0 }));
    bench.run(false);
    let unacknowledged = |bench: &mut Bench| {
        let counted: u64 = bench.engine().sessions.values().map(|one| one.unacknowledged).sum();
        (counted, bench.held())
    };
    assert_eq!(
        (unacknowledged(&mut bench), bench.answer(1)),
        ((2 * gaps, Some(2 * gaps)), None),
        "its first record found room"
    );
    bench.settle();
    assert_eq!(unacknowledged(&mut bench), (gaps, Some(gaps)));
    assert!(matches!(bench.answer(1), Some(Answered::Done(_))));
}

#[test]
fn a_prepare_of_what_holds_nothing_leaves_nothing_to_decide() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    let read_only = |answered| match answered {
        Some(Answered::Transacted(done)) => done.read_only,
        other => panic!("{other:?}"),
    };
    bench.decide(1, Verb::Prepare);
    bench.settle();
    assert!(read_only(bench.answer(1)), "never named before");
    // Nothing of what it names is held.
    bench.acknowledge_in(5, 2);
    bench.decide(2, Verb::Prepare);
    bench.settle();
    assert!(read_only(bench.answer(2)));
    assert!(bench.engine().state().prepared().is_empty());
    bench.decide(3, Verb::CommitPrepared);
    bench.settle();
    assert_eq!(code(bench.answer(3)), Some(ErrorCode::NoSuchTransaction));
    // The numbers are free again.
    bench.publish_in(1, 2);
    bench.decide(2, Verb::Prepare);
    bench.frames.clear();
    bench.settle();
    assert!(!read_only(bench.answer(2)), "it holds a message");
    assert_eq!(bench.engine().state().prepared().len(), 1);
    bench.decide(4, Verb::CommitPrepared);
    bench.settle();
    assert!(!read_only(bench.answer(4)));
    assert_eq!(bench.held(), Some(1));
}

#[test]
fn a_prepare_that_finds_no_room_rolls_back_and_says_so() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.publish_in(1, 1);
    bench.settle();
    bench.decide(1, Verb::Commit);
    bench.settle();
    bench.consumer(1, 10);
    assert_eq!(bench.deliveries(), [(1, false)]);
    bench.publish_in(2, 2);
    bench.settle();
    bench.acknowledge_in(1, 2);
    bench.exhaust();
    bench.decide(2, Verb::Prepare);
    bench.run(false);
    assert_eq!(code(bench.answer(2)), Some(ErrorCode::TransactionRolledBack));
    assert!(bench.engine().state().prepared().is_empty());
    bench.settle();
    assert_eq!(
        bench.deliveries(),
        [(1, false), (1, true)],
        "what it acknowledged comes again"
    );
    let id = bench.source();
    let statistics = bench.engine().state().source(id).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.pending_messages), (1, 0));
}

#[test]
fn a_prepare_under_a_name_that_is_taken_leaves_the_transaction_as_it_is() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    for (sequence, transaction) in [(1, 1), (2, 2)] {
        bench.publish_in(sequence, transaction);
        bench.decide(transaction, Verb::Prepare);
        bench.settle();
    }
    assert!(matches!(bench.answer(1), Some(Answered::Transacted(_))));
    assert!(code(bench.answer(2)).is_some());
    bench.frames.clear();
    bench.decide(2, Verb::Commit);
    bench.settle();
    assert!(matches!(bench.answer(2), Some(Answered::Transacted(done)) if !done.rolled_back));
    assert_eq!(bench.engine().state().prepared().len(), 1);
    let id = bench.source();
    assert_eq!(bench.engine().state().source(id).unwrap().statistics.messages, 1);
}

#[test]
fn a_rollback_that_finds_no_room_is_done_when_there_is_some() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.publish_in(1, 1);
    bench.decide(1, Verb::Commit);
    bench.settle();
    bench.consumer(1, 10);
    bench.publish_in(2, 2);
    bench.settle();
    bench.acknowledge_in(1, 2);
    bench.exhaust();
    bench.decide(2, Verb::Rollback);
    bench.run(false);
    assert!(is_rolled_back(bench.answer(2)), "its client need not wait");
    let id = bench.source();
    let pending = |bench: &mut Bench| bench.engine().state().source(id).unwrap().statistics.pending_messages;
    assert_eq!((pending(&mut bench), bench.deliveries()), (1, vec![(1, false)]));
    assert!(
        bench.engine().poll().deadline_ms.is_some(),
        "it is tried again by itself"
    );
    bench.settle();
    assert_eq!(
        (pending(&mut bench), bench.deliveries()),
        (0, vec![(1, false), (1, true)])
    );
}

#[test]
fn a_rollback_does_not_wait_behind_its_own_messages() {
    let mut bench = Bench::new(Properties::default());
    bench.internal = false;
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.exhaust();
    bench.publish_in(1, 1);
    bench.decide(1, Verb::Commit);
    bench.publish_in(2, 2);
    bench.decide(2, Verb::Rollback);
    bench.run(false);
    assert_eq!(bench.answer(1), None, "a commit keeps its place behind what it commits");
    assert!(is_rolled_back(bench.answer(2)));
    bench.settle();
    assert!(matches!(bench.answer(1), Some(Answered::Transacted(done)) if !done.rolled_back));
    // The number of what was dropped is used up, and the next one goes on behind it.
    bench.publish_in(3, 3);
    bench.decide(3, Verb::Commit);
    bench.settle();
    assert!(matches!(bench.answer(3), Some(Answered::Transacted(done)) if !done.rolled_back));
    assert_eq!((bench.errors(), bench.held()), (vec![], Some(2)));
}

#[test]
fn a_full_disk_keeps_its_reserve_from_what_clients_would_bring_into_being() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.exhaust();
    bench.frames.clear();
    let open = |name: &str| {
        Sent::OpenProducer(proto::OpenProducer {
            producer: name.len() as u32,
            destination: Some(proto::Destination {
                kind: DestinationKind::Queue.into(),
                name: name.to_owned(),
            }),
            ..proto::OpenProducer::default()
        })
    };
    bench.settle();
    bench.send(1, open("another"));
    assert_eq!(bench.errors(), [], "with room it is made");
    bench.disk.set_faults(Faults {
        space_bytes: Some(0),
        ..Faults::default()
    });
    // The prepared segments are used up to the reserve, as messages would.
    let text = "x".repeat(16_000);
    for sequence in 1.. {
        bench.publish(sequence, &text);
        if bench.engine().state().lacks_room(16_000) {
            break;
        }
    }
    bench.ask(7, open("one.more"));
    bench.settle();
    assert_eq!(code(bench.answer(7)), Some(ErrorCode::StoreFull));
    // The reserve is there for what takes messages out.
    let held = bench.held().unwrap();
    assert_eq!(bench.engine().purge_queue("orders").unwrap(), held);
}

// covers: EMS-DEST-A24
#[test]
fn what_could_not_be_discarded_for_want_of_room_is_still_delivered() {
    let mut bench = Bench::new(Properties {
        messages_max: 1,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    });
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.consumer(1, 0);
    bench.exhaust();
    // It needs no room itself, for it is not logged; that the older one is discarded has to be.
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 2,
        messages: vec![bytes::Bytes::from_static(b"\x08\x01\x4a\x01b").to_vec().into()],
        ..proto::Publish::default()
    };
    bench.handle(1, Sent::Publish(publish));
    bench.run(false);
    bench.grant(1, 1);
    bench.run(false);
    assert_eq!(bench.deliveries(), [(1, false)]);
}
