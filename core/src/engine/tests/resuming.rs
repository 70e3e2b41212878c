//! Bodies whose stream breaks: what came of them is kept for a while, and the producer that comes back goes on from there.

use super::refusing::uploaded;
use super::*;
use crate::engine::kept_uploads::KEPT_BYTES_MIN;
use crate::proto::reply::Result as Answered;
use crate::proto::uploaded_body::As;

/// What is worth keeping, and small enough for the log of these tests.
const PART: usize = KEPT_BYTES_MIN as usize;

/// As many bytes as are asked for, no two parts of which are alike.
fn body(bytes: usize) -> Vec<u8> {
    (0u32..).flat_map(|number| number.to_le_bytes()).take(bytes).collect()
}

impl Bench {
    fn for_bodies(upload_bytes: u64) -> Self {
        let mut bench = Self::new(Properties::default());
        bench.limits.upload_bytes = upload_bytes;
        bench.start();
        bench.connect();
        bench.producer(0, 0);
        bench
    }

    /// A part of a body of so many bytes.
    fn part(&mut self, upload_id: u64, body: &[u8], offset: usize, bytes: usize) {
        let chunk = proto::Upload {
            producer: 1,
            upload_id,
            offset: offset as u64,
            data: body[offset..offset + bytes].to_vec().into(),
            body_bytes: body.len() as u64,
        };
        self.send(1, Sent::Upload(chunk));
    }

    /// The producer comes back, and asks for these; how much it is told that there is of them.
    fn come_back_for(&mut self, incarnation: u64, uploads: &[u64]) -> Vec<proto::PartialUpload> {
        self.frames.clear();
        let open = proto::OpenProducer {
            producer: 1,
            destination: Some(orders()),
            incarnation,
            first_unconfirmed: 1,
            token: self.token(incarnation),
            uploads: uploads.to_vec(),
            ..proto::OpenProducer::default()
        };
        self.ask(5, Sent::OpenProducer(open));
        self.settle();
        let answer = self.frames.iter().find_map(|frame| match &frame.frame {
            Some(Got::Reply(reply)) => reply.result.clone(),
            _ => None,
        });
        match answer {
            Some(Answered::ProducerOpened(opened)) => opened.uploads,
            other => panic!("{other:?}"),
        }
    }

    fn kept(&mut self) -> u64 {
        self.engine().kept_upload_bytes()
    }

    fn uploaded_now(&mut self) -> u64 {
        self.engine().connections.values().map(|one| one.upload_bytes).sum()
    }

    /// The queue's first message, without its header.
    fn delivered(&mut self) -> Vec<u8> {
        self.consumer(1, 10);
        let mut found = Vec::new();
        for frame in &self.frames {
            if let Some(Got::Deliver(deliver)) = &frame.frame {
                found.extend(deliver.deliveries.iter().flat_map(|one| one.uploaded.to_vec()));
            }
        }
        found
    }
}

// covers: EMS-MSG-A14
#[test]
fn a_body_goes_on_where_its_stream_broke_and_arrives_as_it_was() {
    let mut bench = Bench::for_bodies(1 << 20);
    let (whole, incarnation) = (body(PART + 3_000), bench.incarnation());
    bench.part(7, &whole, 0, PART);
    bench.part(7, &whole, PART, 1_000);
    bench.reconnect();
    assert_eq!((bench.kept(), bench.uploaded_now()), (PART as u64 + 1_000, 0));
    assert_eq!(bench.engine().sessions.len(), 1, "nothing else of the session is kept");
    let told = bench.come_back_for(incarnation, &[7, 8]);
    let have = PART + 1_000;
    let (bytes, sum) = (have as u64, crc32fast::hash(&whole[..have]));
    assert_eq!(
        told,
        [proto::PartialUpload {
            upload_id: 7,
            bytes,
            crc32: sum
        }]
    );
    assert_eq!((bench.kept(), bench.uploaded_now()), (0, bytes));
    bench.part(7, &whole, have, 2_000);
    bench.publish_message(1, uploaded(7, As::Bytes));
    assert_eq!((bench.confirmed(), bench.uploaded_now()), (vec![1], 0));
    assert_eq!(bench.delivered(), whole);
    let figures = bench.engine().figures();
    assert_eq!(
        (figures.uploaded_bytes, figures.uploads_resumed),
        (whole.len() as u64, 1)
    );
}

