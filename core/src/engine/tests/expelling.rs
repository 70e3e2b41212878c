//! Producers that are ended from here while something of theirs is on its way to the disk: it is confirmed first, and what
//! has no answer when the end is told was not stored.

use super::room::code;
use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;
use crate::proto::{ErrorCode, OpenProducer};

/// What a client hears of its producer, in order: a number that is confirmed or refused, the reason of an end.
#[derive(Debug, PartialEq)]
enum Heard {
    Confirmed(u64),
    Refused(u64),
    Ended(ErrorCode),
}
use Heard::{Confirmed, Ended};

impl Bench {
    /// Hears what there is to hear without any write.
    fn hear(&mut self) -> Vec<Heard> {
        let ready = self.engine().poll().ready;
        self.ready.extend(ready);
        for stream in std::mem::take(&mut self.ready) {
            while let Some(bytes) = self.engine().take_output(stream, 1 << 20) {
                let batch = proto::ServerBatch::decode(bytes.as_slice()).unwrap();
                self.frames.extend(batch.frames);
            }
        }
        self.heard()
    }

    fn heard(&self) -> Vec<Heard> {
        let mut heard = Vec::new();
        for frame in &self.frames {
            match frame.frame.as_ref().unwrap() {
                Got::Confirm(confirm) => {
                    let ranges = confirm.confirmed.iter();
                    heard.extend(ranges.flat_map(|range| range.first..=range.last).map(Confirmed));
                }
                Got::Rejected(rejected) => heard.extend((rejected.first..=rejected.last).map(Heard::Refused)),
                Got::ProducerClosed(closed) => heard.push(Ended(closed.reason.as_ref().unwrap().code())),
                _ => {}
            }
        }
        heard
    }

    /// A producer of `orders` with nothing under way.
    fn expellable(mode: AcknowledgeMode) -> Self {
        let mut bench = Self::new(Properties::default());
        bench.connect_as(mode);
        bench.producer(0, 0);
        bench.frames.clear();
        bench
    }

    fn serve_elsewhere(&mut self) {
        let reason = refuse(ErrorCode::Moved, "orders", "It lives elsewhere.");
        let engine = self.engine();
        engine.serve_elsewhere(Kind::Queue, "orders", Some(reason)).unwrap();
    }
}

fn deletes(bench: &mut Bench) {
    let moved = refuse(ErrorCode::Moved, "orders", "It lives elsewhere.");
    bench.engine().purge_queue("orders").unwrap();
    // Nothing is held any more, although what was published is not on the disk yet.
    let engine = bench.engine();
    engine.delete_for(Kind::Queue, "orders", false, &moved).unwrap();
}

/// How the broker ends a producer, and what its client is told.
type Way = (fn(&mut Bench), ErrorCode);

#[test]
fn what_is_on_its_way_to_the_disk_is_confirmed_before_the_end_of_its_producer_is_told() {
    let ways: [Way; 3] = [
        (Bench::serve_elsewhere, ErrorCode::Moved),
        (deletes, ErrorCode::Moved),
        // Number 9 where 3 had to come.
        (|bench| bench.publish_in(9, 0), ErrorCode::ProtocolViolation),
    ];
    for (end, reason) in ways {
        let mut bench = Bench::expellable(AcknowledgeMode::Client);
        bench.publish_in(1, 0);
        bench.publish_in(2, 0);
        end(&mut bench);
        // Sent before its client can know: not taken, and the end says so.
        bench.publish_in(3, 0);
        assert_eq!(bench.hear(), [], "{reason:?}");
        bench.settle();
        assert_eq!(bench.heard(), [Confirmed(1), Confirmed(2), Ended(reason)]);
        let held = bench.held();
        assert!(held.is_none_or(|held| held == 2), "{held:?}");
        assert_eq!(bench.engine().producers.len(), 0);
    }
}

#[test]
fn a_producer_of_which_nothing_is_under_way_hears_of_its_end_at_once() {
    let mut bench = Bench::expellable(AcknowledgeMode::Client);
    bench.publish(1, "a");
    bench.frames.clear();
    bench.serve_elsewhere();
    assert_eq!(bench.hear(), [Ended(ErrorCode::Moved)]);
}

