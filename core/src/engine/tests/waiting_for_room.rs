//! What waits until the log's next segment is there, and what is refused at once instead.

use super::room::code;
use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;

// covers: EMS-TX-A02
#[test]
fn a_message_of_a_transaction_waits_for_the_next_segment_but_not_for_a_full_disk() {
    let mut bench = Bench::new(Properties::default());
    bench.internal = false;
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.exhaust();
    bench.publish_in(1, 1);
    bench.decide(1, Verb::Commit);
    bench.run(false);
    assert!(
        (bench.rejected().is_empty(), bench.answer(1)) == (true, None),
        "both wait"
    );
    bench.settle();
    assert!(matches!(bench.answer(1), Some(Answered::Transacted(done)) if !done.rolled_back));
    assert_eq!(bench.held(), Some(1));
    bench.disk.set_faults(Faults {
        space_bytes: Some(0),
        ..Faults::default()
    });
    bench.exhaust();
    bench.settle();
    bench.publish_in(2, 2);
    bench.decide(2, Verb::Commit);
    bench.settle();
    let rejected: Vec<u64> = bench.rejected().into_iter().map(|(first, _)| first).collect();
    assert_eq!(rejected, [2]);
    assert_eq!(code(bench.answer(2)), Some(ErrorCode::TransactionRolledBack));
}

#[test]
fn a_message_waits_for_the_next_segment_and_is_refused_at_once_on_a_full_disk() {
    let mut bench = Bench::new(Properties::default());
    bench.internal = false;
    bench.connect();
    bench.producer(0, 0);
    bench.exhaust();
    bench.publish_in(1, 0);
    bench.run(false);
    assert_eq!((bench.rejected().len(), bench.held()), (0, Some(0)), "it waits");
    bench.settle();
    assert_eq!(
        (bench.rejected().len(), bench.held()),
        (0, Some(1)),
        "there is room again"
    );
    bench.disk.set_faults(Faults {
        space_bytes: Some(0),
        ..Faults::default()
    });
    bench.exhaust();
    bench.settle();
    bench.publish_in(2, 0);
    bench.run(false);
    let rejected: Vec<(u64, ErrorCode)> = bench.rejected();
    assert_eq!(rejected, [(2, ErrorCode::StoreFull)]);
    // The producer goes on with the next number when there is room.
    bench.disk.set_faults(Faults::default());
    bench.advance(1_000);
    bench.publish(3, "is taken");
    bench.settle();
    assert_eq!((bench.rejected().len(), bench.held()), (1, Some(2)));
}

// covers: EMS-STORE-A01
#[test]
fn a_persistent_message_waits_for_the_next_segment_also_while_memory_is_full_and_cannot_spill() {
    let mut bench = Bench::new(Properties::default());
    bench.volatile_bytes = 1_000;
    bench.start();
    bench.internal = false;
    bench.connect();
    bench.producer(0, 0);
    bench.fill(140);
    let mut volatile = Vec::new();
    crate::wire::put_varint_field(&mut volatile, 1, 1);
    crate::wire::put_bytes_field(&mut volatile, 9, &[b'x'; 3_000]);
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 1,
        messages: vec![volatile.clone().into()],
        ..proto::Publish::default()
    };
    bench.handle(1, Sent::Publish(publish));
    bench.run(false);
    let job = bench.engine().maintenance().unwrap().unwrap();
    bench.disk.set_faults(Faults {
        shortage_one_in: 1,
        ..Faults::default()
    });
    let done = job.run();
    bench.disk.set_faults(Faults::default());
    bench.engine().complete_maintenance(done).unwrap();
    let state = bench.engine().state();
    assert!(state.cannot_spill() && state.is_memory_full() && state.is_preparing(100));
    bench.frames.clear();
    bench.publish_in(2, 0);
    bench.run(false);
    assert_eq!((bench.rejected(), bench.confirmed()), (vec![], vec![]), "it waits");
    bench.settle();
    assert_eq!((bench.rejected(), bench.confirmed()), (vec![], vec![2]));
    // Those in memory are refused at once.
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 3,
        messages: vec![volatile.into()],
        ..proto::Publish::default()
    };
    bench.handle(1, Sent::Publish(publish));
    bench.run(false);
    assert_eq!(bench.rejected().len(), 1);
}

