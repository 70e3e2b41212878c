//! What becomes of messages that still wait in the broker when what they were sent by ends.

use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;

impl Bench {
    /// A client whose producer of `orders` has two messages waiting for room in the log.
    fn with_waiting(mode: AcknowledgeMode) -> Self {
        let mut bench = Bench::new(Properties::default());
        bench.internal = false;
        bench.connect_as(mode);
        bench.producer(0, 0);
        bench.exhaust();
        let transaction = u64::from(mode == AcknowledgeMode::Transacted);
        bench.publish_in(1, transaction);
        bench.publish_in(2, transaction);
        bench.run(false);
        assert!(bench.rejected().is_empty() && bench.confirmed().is_empty(), "they wait");
        bench
    }

    fn ask_of(&mut self, session: u32, request: u32, frame: Sent) {
        let frame = proto::ClientFrame {
            session,
            request,
            frame: Some(frame),
        };
        let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
        let stream = self.stream;
        self.engine().handle(stream, &batch);
    }

    fn inflight_bytes(&mut self) -> u64 {
        let producers = self.engine().producers.values();
        producers
            .map(|producer| producer.published_bytes - producer.settled_bytes)
            .sum()
    }

    /// Where in what was told something stands.
    fn place(&self, is_it: impl Fn(&Got) -> bool) -> Option<usize> {
        self.frames
            .iter()
            .position(|frame| frame.frame.as_ref().is_some_and(&is_it))
    }
}

fn is_rejected(frame: &Got) -> bool {
    matches!(frame, Got::Rejected(_))
}

// covers: EMS-MSG-A17
#[test]
fn what_waits_for_room_when_its_session_is_closed_is_refused_before_the_answer_and_stored_nowhere() {
    for goodbye in [false, true] {
        let mut bench = Bench::with_waiting(AcknowledgeMode::Auto);
        if goodbye {
            bench.ask_of(0, 9, Sent::Goodbye(proto::Goodbye::default()));
        } else {
            bench.ask(9, Sent::CloseSession(proto::CloseSession::default()));
        }
        bench.settle();
        let rejected = bench.rejected();
        assert_eq!(
            rejected,
            [(1, ErrorCode::Closed), (2, ErrorCode::Closed)],
            "goodbye: {goodbye}"
        );
        assert_eq!(bench.answer(9), Some(Answered::Done(proto::Done {})));
        let answer = bench.place(|frame| matches!(frame, Got::Reply(reply) if reply.request == 9));
        assert!(
            bench.place(is_rejected) < answer,
            "the answer stands for what was not rejected before it"
        );
        assert_eq!(bench.held(), Some(0));
        assert_eq!(bench.inflight_bytes(), 0);
    }
}

// covers: EMS-TX-A02
#[test]
fn a_commit_that_waits_when_its_session_is_closed_is_answered() {
    let mut bench = Bench::with_waiting(AcknowledgeMode::Transacted);
    bench.decide(1, Verb::Commit);
    bench.ask(9, Sent::CloseSession(proto::CloseSession::default()));
    bench.settle();
    let Some(Answered::Error(error)) = bench.answer(1) else {
        panic!("whoever commits hears what became of it");
    };
    assert_eq!(error.code(), ErrorCode::Closed);
    assert_eq!(bench.held(), Some(0));
}

#[test]
fn the_end_of_a_producer_or_a_session_is_answered_when_what_was_sent_before_is_on_disk() {
    for session in [false, true] {
        let mut bench = Bench::new(Properties::default());
        bench.internal = false;
        bench.connect();
        bench.producer(0, 0);
        bench.publish_in(1, 0);
        let end = if session {
            Sent::CloseSession(proto::CloseSession::default())
        } else {
            Sent::CloseProducer(proto::CloseProducer { producer: 1 })
        };
        bench.ask(9, end);
        // What there is to tell before anything is written.
        for stream in bench.engine().poll().ready {
            while let Some(bytes) = bench.engine().take_output(stream, 1 << 20) {
                let told = proto::ServerBatch::decode(bytes.as_slice()).unwrap().frames;
                bench.frames.extend(told);
            }
        }
        assert_eq!(bench.answer(9), None, "a crash now would take the message");
        bench.settle();
        assert_eq!(bench.answer(9), Some(Answered::Done(proto::Done {})));
        assert_eq!((bench.held(), bench.inflight_bytes()), (Some(1), 0));
    }
}

// covers: EMS-MSG-E01
#[test]
fn who_takes_a_name_over_in_the_same_session_has_nothing_of_what_waited_taken_for_its_own() {
    let [mut bench, mut twin] = [(); 2].map(|()| Bench::new(Properties::default()));
    bench.internal = false;
    bench.connect();
    let open = |producer, name: &str| proto::OpenProducer {
        producer,
        destination: Some(orders()),
        name: name.to_owned(),
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open(1, "import")));
    bench.publish(1, "a");
    // There is room for the record of a name, and not for a message.
    let most = twin.fill(usize::MAX);
    bench.fill(most - 4);
    bench.publish_in(2, 0);
    bench.frames.clear();
    // Nothing ends the first one before: it is taken over, as by another program.
    bench.ask(7, Sent::OpenProducer(open(2, "import")));
    bench.run(false);
    assert!(bench.place(|frame| matches!(frame, Got::ProducerClosed(_))).is_some());
    assert_eq!(
        bench.rejected(),
        [(2, ErrorCode::Closed)],
        "its sender hears that it is not stored"
    );
    // Its number is free, and is somebody else's when there is room.
    bench.ask(8, Sent::OpenProducer(open(1, "export")));
    bench.run(false);
    bench.settle();
    assert!(matches!(bench.answer(7), Some(Answered::ProducerOpened(opened)) if opened.last_sequence == 1));
    assert!(matches!(bench.answer(8), Some(Answered::ProducerOpened(opened)) if opened.last_sequence == 0));
    assert_eq!((bench.errors(), bench.held()), (vec![], Some(1)));
    let publish = |sequence| proto::Publish {
        producer: 2,
        first_sequence: sequence,
        messages: vec![b"\x4a\x01x".as_slice().into()],
        ..proto::Publish::default()
    };
    bench.frames.clear();
    bench.send(1, Sent::Publish(publish(2)));
    assert_eq!((bench.confirmed(), bench.held()), (vec![2], Some(2)));
}
