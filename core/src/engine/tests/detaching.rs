//! Connections whose stream is lost and comes back.

use super::*;

impl Bench {
    /// Greets on a new stream, under a token if there was a connection before; the token for the next time, and whether
    /// the connection was found.
    pub(super) fn greet(&mut self, connection_token: Vec<u8>) -> (Vec<u8>, bool) {
        self.frames.clear();
        self.stream += 1;
        let stream = self.stream;
        self.engine().open_stream(stream, "test", true);
        let hello = proto::Hello {
            protocol_version: PROTOCOL_VERSION,
            connection_token,
            detach_ms: 60_000,
            ..proto::Hello::default()
        };
        self.send(0, Sent::Hello(hello));
        let mut welcomes = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Welcome(welcome)) => Some((welcome.connection_token.clone(), welcome.resumed)),
            _ => None,
        });
        welcomes.next().unwrap()
    }

    /// Greets, opens a session whose client acknowledges, and in it a producer; the token for the next time.
    pub(super) fn greet_with_producer(&mut self) -> Vec<u8> {
        let (token, _) = self.greet(Vec::new());
        let open = proto::OpenSession {
            acknowledge_mode: AcknowledgeMode::Client.into(),
            ..proto::OpenSession::default()
        };
        self.send(1, Sent::OpenSession(open));
        self.producer(0, 0);
        token
    }

    fn delivered(&self) -> usize {
        let deliver = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(deliver.deliveries.len()),
            _ => None,
        });
        deliver.sum()
    }
}

#[test]
fn after_a_return_a_consumer_gets_nothing_before_it_has_granted_credit_anew() {
    let mut bench = Bench::new(Properties::default());
    let token = bench.greet_with_producer();
    bench.consumer(1, 10);
    bench.publish(1, "a");
    assert_eq!(bench.delivered(), 1);
    bench.close();
    let (_, resumed) = bench.greet(token);
    assert!(resumed);
    assert_eq!(bench.delivered(), 0, "the credit of the lost stream is void");
    let credit = proto::Credit {
        consumer: 1,
        message_limit: 5,
        ..proto::Credit::default()
    };
    bench.send(1, Sent::Credit(credit));
    assert_eq!(bench.delivered(), 1);
}

#[test]
fn who_comes_back_while_the_lost_stream_seems_alive_gets_its_sessions_when_that_ends() {
    let mut bench = Bench::new(Properties::default());
    let token = bench.greet_with_producer();
    let lost = bench.stream;
    bench.consumer(1, 10);
    bench.publish(1, "a");
    let (_, resumed) = bench.greet(token);
    assert!(resumed);
    bench.engine().close_stream(lost);
    bench.settle();
    let drained = |frame: &proto::ServerFrame| matches!(&frame.frame, Some(Got::Drained(_)));
    assert!(
        bench.frames.iter().any(drained),
        "it is told from where its credit counts"
    );
    let credit = proto::Credit {
        consumer: 1,
        message_limit: 5,
        ..proto::Credit::default()
    };
    bench.send(1, Sent::Credit(credit));
    assert_eq!(bench.delivered(), 1);
    bench.publish(2, "b");
    assert_eq!(bench.delivered(), 2);
}

#[test]
fn who_comes_back_is_told_which_consumers_were_closed_meanwhile() {
    for deletes in [false, true] {
        let mut bench = Bench::new(Properties::default());
        let (token, _) = bench.greet(Vec::new());
        let open = proto::OpenSession {
            acknowledge_mode: AcknowledgeMode::Client.into(),
            ..proto::OpenSession::default()
        };
        bench.send(1, Sent::OpenSession(open));
        bench.consumer(1, 10);
        bench.consumer(2, 10);
        let stream = bench.stream;
        bench.engine().close_stream(stream);
        let reason = refuse(ErrorCode::Moved, "orders", "It lives elsewhere.");
        if deletes {
            bench
                .engine()
                .delete_for(Kind::Queue, "orders", false, &reason)
                .unwrap();
        } else {
            let elsewhere = bench.engine().serve_elsewhere(Kind::Queue, "orders", Some(reason));
            elsewhere.unwrap();
        }
        bench.settle();
        for (token, told) in [(token.clone(), 2), (token, 0)] {
            let (_, resumed) = bench.greet(token);
            bench.settle();
            assert!(resumed);
            let closed = bench.frames.iter().filter_map(|frame| match &frame.frame {
                Some(Got::ConsumerClosed(closed)) => Some((closed.consumer, closed.reason.as_ref().unwrap().code())),
                _ => None,
            });
            let expected = [(1, ErrorCode::Moved), (2, ErrorCode::Moved)];
            assert_eq!(
                closed.collect::<Vec<_>>(),
                expected[..told],
                "once, and not again: {deletes}"
            );
            let stream = bench.stream;
            bench.engine().close_stream(stream);
        }
    }
}