#[test]
fn what_waited_for_room_hears_the_answer_to_its_question_and_asks_once() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.internal = false;
    bench.connect();
    let open = proto::OpenProducer {
        producer: 1,
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open));
    bench.exhaust();
    let elsewhere = proto::Destination {
        name: "elsewhere".to_owned(),
        ..orders()
    };
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 1,
        messages: vec![bytes::Bytes::from_static(b"\x4a\x01x").to_vec().into()],
        destination: Some(elsewhere),
        ..proto::Publish::default()
    };
    bench.handle(1, Sent::Publish(publish));
    bench.run(false);
    assert_eq!(bench.rejected(), [], "it waits");
    while let Some(job) = bench.engine().maintenance().unwrap() {
        let done = job.run();
        bench.engine().complete_maintenance(done).unwrap();
    }
    let mut asked = 0;
    for _ in 0..5 {
        let polled = bench.engine().poll();
        bench.ready.extend(polled.ready);
        for request in polled.tickets {
            asked += 1;
            let refused = refuse(ErrorCode::PermissionDenied, "elsewhere", "Not for you.");
            bench.engine().answer(request.ticket, Answer::Refused(refused));
        }
    }
    bench.run(false);
    assert_eq!((asked, bench.rejected()), (1, vec![(1, ErrorCode::PermissionDenied)]));
}

// covers: EMS-MSG-E01
#[test]
fn a_producer_that_is_opened_behind_an_end_that_waits_for_room_waits_with_it() {
    let mut bench = Bench::new(Properties::default());
    bench.internal = false;
    bench.connect();
    let open = |producer| proto::OpenProducer {
        producer,
        destination: Some(orders()),
        name: "import".to_owned(),
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open(1)));
    bench.exhaust();
    bench.publish_in(1, 0);
    // Nothing ends before this one, and it need not wait.
    let other = proto::OpenProducer {
        name: String::new(),
        ..open(3)
    };
    bench.ask(3, Sent::OpenProducer(other));
    bench.run(false);
    assert!(matches!(bench.answer(3), Some(Answered::ProducerOpened(_))));
    bench.publish_in(2, 0);
    bench.handle(1, Sent::CloseProducer(proto::CloseProducer { producer: 1 }));
    bench.ask(7, Sent::OpenProducer(open(1)));
    // For the producer that is to be opened, and for one that is open.
    for producer in [1, 3] {
        let upload = proto::Upload {
            producer,
            upload_id: 5,
            data: b"a body".as_slice().into(),
            ..proto::Upload::default()
        };
        bench.ask(7 + producer, Sent::Upload(upload));
    }
    bench.run(false);
    assert_eq!((bench.answer(7), bench.answer(8)), (None, None), "they wait");
    assert_eq!(bench.answer(10), Some(Answered::Done(proto::Done {})));
    bench.settle();
    assert!(matches!(bench.answer(7), Some(Answered::ProducerOpened(opened)) if opened.last_sequence == 2));
    assert_eq!(bench.answer(8), Some(Answered::Done(proto::Done {})));
    let refused = (bench.errors(), bench.rejected());
    assert_eq!((refused, bench.held()), ((vec![], vec![]), Some(2)));
    // What was uploaded is the new producer's.
    let body = proto::UploadedBody {
        upload_id: 5,
        r#as: proto::uploaded_body::As::Bytes.into(),
        content_type: String::new(),
    };
    let mut message = Vec::new();
    crate::wire::put_bytes_field(&mut message, 14, &body.encode_to_vec());
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 3,
        messages: vec![message.into()],
        ..proto::Publish::default()
    };
    bench.send(1, Sent::Publish(publish));
    assert_eq!((bench.confirmed(), bench.held()), (vec![3], Some(3)));
    // When all is done, nothing waits for what has ended.
    bench.exhaust();
    bench.publish_in(4, 0);
    bench.ask(
        20,
        Sent::OpenProducer(proto::OpenProducer {
            name: String::new(),
            ..open(20)
        }),
    );
    bench.run(false);
    assert!(matches!(bench.answer(20), Some(Answered::ProducerOpened(_))));
}
