//! What waits until receivers have made room, by flow control.

use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;

/// One message is enough.
fn flow_controlled() -> Properties {
    Properties {
        flow_control_bytes: 1,
        ..Properties::default()
    }
}

/// A bench with flow control, and a client whose session has this mode.
fn bench(mode: AcknowledgeMode) -> Bench {
    let mut bench = Bench::new(flow_controlled());
    bench.engine().settings.flow_control = true;
    bench.internal = false;
    bench.connect_as(mode);
    bench
}

/// A destination by its name.
fn queue(name: &str) -> proto::Destination {
    proto::Destination {
        name: name.to_owned(),
        ..orders()
    }
}

fn open(producer: u32, destination: Option<proto::Destination>) -> Sent {
    Sent::OpenProducer(proto::OpenProducer {
        producer,
        destination,
        ..proto::OpenProducer::default()
    })
}

/// A short message of a producer, or one that names an upload.
fn message(producer: u32, sequence: u64, body: &[u8]) -> proto::Publish {
    let mut message = Vec::new();
    crate::wire::put_bytes_field(&mut message, 9, body);
    proto::Publish {
        producer,
        first_sequence: sequence,
        messages: vec![message.into()],
        ..proto::Publish::default()
    }
}

impl Bench {
    fn waiting(&mut self) -> u32 {
        let id = self.engine().state().destination(Kind::Queue, "orders").unwrap().id;
        self.engine().waiting_for(id)
    }

    /// Puts a message into `orders` by a producer of its own.
    fn make_full(&mut self) {
        self.send(1, open(9, Some(orders())));
        self.send(1, Sent::Publish(message(9, 1, b"x")));
        assert_eq!(self.held(), Some(1));
    }

    fn upload_bytes(&mut self) -> u64 {
        self.engine().connections.values().map(|one| one.upload_bytes).sum()
    }
}

/// All that `orders` holds, of the transaction or of none.
fn acknowledge(bench: &mut Bench, transaction: u64) -> proto::Ack {
    let ranges = vec![proto::SequenceRange { first: 1, last: 100 }];
    let sets = vec![proto::AckSet {
        source: bench.source().0,
        ranges,
        epoch: 0,
    }];
    proto::Ack { sets, transaction }
}

#[test]
fn a_body_that_was_uploaded_for_what_waits_and_is_rolled_back_takes_no_room_any_more() {
    let mut filling = bench(AcknowledgeMode::Client);
    filling.make_full();
    let mut bench = filling;
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    let upload = proto::Upload {
        producer: 1,
        upload_id: 5,
        data: b"a body".as_slice().into(),
        ..proto::Upload::default()
    };
    bench.send(1, Sent::Upload(upload));
    assert_eq!(bench.upload_bytes(), 6);
    let body = proto::UploadedBody {
        upload_id: 5,
        r#as: proto::uploaded_body::As::Bytes.into(),
        content_type: String::new(),
    };
    let mut encoded = Vec::new();
    crate::wire::put_bytes_field(&mut encoded, 14, &body.encode_to_vec());
    let publish = proto::Publish {
        messages: vec![encoded.into()],
        transaction: 1,
        ..message(1, 1, b"")
    };
    bench.send(1, Sent::Publish(publish));
    assert_eq!(bench.waiting(), 1);
    bench.decide(1, Verb::Rollback);
    bench.settle();
    assert!(matches!(bench.answer(1), Some(Answered::Transacted(done)) if done.rolled_back));
    assert_eq!((bench.waiting(), bench.upload_bytes()), (0, 0));
}

#[test]
fn a_transaction_that_waits_goes_on_once_something_is_acknowledged_in_it() {
    let mut bench = bench(AcknowledgeMode::Client);
    bench.make_full();
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.consumer(1, 10);
    let publish = proto::Publish {
        transaction: 1,
        ..message(1, 1, b"x")
    };
    bench.send(1, Sent::Publish(publish));
    bench.decide(1, Verb::Commit);
    bench.settle();
    assert_eq!((bench.waiting(), bench.answer(1)), (1, None));
    // What keeps the queue full goes with the transaction itself: nobody else would ever let it go on.
    let acknowledge = acknowledge(&mut bench, 1);
    bench.send(1, Sent::Acknowledge(acknowledge));
    bench.settle();
    assert!(matches!(bench.answer(1), Some(Answered::Transacted(done)) if !done.rolled_back));
    assert_eq!((bench.waiting(), bench.held()), (0, Some(1)));
}

