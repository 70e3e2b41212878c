//! Transactions of which a part cannot be taken in.

use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;

impl Bench {
    /// Sends one message with the anonymous producer 2.
    fn publish_to(&mut self, name: &str, sequence: u64, transaction: u64) {
        let publish = proto::Publish {
            producer: 2,
            first_sequence: sequence,
            messages: vec![bytes::Bytes::from_static(b"\x4a\x01x").to_vec().into()],
            destination: Some(proto::Destination {
                kind: DestinationKind::Queue.into(),
                name: name.to_owned(),
            }),
            transaction,
        };
        self.send(1, Sent::Publish(publish));
    }

    /// Asks for a decision, and says how it was answered.
    pub(super) fn decided(&mut self, transaction: u64, verb: Verb) -> Answered {
        let transact = proto::Transact {
            transaction,
            verb: verb.into(),
            xid: (verb == Verb::Prepare).then(|| proto::Xid {
                format: 1,
                global: vec![7],
                branch: vec![],
            }),
            seen: Vec::new(),
        };
        let frame = proto::ClientFrame {
            session: 1,
            request: 5,
            frame: Some(Sent::Transact(transact)),
        };
        self.frames.clear();
        let stream = self.stream;
        let batch = proto::ClientBatch { frames: vec![frame] };
        self.engine().handle(stream, &batch.encode_to_vec());
        self.settle();
        let mut answers = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Reply(reply)) if reply.request == 5 => reply.result.clone(),
            _ => None,
        });
        answers.next().unwrap()
    }
}

