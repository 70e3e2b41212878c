//! What was refused and comes again after a lost connection.

use super::*;

impl Bench {
    pub(super) fn anonymous(&mut self, incarnation: u64, first_unconfirmed: u64) {
        let open = proto::OpenProducer {
            producer: 1,
            destination: None,
            incarnation,
            first_unconfirmed,
            token: self.token(incarnation),
            left_out: Vec::new(),
        };
        self.send(1, Sent::OpenProducer(open));
    }

    pub(super) fn send_to(&mut self, name: &str, sequence: u64) {
        let destination = proto::Destination {
            kind: DestinationKind::Queue.into(),
            name: name.to_owned(),
        };
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![bytes::Bytes::from_static(b"\x4a\x01x").to_vec().into()],
            destination: Some(destination),
            ..proto::Publish::default()
        };
        self.send(1, Sent::Publish(publish));
    }

    fn last_incarnation(&mut self) -> u64 {
        // The engine gives them out one after the other.
        self.engine().state_mut().next_incarnation().unwrap() - 1
    }
}

#[test]
fn what_a_closed_destination_refused_is_stored_when_it_comes_again() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let incarnation = bench.last_incarnation();
    bench.publish(1, "a");
    let closed = refuse(ErrorCode::Moved, "orders", "It moves.");
    bench
        .engine()
        .close_to_producers(Kind::Queue, "orders", Some(closed))
        .unwrap();
    bench.publish(2, "b");
    assert_eq!(bench.rejected(), [(2, ErrorCode::Moved)]);
    bench.engine().close_to_producers(Kind::Queue, "orders", None).unwrap();
    bench.publish(3, "c");
    bench.reconnect();
    bench.producer(incarnation, 1);
    (1..=3).for_each(|sequence| bench.publish(sequence, "again"));
    assert_eq!(bench.confirmed(), [1, 2, 3]);
    assert_eq!(bench.held(), Some(3), "all three, each once");
}

#[test]
fn what_was_refused_before_its_destination_could_be_told_is_stored_when_it_comes_again() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.anonymous(0, 0);
    let incarnation = bench.last_incarnation();
    bench.send_to("$sys.nowhere", 1);
    bench.send_to("bad..name", 2);
    assert_eq!(bench.rejected().len(), 2);
    bench.send_to("orders", 3);
    bench.reconnect();
    bench.anonymous(incarnation, 1);
    // The client's second try names a destination that can be told.
    (1..=3).for_each(|sequence| bench.send_to("orders", sequence));
    assert_eq!(bench.held(), Some(3));
    assert_eq!(bench.confirmed(), [1, 2, 3]);
    // Now it cannot be told whether what is refused had arrived before.
    bench.send_to("bad..name", 4);
    bench.send_to("orders", 5);
    bench.frames.clear();
    bench.send_to("orders", 4);
    assert_eq!(bench.rejected(), [(4, ErrorCode::UnknownProducer)]);
    assert_eq!(bench.held(), Some(4));
}

#[test]
fn what_cannot_be_told_stays_so_however_often_it_comes() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let incarnation = bench.last_incarnation();
    bench.publish(1, "a");
    let orders = bench.engine().state().destination(Kind::Queue, "orders").unwrap().id;
    bench.engine().state_mut().note_refused(orders, incarnation, 2, false);
    for other in incarnation + 1..incarnation + 70_000 {
        bench.engine().state_mut().note_refused(orders, other, 1, false);
    }
    bench.publish(2, "b");
    bench.publish(3, "c");
    bench.reconnect();
    bench.producer(incarnation, 1);
    for sequence in [1, 2, 2, 3, 2] {
        bench.publish(sequence, "again");
    }
    let unknown = |sequence| (sequence, ErrorCode::UnknownProducer);
    assert_eq!(bench.rejected(), [1, 2, 2, 2].map(unknown));
    assert_eq!(bench.confirmed(), [3]);
    assert_eq!(bench.held(), Some(3), "a, b and c, each once");
}

#[test]
fn a_session_opens_no_consumer_whose_number_would_be_another_sessions() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    let key = *bench.engine().sessions.keys().next().unwrap();
    let serial = super::super::session::CONSUMERS_MAX - 1;
    bench.engine().sessions.get_mut(&key).unwrap().consumer_serial = serial;
    bench.consumer(1, 1);
    assert!(bench.errors().is_empty());
    let holder = *bench.engine().consumers.keys().next().unwrap();
    assert_eq!(super::super::session::session_of(holder), key);
    bench.consumer(2, 1);
    assert_eq!(bench.errors(), [ErrorCode::LimitExceeded]);
    assert_eq!(bench.engine().consumers.len(), 1);
}
