//! What is refused at the door, and what was refused and comes again after a lost connection.

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
            ..proto::OpenProducer::default()
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

impl Bench {
    pub(super) fn upload(&mut self, upload_id: u64, bytes: usize) {
        let chunk = proto::Upload {
            producer: 1,
            upload_id,
            offset: 0,
            data: vec![0xff; bytes].into(),
            ..proto::Upload::default()
        };
        self.send(1, Sent::Upload(chunk));
    }
}

fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::wire::put_bytes_field(&mut out, number, bytes);
    out
}

pub(super) fn uploaded(upload_id: u64, r#as: proto::uploaded_body::As) -> Vec<u8> {
    let body = proto::UploadedBody {
        upload_id,
        r#as: r#as.into(),
        content_type: String::new(),
    };
    field(14, &body.encode_to_vec())
}

#[test]
fn what_no_receiver_could_decode_is_refused_and_harms_nobody_behind_it() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let mut nested = Vec::new();
    for _ in 0..5_000 {
        // A map within an entry's value, within a map.
        nested = field(1, &[field(1, b"a"), field(2, &field(12, &nested))].concat());
    }
    let reserved = [field(1, b"JMSPriority"), field(2, &[5 << 3, 0])].concat();
    let unreadable = [
        (field(9, b"\xff"), "body"),
        (field(11, &nested), "body"),
        (field(8, &reserved), "properties"),
        (field(8, &field(1, b"\xff")), "properties"),
        (field(6, &field(2, b"\xff")), "reply_to"),
        (field(17, b"\xff"), "compression"),
        (field(7, b"\xff"), "type"),
        (vec![0x4a, 9, b'x'], ""),
    ];
    let mut sequence = 0;
    for (message, subject) in unreadable {
        sequence += 1;
        bench.frames.clear();
        bench.publish_message(sequence, message);
        let refused = bench.frames.iter().find_map(|frame| match &frame.frame {
            Some(Got::Rejected(rejected)) => rejected.error.clone(),
            _ => None,
        });
        let refused = refused.unwrap();
        assert_eq!(
            (refused.code(), refused.subject.as_str()),
            (ErrorCode::InvalidMessage, subject)
        );
        sequence += 1;
        bench.publish(sequence, "good");
    }
    assert_eq!(bench.held(), Some(8));
}

#[test]
fn a_refused_message_gives_the_space_of_its_upload_back() {
    use proto::uploaded_body::As;
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.anonymous(0, 0);
    let held = |bench: &mut Bench| -> Vec<u64> {
        bench
            .engine()
            .connections
            .values()
            .map(|one| one.upload_bytes)
            .collect()
    };
    // To nobody; with a priority that does not exist; text that is none; and one that is as it should be.
    let cases: [(Option<&str>, Vec<u8>, As); 4] = [
        (Some("a.>"), vec![], As::Bytes),
        (Some("orders"), vec![2 << 3, 11], As::Bytes),
        (Some("orders"), vec![], As::Text),
        (Some("orders"), vec![], As::Bytes),
    ];
    for (sequence, (name, header, r#as)) in (1u64..).zip(cases) {
        bench.upload(sequence, 1_000);
        assert_eq!(held(&mut bench), [1_000]);
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![[header, uploaded(sequence, r#as)].concat().into()],
            destination: name.map(|name| proto::Destination {
                kind: DestinationKind::Queue.into(),
                name: name.to_owned(),
            }),
            ..proto::Publish::default()
        };
        bench.send(1, Sent::Publish(publish));
        assert_eq!(held(&mut bench), [0], "message {sequence}");
    }
    assert_eq!(bench.rejected().len(), 3);
}