#[test]
fn a_body_is_taken_from_a_stream_that_is_not_known_to_be_broken_and_what_still_comes_there_changes_nothing() {
    let mut bench = Bench::for_bodies(1 << 20);
    let (whole, incarnation) = (body(PART + 3_000), bench.incarnation());
    bench.part(7, &whole, 0, PART);
    let before = bench.stream;
    bench.connect();
    let told = bench.come_back_for(incarnation, &[7]);
    assert_eq!(told.iter().map(|one| one.bytes).collect::<Vec<_>>(), [PART as u64]);
    let now = std::mem::replace(&mut bench.stream, before);
    bench.part(7, &whole, PART, 1_000);
    bench.publish_message(1, uploaded(7, As::Bytes));
    // Nor may what came behind it arrive before it.
    bench.publish(2, "behind it");
    assert_eq!((bench.confirmed(), bench.held()), (vec![], Some(0)));
    bench.stream = now;
    bench.part(7, &whole, PART, 3_000);
    bench.publish_message(1, uploaded(7, As::Bytes));
    assert_eq!((bench.confirmed(), bench.held()), (vec![1], Some(1)));
    bench.engine().close_stream(before);
    assert_eq!((bench.kept(), bench.uploaded_now()), (0, 0));
}

#[test]
fn what_is_kept_goes_after_a_while_and_nobody_else_gets_it() {
    let mut bench = Bench::for_bodies(1 << 20);
    let (whole, incarnation) = (body(PART + 1), bench.incarnation());
    bench.part(7, &whole, 0, PART);
    bench.reconnect();
    // Another producer of the same user has another incarnation.
    bench.producer(0, 0);
    let other = bench.incarnation();
    assert_ne!(other, incarnation);
    bench.reconnect();
    assert!(bench.come_back_for(other, &[7]).is_empty());
    // Who comes by the incarnation with another user's token is not let in.
    bench.reconnect();
    let foreign = bench.engine().state().producer_token(incarnation, "eve").unwrap();
    let open = proto::OpenProducer {
        producer: 1,
        destination: Some(orders()),
        incarnation,
        token: foreign.to_vec(),
        uploads: vec![7],
        ..proto::OpenProducer::default()
    };
    bench.ask(5, Sent::OpenProducer(open));
    bench.settle();
    assert_eq!(bench.kept(), PART as u64);
    let kept_ms = bench.engine().settings().upload_kept_ms;
    bench.advance(kept_ms - 1);
    assert_eq!(bench.kept(), PART as u64);
    bench.advance(1);
    assert_eq!(bench.kept(), 0);
    assert!(bench.come_back_for(incarnation, &[7]).is_empty());
}

#[test]
fn only_what_may_come_back_is_kept() {
    let whole = body(PART + 1);
    for ends in ["size", "closed", "goodbye", "session", "transacted", "unasked"] {
        let mut bench = Bench::for_bodies(1 << 20);
        if ends == "transacted" {
            bench.close();
            bench.connect_as(AcknowledgeMode::Transacted);
            bench.producer(0, 0);
        }
        let incarnation = bench.incarnation();
        if ends == "size" {
            bench.upload(7, PART);
        } else {
            bench.part(7, &whole, 0, PART);
        }
        match ends {
            "closed" => bench.send(1, Sent::CloseProducer(proto::CloseProducer { producer: 1 })),
            "goodbye" => bench.send(0, Sent::Goodbye(proto::Goodbye::default())),
            "session" => bench.send(1, Sent::CloseSession(proto::CloseSession::default())),
            _ => {}
        }
        bench.reconnect();
        if ends == "unasked" {
            assert_eq!(bench.kept(), PART as u64);
            assert!(bench.come_back_for(incarnation, &[8]).is_empty());
        }
        assert_eq!(bench.kept(), 0, "{ends}");
    }
}

