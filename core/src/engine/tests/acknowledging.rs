//! Acknowledgements that name what the session does not hold.

use super::*;
use crate::proto::transact::Verb;
use crate::state::LOOKED_AT;

fn set(source: u64, last: u64) -> proto::AckSet {
    proto::AckSet {
        source,
        ranges: vec![proto::SequenceRange { first: 1, last }],
        epoch: 0,
    }
}

fn topic() -> proto::OpenConsumer {
    proto::OpenConsumer {
        consumer: 2,
        destination: Some(proto::Destination {
            kind: DestinationKind::Topic.into(),
            name: "news".to_owned(),
        }),
        ..proto::OpenConsumer::default()
    }
}

impl Bench {
    /// A message of the queue in hand, and a subscription that is gone again; the numbers of both sources.
    fn one_in_hand_and_a_subscription_gone(&mut self) -> (u64, u64) {
        self.consumer(1, 5);
        let subscribe = proto::ClientFrame {
            session: 1,
            request: 9,
            frame: Some(Sent::OpenConsumer(topic())),
        };
        let stream = self.stream;
        let batch = proto::ClientBatch {
            frames: vec![subscribe],
        };
        self.engine().handle(stream, &batch.encode_to_vec());
        self.settle();
        let gone = self.frames.iter().find_map(|frame| match &frame.frame {
            Some(Got::Reply(reply)) if reply.request == 9 => match &reply.result {
                Some(proto::reply::Result::ConsumerOpened(opened)) => Some(opened.source),
                other => panic!("{other:?}"),
            },
            _ => None,
        });
        let close = proto::CloseConsumer {
            consumer: 2,
            seen: Vec::new(),
        };
        self.send(1, Sent::CloseConsumer(close));
        (self.source().0, gone.unwrap())
    }
}

#[test]
fn what_is_named_beside_a_subscription_that_is_gone_is_acknowledged_all_the_same() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    let (queue, gone) = bench.one_in_hand_and_a_subscription_gone();
    let ack = proto::Ack {
        sets: vec![set(gone, 3), set(queue, 1)],
        transaction: 0,
    };
    bench.send(1, Sent::Acknowledge(ack));
    assert_eq!((bench.errors(), bench.held()), (vec![], Some(0)));
}

#[test]
fn a_transaction_takes_what_is_named_beside_a_subscription_that_is_gone() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.close();
    bench.connect_as(AcknowledgeMode::Transacted);
    let (queue, gone) = bench.one_in_hand_and_a_subscription_gone();
    let ack = proto::Ack {
        sets: vec![set(gone, 3), set(queue, 1)],
        transaction: 1,
    };
    bench.send(1, Sent::Acknowledge(ack));
    let commit = proto::Transact {
        transaction: 1,
        verb: Verb::Commit.into(),
        ..proto::Transact::default()
    };
    bench.send(1, Sent::Transact(commit));
    assert_eq!((bench.errors(), bench.held()), (vec![], Some(0)));
}

impl Bench {
    fn acknowledge(&mut self, source: u64, last: u64, epoch: u64) {
        let sets = vec![proto::AckSet {
            epoch,
            ..set(source, last)
        }];
        self.send(1, Sent::Acknowledge(proto::Ack { sets, transaction: 0 }));
    }

    /// A consumer of the queue with all the credit it can use; the queue's number.
    fn consumer_of_orders(&mut self) -> u64 {
        let open = proto::OpenConsumer {
            consumer: 1,
            destination: Some(orders()),
            credit: Some(proto::Credit {
                message_limit: 10,
                ..proto::Credit::default()
            }),
            ..proto::OpenConsumer::default()
        };
        self.send(1, Sent::OpenConsumer(open));
        let state = self.engine().state();
        state.destination(Kind::Queue, "orders").unwrap().id.source().0
    }

    /// Sequence and flag of each delivery since the last look.
    fn took(&mut self) -> Vec<(u64, bool)> {
        let frames = std::mem::take(&mut self.frames);
        let deliver = frames.into_iter().filter_map(|frame| match frame.frame {
            Some(Got::Deliver(deliver)) => Some(deliver.deliveries),
            _ => None,
        });
        deliver.flatten().map(|one| (one.sequence, one.redelivered)).collect()
    }
}

