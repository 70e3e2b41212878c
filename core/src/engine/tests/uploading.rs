//! Bodies that are uploaded ahead of their messages: what is refused of them.

use super::refusing::uploaded;
use super::*;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;
use crate::proto::uploaded_body::As;

/// What the first message that was refused since the last look is told.
fn told(bench: &mut Bench) -> proto::Error {
    let found = bench.frames.iter().find_map(|frame| match &frame.frame {
        Some(Got::Rejected(rejected)) => rejected.error.clone(),
        _ => None,
    });
    bench.frames.clear();
    found.unwrap()
}

impl Bench {
    /// Limits of what is uploaded, with a client and a producer.
    fn with_uploads_of(message_bytes: u64, upload_bytes: u64) -> Self {
        let mut bench = Self::new(Properties::default());
        bench.limits.message_bytes = message_bytes;
        bench.limits.upload_bytes = upload_bytes;
        bench.start();
        bench.connect();
        bench
    }

    /// All is sent before the first answer comes.
    fn upload_in_parts(&mut self, upload_id: u64) {
        for offset in [0, 1_000, 2_000] {
            let chunk = proto::Upload {
                producer: 1,
                upload_id,
                offset,
                data: vec![b'x'; 1_000].into(),
                ..proto::Upload::default()
            };
            self.send(1, Sent::Upload(chunk));
        }
    }

    fn refused_uploads(&mut self) -> Vec<u32> {
        let connections = self.engine().connections.values();
        connections.map(|one| one.uploads_refused).collect()
    }
}

#[test]
fn a_message_whose_upload_was_refused_is_told_the_limit_its_value_and_what_to_do() {
    let cases = [
        (1_500, 10_000, "message_bytes", "limits.messageBytes"),
        (10_000, 1_500, "upload_bytes", "limits.uploadBytes"),
    ];
    for (message_bytes, upload_bytes, limit, setting) in cases {
        let mut bench = Bench::with_uploads_of(message_bytes, upload_bytes);
        bench.producer(0, 0);
        bench.upload_in_parts(7);
        assert_eq!(
            bench.errors(),
            [ErrorCode::LimitExceeded],
            "once, and not for each part"
        );
        assert_eq!(bench.refused_uploads(), [1]);
        bench.publish_message(1, uploaded(7, As::Bytes));
        let refused = told(&mut bench);
        assert_eq!(
            (refused.code(), refused.subject.as_str()),
            (ErrorCode::LimitExceeded, limit)
        );
        assert!(
            refused.message.contains(&format!("{limit} is 1500")),
            "{}",
            refused.message
        );
        assert!(refused.remedy.contains(setting), "{}", refused.remedy);
        // It is over with that, and never was an upload.
        assert_eq!(bench.refused_uploads(), [0]);
        bench.publish_message(2, uploaded(7, As::Bytes));
        assert_eq!(told(&mut bench).code(), ErrorCode::InvalidMessage);
        // Its room is there for the next.
        bench.upload(8, 1_000);
        bench.publish_message(3, uploaded(8, As::Bytes));
        assert_eq!((bench.confirmed(), bench.held()), (vec![3], Some(1)));
    }
}

#[test]
fn an_upload_that_was_refused_may_begin_anew_and_a_request_behind_it_is_refused_alike() {
    let mut bench = Bench::with_uploads_of(1_500, 10_000);
    bench.producer(0, 0);
    bench.upload_in_parts(7);
    bench.frames.clear();
    let late = proto::Upload {
        producer: 1,
        upload_id: 7,
        offset: 1_000,
        data: vec![b'x'; 10].into(),
        ..proto::Upload::default()
    };
    bench.ask(9, Sent::Upload(late));
    bench.settle();
    let answered = bench.frames.iter().find_map(|frame| match &frame.frame {
        Some(Got::Reply(reply)) => reply.result.clone(),
        _ => None,
    });
    assert!(matches!(answered, Some(proto::reply::Result::Error(error)) if error.subject == "message_bytes"));
    bench.upload(7, 1_000);
    assert_eq!(bench.refused_uploads(), [0]);
    bench.publish_message(1, uploaded(7, As::Bytes));
    assert_eq!(bench.confirmed(), [1]);
}

#[test]
fn refused_uploads_are_remembered_up_to_a_bound_and_not_longer_than_their_producer() {
    let mut bench = Bench::with_uploads_of(1_500, 1 << 20);
    bench.producer(0, 0);
    let most = super::super::arriving::REFUSED_MAX;
    for upload_id in 1..=u64::from(most) + 10 {
        bench.upload(upload_id, 1_501);
    }
    assert_eq!(bench.refused_uploads(), [most]);
    bench.frames.clear();
    // The first that is remembered, and one that is not any more.
    for (sequence, upload_id) in [(1, 1), (2, u64::from(most) + 10)] {
        bench.publish_message(sequence, uploaded(upload_id, As::Bytes));
        assert_eq!(told(&mut bench).subject, "message_bytes");
    }
    assert_eq!(bench.refused_uploads(), [most - 1]);
    bench.send(1, Sent::CloseProducer(proto::CloseProducer { producer: 1 }));
    assert_eq!(bench.refused_uploads(), [0]);
}

// covers: EMS-TX-A02
#[test]
fn a_refused_upload_undoes_the_transaction_of_its_message_and_the_commit_names_the_limit() {
    let mut bench = Bench::with_uploads_of(10_000, 1_500);
    bench.close();
    bench.connect_as(AcknowledgeMode::Transacted);
    bench.producer(0, 0);
    bench.upload_in_parts(7);
    bench.frames.clear();
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 1,
        messages: vec![uploaded(7, As::Bytes).into()],
        transaction: 5,
        ..proto::Publish::default()
    };
    bench.send(1, Sent::Publish(publish));
    assert_eq!(told(&mut bench).subject, "upload_bytes");
    let Answered::Error(refused) = bench.decided(5, Verb::Commit) else {
        panic!("a part of the transaction was not taken in");
    };
    assert_eq!(
        (refused.code(), refused.subject.as_str()),
        (ErrorCode::TransactionRolledBack, "upload_bytes")
    );
    assert!(refused.message.contains("upload_bytes is 1500"), "{}", refused.message);
    assert_eq!((bench.held(), bench.refused_uploads()), (Some(0), vec![0]));
}