#[test]
fn who_takes_a_name_over_ends_the_earlier_producer_behind_what_that_has_under_way() {
    let mut bench = Bench::new(Properties::default());
    let open = OpenProducer {
        producer: 1,
        destination: Some(orders()),
        name: "import".to_owned(),
        ..OpenProducer::default()
    };
    bench.connect();
    bench.send(1, Sent::OpenProducer(open.clone()));
    let earlier = bench.stream;
    bench.connect();
    let later = std::mem::replace(&mut bench.stream, earlier);
    bench.frames.clear();
    bench.publish_in(1, 0);
    bench.stream = later;
    bench.handle(1, Sent::OpenProducer(open));
    bench.stream = earlier;
    bench.publish_in(2, 0);
    assert_eq!(bench.hear(), []);
    bench.settle();
    assert_eq!(bench.heard(), [Confirmed(1), Ended(ErrorCode::Conflict)]);
    assert_eq!(bench.held(), Some(1));
    bench.stream = later;
    bench.frames.clear();
    bench.publish_in(2, 0);
    bench.settle();
    assert_eq!((bench.heard(), bench.held()), (vec![Confirmed(2)], Some(2)));
}

#[test]
fn nothing_of_a_transaction_arrives_of_which_a_part_came_behind_the_end_of_its_producer() {
    let mut bench = Bench::expellable(AcknowledgeMode::Transacted);
    bench.publish_in(1, 7);
    bench.decide(7, Verb::Commit);
    bench.publish_in(2, 8);
    bench.serve_elsewhere();
    bench.publish_in(3, 8);
    bench.decide(8, Verb::Commit);
    assert_eq!(bench.hear(), []);
    bench.settle();
    assert_eq!(code(bench.answer(8)), Some(ErrorCode::TransactionRolledBack));
    assert!(bench.answer(7).is_some() && code(bench.answer(7)).is_none());
    assert_eq!((bench.heard(), bench.held()), (vec![Ended(ErrorCode::Moved)], Some(1)));
}

#[test]
fn who_closes_its_producer_or_goes_before_the_end_is_told_hears_nothing_of_it() {
    for goes in [true, false] {
        let mut bench = Bench::expellable(AcknowledgeMode::Client);
        bench.publish_in(1, 0);
        bench.serve_elsewhere();
        if goes {
            bench.close();
        } else {
            bench.handle(1, Sent::CloseProducer(proto::CloseProducer { producer: 1 }));
        }
        bench.settle();
        assert_eq!(bench.heard(), []);
        assert_eq!((bench.engine().producers.len(), bench.held()), (0, Some(1)));
    }
}

#[test]
fn what_came_behind_an_end_that_is_not_told_yet_is_refused_before_the_answer_to_who_closes() {
    for session in [false, true] {
        let mut bench = Bench::expellable(AcknowledgeMode::Client);
        bench.publish_in(1, 0);
        bench.serve_elsewhere();
        bench.publish_in(2, 0);
        bench.publish_in(3, 0);
        let close = if session {
            Sent::CloseSession(proto::CloseSession::default())
        } else {
            Sent::CloseProducer(proto::CloseProducer { producer: 1 })
        };
        bench.ask(9, close);
        bench.settle();
        assert_eq!(
            bench.answer(9),
            Some(Answered::Done(proto::Done {})),
            "session: {session}"
        );
        assert_eq!(
            bench.heard(),
            [Heard::Refused(2), Heard::Refused(3)],
            "session: {session}"
        );
        let answer = bench.frames.iter().position(|frame| {
            let told = frame.frame.as_ref().unwrap();
            matches!(told, Got::Reply(reply) if reply.request == 9)
        });
        let refused = bench.frames.iter().position(|frame| {
            let told = frame.frame.as_ref().unwrap();
            matches!(told, Got::Rejected(_))
        });
        assert!(
            refused < answer,
            "the answer stands for what was not rejected before it"
        );
        assert_eq!((bench.engine().producers.len(), bench.held()), (0, Some(1)));
    }
}