#[test]
fn a_session_that_waits_again_behind_an_answer_is_counted_once() {
    let mut bench = bench(AcknowledgeMode::Client);
    bench.make_full();
    bench.connect();
    bench.send(1, open(1, None));
    let to = |name: &str, sequence| {
        let publish = proto::Publish {
            destination: Some(queue(name)),
            ..message(1, sequence, b"x")
        };
        Sent::Publish(publish)
    };
    bench.send(1, to("orders", 1));
    // It takes a question, which is asked once what is before it has gone on.
    bench.send(1, to("elsewhere", 2));
    bench.engine().purge_queue("orders").unwrap();
    let polled = bench.engine().poll();
    assert_eq!((polled.tickets.len(), bench.held()), (1, Some(1)));
    bench.handle(1, to("orders", 3));
    for request in polled.tickets {
        let answer = Answer::Create(Properties::default());
        bench.engine().answer(request.ticket, answer);
    }
    bench.settle();
    assert_eq!((bench.waiting(), bench.held()), (1, Some(1)));
    bench.engine().purge_queue("orders").unwrap();
    bench.settle();
    assert_eq!((bench.waiting(), bench.confirmed().len()), (0, 4));
}

#[test]
fn who_makes_room_and_sends_in_one_breath_does_not_pass_over_those_that_wait() {
    let mut bench = bench(AcknowledgeMode::Client);
    bench.make_full();
    let (first, second) = (bench.stream, bench.stream + 1);
    bench.connect();
    bench.producer(0, 0);
    bench.send(1, Sent::Publish(message(1, 1, b"waits")));
    assert_eq!((bench.stream, bench.waiting()), (second, 1));
    bench.stream = first;
    bench.consumer(1, 10);
    let frames = [
        Sent::Acknowledge(acknowledge(&mut bench, 0)),
        Sent::Publish(message(9, 2, b"x")),
    ];
    let frames = frames.map(|frame| proto::ClientFrame {
        session: 1,
        request: 0,
        frame: Some(frame),
    });
    let batch = proto::ClientBatch { frames: frames.into() };
    bench.frames.clear();
    bench.engine().handle(first, &batch.encode_to_vec());
    bench.settle();
    let told: Vec<u32> = bench
        .frames
        .iter()
        .filter_map(|frame| match &frame.frame {
            Some(Got::Confirm(confirm)) => Some(confirm.confirmed[0].producer),
            _ => None,
        })
        .collect();
    assert_eq!(told, [1], "it was there before");
    assert_eq!((bench.waiting(), bench.held()), (1, Some(1)));
}

#[test]
fn producers_that_stay_within_their_credit_may_wait_as_many_as_they_are() {
    let mut bench = Bench::new(flow_controlled());
    // Each has the least that a producer gets.
    bench.limits.inflight_bytes = 1 << 16;
    bench.start();
    bench.engine().settings.flow_control = true;
    bench.internal = false;
    bench.connect();
    bench.make_full();
    let body = vec![b'x'; 500_000];
    for producer in 1..=4 {
        bench.send(1, open(producer, Some(orders())));
        for sequence in 1..=2 {
            bench.send(1, Sent::Publish(message(producer, sequence, &body)));
        }
    }
    assert_eq!((bench.errors(), bench.waiting()), (vec![], 1));
    bench.engine().purge_queue("orders").unwrap();
    bench.settle();
    assert_eq!(bench.errors(), []);
}

#[test]
fn output_that_is_forgotten_once_it_is_taken_has_the_host_look_at_those_that_wait() {
    let mut bench = bench(AcknowledgeMode::None);
    let receiving = bench.stream;
    bench.producer(0, 0);
    bench.consumer(1, 10);
    // Handed out, and not taken yet.
    let volatile = |sequence| {
        let mut publish = message(1, sequence, b"x");
        let mut message = publish.messages[0].to_vec();
        crate::wire::put_varint_field(&mut message, 1, 1);
        publish.messages = vec![message.into()];
        Sent::Publish(publish)
    };
    bench.handle(1, volatile(1));
    bench.engine().poll();
    bench.handle(1, volatile(2));
    assert_eq!((bench.waiting(), bench.held()), (1, Some(1)));
    assert!(!bench.engine().takes_made_room());
    assert!(bench.engine().take_output(receiving, 1 << 20).is_some());
    assert_eq!(bench.held(), Some(0));
    assert!(bench.engine().takes_made_room());
    bench.engine().poll();
    assert_eq!((bench.waiting(), bench.engine().takes_made_room()), (0, false));
}
