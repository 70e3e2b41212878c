//! Connections of several streams: which sessions go with a stream that is lost, and which go on.

use super::*;

impl Bench {
    /// Greets on a new stream with the token of a connection, or none; the token that is answered.
    fn greet(&mut self, client_id: &str, connection_token: Vec<u8>) -> Vec<u8> {
        self.frames.clear();
        self.stream += 1;
        let stream = self.stream;
        self.engine().open_stream(stream, "test", false);
        let hello = proto::Hello {
            protocol_version: PROTOCOL_VERSION,
            client_id: client_id.to_owned(),
            connection_token,
            ..proto::Hello::default()
        };
        self.send(0, Sent::Hello(hello));
        let mut welcomes = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Welcome(welcome)) => Some(welcome.connection_token.clone()),
            _ => None,
        });
        welcomes.next().unwrap()
    }

    /// A session whose client acknowledges.
    fn session(&mut self, number: u32) {
        let open = proto::OpenSession {
            acknowledge_mode: AcknowledgeMode::Client.into(),
            ..proto::OpenSession::default()
        };
        self.send(number, Sent::OpenSession(open));
    }

    fn consume(&mut self, session: u32, number: u32) {
        let open = proto::OpenConsumer {
            consumer: number,
            destination: Some(orders()),
            credit: Some(proto::Credit {
                message_limit: 10,
                ..proto::Credit::default()
            }),
            ..proto::OpenConsumer::default()
        };
        self.send(session, Sent::OpenConsumer(open));
    }

    /// What has been delivered: consumers' numbers, and which delivery of its message each is.
    fn received(&self) -> Vec<(u32, u32)> {
        let deliver = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(deliver),
            _ => None,
        });
        deliver
            .flat_map(|deliver| {
                deliver
                    .deliveries
                    .iter()
                    .map(|one| (deliver.consumer, one.delivery_count.max(1)))
            })
            .collect()
    }

    fn lose(&mut self, stream: u64) {
        self.engine().close_stream(stream);
        self.settle();
    }

    /// Connections, sessions, producers and consumers that the engine knows.
    fn known(&mut self) -> [usize; 4] {
        let engine = self.engine();
        [
            engine.connections.len(),
            engine.sessions.len(),
            engine.producers.len(),
            engine.consumers.len(),
        ]
    }
}

#[test]
fn a_stream_that_breaks_takes_its_sessions_along_at_once_and_those_of_other_streams_go_on() {
    let mut bench = Bench::new(Properties::default());
    let token = bench.greet("me", Vec::new());
    let first = bench.stream;
    bench.session(1);
    bench.consumer(1, 10);
    bench.producer(0, 0);
    bench.publish(1, "a");
    assert_eq!(bench.received(), [(1, 1)]);
    assert_eq!(bench.greet("me", token.clone()), token);
    bench.session(2);
    bench.consume(2, 2);
    assert_eq!(bench.known(), [1, 2, 1, 2]);
    bench.frames.clear();
    bench.lose(first);
    assert_eq!(bench.known(), [1, 1, 0, 1]);
    assert_eq!(bench.received(), [(2, 2)], "what it had was seen, perhaps");
    // Their numbers are free: who comes back needs no others.
    bench.session(1);
    bench.producer(0, 0);
    bench.publish(1, "b");
    assert_eq!(bench.confirmed(), [1]);
    assert_eq!(bench.received(), [(2, 2), (2, 1)]);
}

#[test]
fn a_half_open_stream_whose_client_has_joined_anew_leaves_nothing_behind() {
    let mut bench = Bench::new(Properties::default());
    let token = bench.greet("me", Vec::new());
    let half_open = bench.stream;
    bench.session(1);
    bench.consumer(1, 10);
    bench.producer(0, 0);
    bench.publish(1, "a");
    assert_eq!(bench.greet("me", token.clone()), token);
    let joined = bench.stream;
    bench.session(2);
    // Only one of the two is heard of from now on.
    for _ in 0..40 {
        bench.advance(1_000);
        bench.handle(0, Sent::Heartbeat(proto::Heartbeat {}));
        bench.settle();
    }
    assert!(bench.engine().streams.get(&half_open).unwrap().phase == super::super::stream::Phase::Closing);
    assert_eq!(bench.known(), [1, 1, 0, 0]);
    bench.consume(2, 1);
    assert_eq!(
        bench.received(),
        [(1, 2)],
        "its number is free, and its message comes again"
    );
    bench.lose(half_open);
    assert_eq!(bench.known(), [1, 1, 0, 1]);
    bench.lose(joined);
    assert_eq!(bench.known(), [0; 4]);
    assert!(bench.engine().tokens.is_empty() && bench.engine().client_ids.is_empty());
}

#[test]
fn a_connection_ends_with_its_last_stream_and_its_token_with_it() {
    let mut bench = Bench::new(Properties::default());
    let token = bench.greet("me", Vec::new());
    let first = bench.stream;
    bench.greet("me", token.clone());
    let second = bench.stream;
    bench.session(1);
    bench.lose(first);
    assert_eq!(
        bench.greet("me", token.clone()),
        token,
        "by the other stream it is still there"
    );
    let third = bench.stream;
    bench.lose(second);
    bench.lose(third);
    assert_eq!(bench.known(), [0; 4]);
    assert_ne!(bench.greet("me", token.clone()), token);
    assert_eq!(bench.known(), [1, 0, 0, 0]);
}