// covers: EMS-TX-A02
#[test]
fn a_transaction_whose_very_first_message_finds_no_destination_is_rolled_back_as_a_whole() {
    for verb in [Verb::Commit, Verb::Prepare] {
        let mut bench = Bench::new(Properties::default());
        bench.connect_as(AcknowledgeMode::Transacted);
        let open = proto::OpenProducer {
            producer: 2,
            ..proto::OpenProducer::default()
        };
        bench.send(1, Sent::OpenProducer(open));
        bench.publish_to("not..legal", 1, 1);
        assert_eq!(bench.rejected(), [(1, ErrorCode::InvalidName)]);
        bench.publish_to("orders", 2, 1);
        let Answered::Error(error) = bench.decided(1, verb) else {
            panic!("a part of the transaction was taken in");
        };
        assert_eq!(error.code(), ErrorCode::TransactionRolledBack);
        assert_eq!(bench.held(), Some(0));
        // The next one has nothing to do with it.
        bench.publish_to("orders", 3, 2);
        assert!(matches!(bench.decided(2, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
        assert_eq!(bench.held(), Some(1));
    }
}

// covers: EMS-MSG-A19
#[test]
fn nobody_hears_that_a_reliable_message_found_no_destination() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    let open = proto::OpenProducer {
        producer: 2,
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open));
    let mut reliable = Vec::new();
    crate::wire::put_varint_field(&mut reliable, 1, 2);
    let publish = proto::Publish {
        producer: 2,
        first_sequence: 1,
        messages: vec![reliable.into(), Vec::new().into()],
        destination: Some(proto::Destination {
            kind: DestinationKind::Queue.into(),
            name: "not..legal".to_owned(),
        }),
        transaction: 0,
    };
    bench.send(1, Sent::Publish(publish));
    assert_eq!(
        bench.rejected(),
        [(2, ErrorCode::InvalidName)],
        "only the persistent one"
    );
}

// covers: EMS-TX-A02
#[test]
fn a_transaction_whose_reliable_message_was_not_taken_in_is_rolled_back_though_nobody_heard_of_it() {
    let mut reliable = Vec::new();
    crate::wire::put_varint_field(&mut reliable, 1, 2);
    // Refused with its whole frame, or by itself: it lacks its upload.
    let mut lacks_upload = reliable.clone();
    crate::wire::put_bytes_field(&mut lacks_upload, 14, &[9, 77, 0, 0, 0, 0, 0, 0, 0]);
    for (name, refused) in [("not..legal", &reliable), ("orders", &lacks_upload)] {
        let mut bench = Bench::new(Properties::default());
        bench.connect_as(AcknowledgeMode::Transacted);
        let open = proto::OpenProducer {
            producer: 2,
            ..proto::OpenProducer::default()
        };
        bench.send(1, Sent::OpenProducer(open));
        bench.publish_to("orders", 1, 1);
        let publish = proto::Publish {
            producer: 2,
            first_sequence: 2,
            messages: vec![refused.clone().into()],
            destination: Some(proto::Destination {
                kind: DestinationKind::Queue.into(),
                name: name.to_owned(),
            }),
            transaction: 1,
        };
        bench.send(1, Sent::Publish(publish));
        assert_eq!(bench.rejected(), []);
        let Answered::Error(error) = bench.decided(1, Verb::Commit) else {
            panic!("{name}: a part of the transaction was not taken in");
        };
        assert_eq!(error.code(), ErrorCode::TransactionRolledBack);
        assert_eq!(bench.held(), Some(0));
    }
}

// covers: EMS-TX-A02
#[test]
fn a_session_has_a_bounded_number_of_open_transactions_and_what_is_past_it_is_rolled_back() {
    let mut bench = Bench::new(Properties::default());
    bench.limits.transactions = 2;
    bench.start();
    bench.connect_as(AcknowledgeMode::Transacted);
    let open = proto::OpenProducer {
        producer: 2,
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open));
    for transaction in 1..=3 {
        bench.publish_to("orders", transaction, transaction);
    }
    assert_eq!(bench.rejected(), [(3, ErrorCode::LimitExceeded)]);
    // One that is open takes more; one that begins with an acknowledgement counts as well.
    bench.publish_to("orders", 4, 2);
    let nothing = proto::Ack {
        sets: vec![],
        transaction: 4,
    };
    bench.send(1, Sent::Acknowledge(nothing));
    assert_eq!(bench.errors(), [ErrorCode::LimitExceeded]);
    // With room again, the numbers that were refused are decided as what they are.
    assert!(matches!(bench.decided(1, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    for (refused, verb) in [(3, Verb::Commit), (4, Verb::Prepare)] {
        let Answered::Error(error) = bench.decided(refused, verb) else {
            panic!("transaction {refused} lacks what was refused");
        };
        assert_eq!(
            (error.code(), error.subject.as_str()),
            (ErrorCode::TransactionRolledBack, "transactions")
        );
    }
    bench.publish_to("orders", 5, 5);
    for transaction in [2, 5] {
        assert!(matches!(bench.decided(transaction, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    }
    assert_eq!(bench.held(), Some(4), "1, 2, 4 and 5");
}

// covers: EMS-TX-A02
#[test]
fn a_transaction_that_acknowledges_more_than_it_may_hold_is_rolled_back() {
    let mut bench = Bench::new(Properties::default());
    bench.limits.transaction_messages = 1;
    bench.start();
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    for (sequence, transaction) in [(1, 1), (2, 2)] {
        bench.publish_in(sequence, transaction);
        assert!(matches!(bench.decided(transaction, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    }
    bench.consumer(1, 10);
    let sets = vec![proto::AckSet {
        source: bench.source().0,
        ranges: vec![proto::SequenceRange { first: 1, last: 2 }],
        epoch: 0,
    }];
    bench.send(1, Sent::Acknowledge(proto::Ack { sets, transaction: 3 }));
    assert_eq!(bench.errors(), [ErrorCode::LimitExceeded]);
    let Answered::Error(error) = bench.decided(3, Verb::Commit) else {
        panic!("it held too much");
    };
    assert_eq!(
        (error.code(), error.subject.as_str()),
        (ErrorCode::TransactionRolledBack, "transaction_messages")
    );
    assert_eq!(bench.held(), Some(2), "nothing of it was taken out");
}

impl Bench {
    /// A transacted session that was sent the two messages of `orders`, which is then served elsewhere for a moment.
    fn with_withdrawn() -> (Self, SourceId) {
        let mut bench = Bench::new(Properties::default());
        bench.connect();
        bench.producer(0, 0);
        bench.publish(1, "a");
        bench.publish(2, "b");
        bench.connect_as(AcknowledgeMode::Transacted);
        let open = proto::OpenProducer {
            producer: 2,
            ..proto::OpenProducer::default()
        };
        bench.send(1, Sent::OpenProducer(open));
        bench.consumer(1, 10);
        let source = bench.source();
        (bench, source)
    }

    fn withdraw(&mut self, source: SourceId) {
        let reason = errors::refuse(ErrorCode::Moved, "orders", "It lives elsewhere.");
        self.engine().close_consumers_of(source, &reason, true);
        self.settle();
    }

    fn acknowledge_of(&mut self, source: SourceId, first: u64, last: u64, transaction: u64) {
        let sets = vec![proto::AckSet {
            source: source.0,
            ranges: vec![proto::SequenceRange { first, last }],
            epoch: 0,
        }];
        self.send(1, Sent::Acknowledge(proto::Ack { sets, transaction }));
    }

    fn held_by(&mut self, name: &str) -> u64 {
        let state = self.engine().state();
        let found = state.destination(Kind::Queue, name).map(|found| found.id);
        found.map_or(0, |id| state.held_messages(id))
    }
}

// covers: EMS-TX-A02
#[test]
fn what_was_taken_from_a_session_without_its_doing_is_acknowledged_by_no_transaction() {
    for (verb, answered) in [(Verb::Commit, 2), (Verb::Prepare, 2)] {
        let (mut bench, source) = Bench::with_withdrawn();
        bench.withdraw(source);
        // The client has not heard of it: it has worked on the first message, and sends what came of it.
        bench.publish_to("results", 1, 7);
        bench.acknowledge_of(source, 1, 1, 7);
        let Answered::Error(error) = bench.decided(7, verb) else {
            panic!("somebody else is given the message, too");
        };
        assert_eq!(
            (error.code(), error.subject.as_str()),
            (ErrorCode::TransactionRolledBack, "acknowledge")
        );
        assert_eq!((bench.held_by("results"), bench.held()), (0, Some(answered)));
        // Nothing else of the session is concerned; and what it is sent again it acknowledges as ever.
        bench.publish_to("results", 2, 8);
        assert!(matches!(bench.decided(8, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
        bench.consumer(2, 10);
        bench.publish_to("results", 3, 9);
        bench.acknowledge_of(source, 1, 2, 9);
        assert!(matches!(bench.decided(9, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
        assert_eq!((bench.held_by("results"), bench.held()), (2, Some(0)));
        // It is over with: to name it once more is passed over, as ever.
        bench.acknowledge_of(source, 1, 2, 10);
        assert!(matches!(bench.decided(10, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    }
}

// covers: EMS-TX-A02
#[test]
fn what_was_acknowledged_in_a_transaction_before_its_consumer_was_closed_is_the_transactions() {
    let (mut bench, source) = Bench::with_withdrawn();
    bench.publish_to("results", 1, 7);
    bench.acknowledge_of(source, 1, 1, 7);
    bench.withdraw(source);
    assert!(matches!(bench.decided(7, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    assert_eq!((bench.held_by("results"), bench.held()), (1, Some(1)));
    // The second one is not.
    bench.publish_to("results", 2, 8);
    bench.acknowledge_of(source, 1, 2, 8);
    assert!(matches!(bench.decided(8, Verb::Commit), Answered::Error(_)));
    assert_eq!((bench.held_by("results"), bench.held()), (1, Some(1)));
}

#[test]
fn where_more_was_taken_than_is_remembered_only_what_is_older_is_committed_by_nobody_who_does_not_hold_it() {
    let (mut bench, source) = Bench::with_withdrawn();
    let withdrawn = |bench: &mut Bench, source: SourceId| {
        let sessions = bench.engine().sessions.values_mut();
        let mut transacted = sessions.filter(|session| session.mode == AcknowledgeMode::Transacted);
        let session = transacted.next().unwrap();
        session
            .withdrawn
            .add(source, (1..=200_000).map(|number| number * 2 + 2));
    };
    // Of another queue: what is acknowledged here again, as after a lost answer, is passed over as ever.
    withdrawn(&mut bench, SourceId(source.0 + 1));
    bench.acknowledge_of(source, 1, 1, 7);
    assert!(matches!(bench.decided(7, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    bench.acknowledge_of(source, 1, 1, 8);
    assert!(matches!(bench.decided(8, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    assert_eq!(bench.held(), Some(1));
    // Of this one it is not known any more: what the session holds is its own, of the rest nothing is committed.
    withdrawn(&mut bench, source);
    bench.acknowledge_of(source, 1, 2, 9);
    assert!(matches!(bench.decided(9, Verb::Commit), Answered::Error(_)));
    assert_eq!(bench.held(), Some(1));
    // Also what it names twice in one transaction.
    bench.acknowledge_of(source, 2, 2, 10);
    bench.acknowledge_of(source, 2, 2, 10);
    assert!(matches!(bench.decided(10, Verb::Commit), Answered::Transacted(done) if !done.rolled_back));
    assert_eq!(bench.held(), Some(0));
}
