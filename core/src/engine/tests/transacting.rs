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
    fn decided(&mut self, transaction: u64, verb: Verb) -> Answered {
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
