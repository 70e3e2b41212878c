//! Transactions that are open for too long.

use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;

const LIMIT_MS: u32 = 60_000;
/// The limit, and what one may be open for longer.
const OVER_MS: u64 = 61_000;

impl Bench {
    /// A transacted session that was sent the three messages of `orders`; a transaction may be open for a minute.
    fn with_limit() -> (Self, SourceId) {
        let mut bench = Bench::new(Properties::default());
        bench.limits.transaction_ms = LIMIT_MS;
        bench.start();
        bench.connect();
        bench.producer(0, 0);
        for (sequence, text) in [(1, "a"), (2, "b"), (3, "c")] {
            bench.publish(sequence, text);
        }
        bench.transacted();
        bench.consumer(1, 100);
        let source = bench.source();
        (bench, source)
    }

    /// Time passes, moment by moment: an engine that is not asked for longer was stopped.
    fn pass(&mut self, ms: u64) {
        let mut left_ms = ms;
        while left_ms > 0 {
            let step_ms = left_ms.min(400);
            self.advance(step_ms);
            left_ms -= step_ms;
        }
    }

    fn transacted(&mut self) {
        self.connect_as(AcknowledgeMode::Transacted);
        let open = proto::OpenProducer {
            producer: 2,
            ..proto::OpenProducer::default()
        };
        self.send(1, Sent::OpenProducer(open));
    }

    fn handed_out(&mut self, source: SourceId, first: u64, last: u64, transaction: u64) {
        let sets = vec![proto::SeenSet {
            source: source.0,
            ranges: vec![proto::SequenceRange { first, last }],
        }];
        self.send(1, Sent::HandedOut(proto::HandedOut { transaction, sets }));
    }