#[test]
fn pieces_of_two_bodies_are_never_put_together() {
    let mut bench = Bench::for_bodies(1 << 20);
    let (whole, incarnation) = (body(PART + 3_000), bench.incarnation());
    bench.part(7, &whole, 0, PART);
    bench.reconnect();
    assert_eq!(bench.come_back_for(incarnation, &[7, 7]).len(), 1);
    // A body of another size, other bytes where some are there, and a gap.
    let shorter = body(PART + 2_000);
    bench.part(7, &shorter, PART, 2_000);
    bench.publish_message(1, uploaded(7, As::Bytes));
    bench.part(8, &whole, 0, PART);
    let other = vec![9; PART + 3_000];
    bench.part(8, &other, PART - 1, 3_001);
    bench.publish_message(2, uploaded(8, As::Bytes));
    bench.part(9, &whole, 0, PART);
    bench.part(9, &whole, PART + 1, 2_999);
    bench.publish_message(3, uploaded(9, As::Bytes));
    // Less than the whole.
    bench.part(10, &whole, 0, PART);
    bench.publish_message(4, uploaded(10, As::Bytes));
    let refused: Vec<_> = (1..=4).map(|sequence| (sequence, ErrorCode::InvalidMessage)).collect();
    assert_eq!((bench.rejected(), bench.uploaded_now()), (refused, 0));
    // What begins anew has nothing of what was there.
    bench.part(11, &other, 0, PART);
    bench.part(11, &whole, 0, PART);
    bench.part(11, &whole, PART, 3_000);
    bench.publish_message(5, uploaded(11, As::Bytes));
    assert_eq!((bench.confirmed(), bench.held()), (vec![5], Some(1)));
    assert_eq!(bench.delivered(), whole);
}

#[test]
fn whoever_uploads_and_leaves_again_and_again_has_no_more_kept_than_a_connection_may_upload() {
    let most = 4 * PART as u64;
    let mut bench = Bench::for_bodies(most);
    let whole = body(2 * PART);
    for round in 0..20 {
        bench.part(round, &whole, 0, PART);
        let kept = bench.kept();
        assert!(
            kept + bench.uploaded_now() <= most,
            "what is kept gives way to what is sent"
        );
        bench.part(round + 100, &whole, 0, PART);
        bench.reconnect();
        assert!(bench.kept() <= most, "round {round}: {}", bench.kept());
        bench.producer(0, 0);
    }
    assert_eq!(bench.kept(), most);
    assert_eq!(bench.engine().uploading.len(), 0);
    let kept_ms = bench.engine().settings().upload_kept_ms;
    bench.advance(kept_ms);
    assert_eq!(bench.kept(), 0);
}

#[test]
fn a_body_that_can_never_be_uploaded_is_refused_with_its_first_part() {
    let mut bench = Bench::for_bodies(2 * PART as u64);
    let whole = body(2 * PART + 1);
    bench.part(7, &whole, 0, 10);
    assert_eq!(bench.errors(), [ErrorCode::LimitExceeded]);
    bench.publish_message(1, uploaded(7, As::Bytes));
    assert_eq!(bench.rejected(), [(1, ErrorCode::LimitExceeded)]);
}

#[test]
fn a_producer_with_a_name_goes_on_before_its_stream_is_known_to_be_broken_and_another_program_does_not() {
    let mut bench = Bench::for_bodies(1 << 20);
    let whole = body(PART + 3_000);
    bench.send(1, Sent::CloseProducer(proto::CloseProducer { producer: 1 }));
    let open = proto::OpenProducer {
        producer: 1,
        destination: Some(orders()),
        name: "p".to_owned(),
        ..proto::OpenProducer::default()
    };
    let Answered::ProducerOpened(first) = bench.open(open.clone()) else {
        panic!("it was not opened");
    };
    bench.part(7, &whole, 0, PART);
    bench.connect();
    let again = proto::OpenProducer {
        incarnation: first.incarnation,
        token: first.token,
        first_unconfirmed: 1,
        uploads: vec![7],
        ..open.clone()
    };
    let Answered::ProducerOpened(second) = bench.open(again) else {
        panic!("it was not opened again");
    };
    assert_eq!(
        second.uploads.iter().map(|one| one.bytes).collect::<Vec<_>>(),
        [PART as u64]
    );
    bench.connect();
    let other = proto::OpenProducer {
        uploads: vec![7],
        ..open
    };
    let Answered::ProducerOpened(third) = bench.open(other) else {
        panic!("it was not opened by its name");
    };
    assert!(third.uploads.is_empty());
    assert_eq!((bench.kept(), bench.uploaded_now()), (0, 0));
}