#[test]
fn an_acknowledgement_of_an_earlier_epoch_names_deliveries_that_nobody_holds() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.consumer_of_orders();
    let before = bench.engine().state().epoch();
    bench.start();
    bench.connect();
    let queue = bench.consumer_of_orders();
    bench.acknowledge(queue, 1, before);
    assert_eq!(bench.held(), Some(1));
    let now = bench.engine().state().epoch();
    bench.acknowledge(queue, 1, now);
    assert_eq!(bench.held(), Some(0));
}

#[test]
fn a_session_at_its_limit_gets_no_more_until_it_acknowledges() {
    let mut bench = Bench::new(Properties::default());
    bench.engine().settings.limits.unacknowledged_messages = 2;
    bench.connect();
    bench.producer(0, 0);
    for sequence in 1..=4 {
        bench.publish(sequence, "a");
    }
    let queue = bench.consumer_of_orders();
    assert_eq!(bench.took(), [(1, false), (2, false)]);
    bench.acknowledge(queue, 1, 0);
    assert_eq!(bench.took(), [(3, false)]);
}

/// Two messages that were delivered, and that the first was handed to the application.
fn two_of_which_one_was_seen() -> (Bench, Vec<proto::SeenSet>) {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "b");
    let queue = bench.consumer_of_orders();
    assert_eq!(bench.took(), [(1, false), (2, false)]);
    let seen = proto::SeenSet {
        source: queue,
        ranges: vec![proto::SequenceRange { first: 1, last: 1 }],
    };
    (bench, vec![seen])
}

// covers: EMS-DEST-A23
#[test]
fn a_recover_flags_what_the_application_saw_and_nothing_else() {
    let (mut bench, seen) = two_of_which_one_was_seen();
    bench.send(1, Sent::Recover(proto::Recover { seen }));
    assert_eq!(bench.took(), [(1, true), (2, false)]);
}

// covers: EMS-DEST-A23
#[test]
fn a_goodbye_flags_what_the_application_has_in_hand_and_nothing_else() {
    let (mut bench, seen) = two_of_which_one_was_seen();
    bench.send(0, Sent::Goodbye(proto::Goodbye { seen }));
    bench.connect();
    bench.consumer_of_orders();
    assert_eq!(bench.took(), [(1, true), (2, false)]);
}

#[test]
fn a_frame_of_very_many_ranges_costs_what_is_in_flight() {
    // What overlaps, what is far apart, and what comes in several sets: 20,000 ranges each, which name all but the first.
    let overlapping: Vec<(u64, u64)> = (2..20_002).map(|first| (first, u64::MAX)).collect();
    let apart: Vec<(u64, u64)> = (0..20_000).map(|n| (2 + n * 1_000, 1_000 + n * 1_000)).collect();
    for (ranges, sets) in [(&overlapping, 1), (&apart, 1), (&overlapping, 20_000)] {
        for releases in [true, false] {
            let mut bench = Bench::new(Properties::default());
            bench.connect();
            bench.producer(0, 0);
            bench.consumer(1, 1_000);
            (1..=100).for_each(|sequence| bench.publish(sequence, "a"));
            let source = bench.source().0;
            let set = |ranges: &[(u64, u64)]| proto::AckSet {
                source,
                ranges: ranges
                    .iter()
                    .map(|&(first, last)| proto::SequenceRange { first, last })
                    .collect(),
                epoch: 0,
            };
            let sets: Vec<proto::AckSet> = ranges.chunks(ranges.len() / sets).map(set).collect();
            LOOKED_AT.with(|looked| looked.set(0));
            bench.handle(
                1,
                if releases {
                    Sent::Release(proto::Release {
                        sets,
                        seen: true,
                        delay_ms: 0,
                    })
                } else {
                    Sent::Acknowledge(proto::Ack { sets, transaction: 0 })
                },
            );
            let looked = LOOKED_AT.with(std::cell::Cell::get);
            assert!(looked <= 100, "{looked} looked at to find 99, releasing: {releases}");
            bench.settle();
            assert_eq!(bench.held(), Some(if releases { 100 } else { 1 }));
        }
    }
}