    fn ended(&self) -> Vec<(u64, proto::Error)> {
        let ended = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::TransactionEnded(ended)) => Some((ended.transaction, ended.reason.clone()?)),
            _ => None,
        });
        ended.collect()
    }

    /// What was delivered: sequence number, whether it is flagged, and how often it was delivered.
    fn delivered_counts(&self) -> Vec<(u64, bool, u32)> {
        let delivers = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(&deliver.deliveries),
            _ => None,
        });
        delivers
            .flatten()
            .map(|one| (one.sequence, one.redelivered, one.delivery_count.max(1)))
            .collect()
    }

    #[track_caller]
    fn is_committed(&mut self, transaction: u64) {
        let answer = self.decided(transaction, Verb::Commit);
        assert!(matches!(answer, Answered::Transacted(done) if !done.rolled_back));
    }

    #[track_caller]
    fn is_refused(&mut self, transaction: u64, verb: Verb) {
        let Answered::Error(error) = self.decided(transaction, verb) else {
            panic!("it was rolled back");
        };
        let told = (error.code(), error.subject.as_str());
        assert_eq!(told, (ErrorCode::TransactionRolledBack, "transaction_ms"));
        for part in ["60000 ms", "limits.transactionMs", "commit or roll back sooner"] {
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
}

// covers: EMS-TX-A02
#[test]
fn what_is_open_for_too_long_is_rolled_back_as_a_whole_and_its_client_told() {
    for verb in [Verb::Commit, Verb::Prepare] {
        let (mut bench, source) = Bench::with_limit();
        bench.publish_to("results", 1, 7);
        bench.acknowledge_of(source, 1, 1, 7);
        bench.frames.clear();
        bench.pass(u64::from(LIMIT_MS) - 1);
        assert_eq!(bench.ended().len(), 0);
        bench.pass(OVER_MS - u64::from(LIMIT_MS) + 1);
        let [(7, reason)] = &bench.ended()[..] else {
            panic!("{:?}", bench.ended())
        };
        assert_eq!(reason.code(), ErrorCode::TransactionRolledBack);
        assert!(reason.message.contains("limits.transactionMs"), "{}", reason.message);
        // What it had acknowledged comes again, at once to a client from before; what was only sent ahead is the session's still.
        assert_eq!(bench.delivered_counts(), [(1, true, 2)]);
        bench.is_refused(7, verb);
        assert_eq!((bench.held_by("results"), bench.held()), (0, Some(3)));
        // The session goes on.
        bench.publish_to("results", 2, 8);
        bench.acknowledge_of(source, 1, 3, 8);
        bench.is_committed(8);
        assert_eq!((bench.held_by("results"), bench.held()), (1, Some(0)));
        bench.start();
        assert_eq!((bench.held_by("results"), bench.held()), (1, Some(0)));
    }
}

#[test]
fn what_a_session_held_that_hangs_goes_to_somebody_else() {
    let (mut bench, source) = Bench::with_limit();
    bench.handed_out(source, 1, 1, 7);
    bench.acknowledge_of(source, 2, 2, 7);
    let hanging = bench.stream;
    bench.connect();
    bench.consumer(1, 100);
    bench.frames.clear();
    bench.pass(OVER_MS);
    assert_eq!(bench.ended().len(), 1);
    assert_eq!(bench.delivered_counts(), [(1, true, 2), (2, true, 2)]);
    bench.acknowledge_of(source, 1, 2, 0);
    assert_eq!(bench.held(), Some(1), "it has them for good");
    // The other one comes to, and is handed messages again.
    bench.stream = hanging;
    bench.is_refused(7, Verb::Commit);
    bench.publish(4, "d");
    bench.frames.clear();
    bench.acknowledge_of(source, 3, 3, 8);
    bench.is_committed(8);
}

// covers: EMS-TX-A02
#[test]
fn it_is_open_from_the_first_message_that_the_application_was_handed() {
    let (mut bench, source) = Bench::with_limit();
    // What is only sent ahead is in no transaction, however long it lies there.
    bench.pass(10 * OVER_MS);
    bench.handed_out(source, 1, 1, 7);
    bench.pass(OVER_MS / 2);
    bench.handed_out(source, 2, 2, 7);
    bench.publish_to("results", 1, 7);
    assert_eq!(bench.ended().len(), 0);
    bench.frames.clear();
    bench.pass(OVER_MS / 2 + 1);
    assert_eq!((bench.ended().len(), bench.delivered_counts()), (1, vec![]));
    // A commit that was on its way says what it acknowledges first: the rest of that goes back, too.
    bench.acknowledge_of(source, 1, 3, 7);
    bench.is_refused(7, Verb::Commit);
    assert_eq!((bench.held_by("results"), bench.held()), (0, Some(3)));
    bench.settle();
    assert_eq!(bench.delivered_counts(), [(1, true, 2), (2, true, 2), (3, true, 2)]);
    bench.frames.clear();
    bench.acknowledge_of(source, 1, 3, 8);
    bench.is_committed(8);
    assert_eq!(bench.held(), Some(0));
}

// covers: EMS-TX-A02
#[test]
fn what_went_to_somebody_else_meanwhile_is_acknowledged_by_no_later_transaction() {
    let (mut bench, source) = Bench::with_limit();
    bench.handed_out(source, 1, 1, 7);
    let close = proto::CloseConsumer {
        consumer: 1,
        seen: vec![proto::SeenSet {
            source: source.0,
            ranges: vec![proto::SequenceRange { first: 1, last: 1 }],
        }],
    };
    bench.send(1, Sent::CloseConsumer(close));
    bench.pass(OVER_MS);
    assert_eq!(bench.ended().len(), 1);
    // A client that takes no notice of it.
    bench.publish_to("results", 1, 8);
    bench.acknowledge_of(source, 1, 1, 8);
    assert!(matches!(bench.decided(8, Verb::Commit), Answered::Error(_)));
    assert_eq!((bench.held_by("results"), bench.held()), (0, Some(3)));
}

// covers: EMS-TX-A02
#[test]
fn nothing_more_is_taken_in_a_transaction_that_is_rolled_back() {
    let (mut bench, source) = Bench::with_limit();
    bench.publish_to("results", 1, 7);
    bench.pass(OVER_MS);
    bench.frames.clear();
    bench.publish_to("results", 2, 7);
    assert_eq!(bench.rejected(), [(2, ErrorCode::TransactionRolledBack)]);
    bench.handed_out(source, 3, 3, 7);
    bench.acknowledge_of(source, 1, 2, 7);
    bench.pass(10 * OVER_MS);
    assert_eq!(
        (bench.ended().len(), bench.delivered_counts()),
        (0, vec![]),
        "it is told once"
    );
    bench.is_refused(7, Verb::Commit);
    // All three come again, as seen.
    assert_eq!(bench.delivered_counts(), [(1, true, 2), (2, true, 2), (3, true, 2)]);
    bench.publish_to("results", 3, 8);
    bench.is_committed(8);
    assert_eq!((bench.held_by("results"), bench.held()), (1, Some(3)));
}

#[test]
fn each_transaction_has_its_own_time_and_a_decision_ends_it() {
    let (mut bench, source) = Bench::with_limit();
    for number in 1..=20 {
        bench.publish_to("results", number, number);
        bench.pass(OVER_MS / 3);
        bench.is_committed(number);
    }
    // Of two that are open the older one goes.
    bench.publish_to("results", 21, 31);
    bench.pass(OVER_MS / 2);
    bench.publish_to("results", 22, 32);
    bench.handed_out(source, 1, 1, 32);
    bench.pass(OVER_MS / 2 + 1);
    let ended: Vec<u64> = bench.ended().iter().map(|(number, _)| *number).collect();
    assert_eq!(ended, [31]);
    bench.is_committed(32);
    bench.is_refused(31, Verb::Commit);
    assert_eq!(bench.held_by("results"), 21);
    // What its client gave back itself does not come once more when the limit ends it.
    bench.handed_out(source, 2, 2, 33);
    let release = proto::Release {
        sets: vec![proto::AckSet {
            source: source.0,
            ranges: vec![proto::SequenceRange { first: 2, last: 2 }],
            epoch: 0,
        }],
        seen: true,
        delay_ms: 0,
    };
    bench.frames.clear();
    bench.send(1, Sent::Release(release));
    bench.pass(OVER_MS);
    assert_eq!((bench.ended().len(), bench.delivered_counts()), (1, vec![(2, true, 2)]));
}

#[test]
fn without_a_limit_a_transaction_is_open_as_long_as_its_session() {
    let mut bench = Bench::new(Properties::default());
    bench.transacted();
    bench.publish_to("results", 1, 7);
    bench.pass(1_000 * OVER_MS);
    bench.is_committed(7);
    assert_eq!(bench.held_by("results"), 1);
}

#[test]
fn the_engine_says_when_it_wants_to_look_and_not_every_moment() {
    let (mut bench, _) = Bench::with_limit();
    let begun_ms = bench.now.monotonic_ms;
    bench.publish_to("results", 1, 7);
    assert!(bench.engine().overdue_at_ms <= begun_ms + u64::from(LIMIT_MS));
    let next = bench.engine().poll().deadline_ms;
    assert!(next.is_some_and(|next| next <= begun_ms + u64::from(LIMIT_MS)));
    bench.pass(30_000);
    bench.publish_to("results", 2, 8);
    bench.pass(u64::from(LIMIT_MS) - 30_000);
    assert_eq!(bench.ended().len(), 1);
    assert_eq!(bench.engine().overdue_at_ms, begun_ms + u64::from(LIMIT_MS) + 30_000);
    // Nothing is open: nothing is to be looked at.
    bench.is_committed(8);
    bench.pass(30_000);
    assert_eq!(bench.engine().overdue_at_ms, u64::MAX);
}

#[test]
fn after_a_stall_the_commit_that_came_meanwhile_is_read_first() {
    let (mut bench, _) = Bench::with_limit();
    bench.internal = false;
    bench.transacted();
    bench.publish_to("results", 1, 7);
    // The process stood still; its client had said what it wanted in time.
    bench.now = Now {
        wall_ms: bench.now.wall_ms + 10 * OVER_MS,
        monotonic_ms: bench.now.monotonic_ms + 10 * OVER_MS,
    };
    let now = bench.now;
    bench.engine().tick(now);
    bench.is_committed(7);
    assert_eq!((bench.held_by("results"), bench.ended().len()), (1, 0));
    // It is looked at all the same, a little later.
    bench.publish_to("results", 2, 8);
    bench.advance(2 * OVER_MS);
    bench.pass(20_000);
    assert_eq!(bench.held_by("results"), 1);
}

#[test]
fn nobody_keeps_what_waits_for_room_in_it() {
    let (mut bench, source) = Bench::with_limit();
    bench.handed_out(source, 1, 1, 7);
    let session = bench.engine().sessions.values().find(|one| !one.consumers.is_empty());
    assert!(
        session.is_some_and(|session| !session.transactions.has_begun(7)),
        "it waits for flow control yet"
    );
    bench.acknowledge_of(source, 1, 1, 7);
    let session = bench.engine().sessions.values().find(|one| !one.consumers.is_empty());
    assert!(session.is_some_and(|session| session.transactions.has_begun(7)));
}
