//! Who gets what, and what it costs to find out.

use super::*;

impl Bench {
    fn open_consumer(&mut self, number: u32, message_limit: u64, drain: bool) {
        let open = proto::OpenConsumer {
            consumer: number,
            destination: Some(orders()),
            credit: Some(proto::Credit {
                message_limit,
                drain,
                ..proto::Credit::default()
            }),
            ..proto::OpenConsumer::default()
        };
        self.send(1, Sent::OpenConsumer(open));
    }

    fn grant_credit(&mut self, consumer: u32, message_limit: u64, drain: bool) {
        let credit = proto::Credit {
            consumer,
            message_limit,
            drain,
            ..proto::Credit::default()
        };
        self.send(1, Sent::Credit(credit));
    }

    /// Consumer and sequence of each delivery.
    fn handed(&self) -> Vec<(u32, u64)> {
        let deliver = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(deliver),
            _ => None,
        });
        deliver
            .flat_map(|deliver| deliver.deliveries.iter().map(|one| (deliver.consumer, one.sequence)))
            .collect()
    }

    fn drained(&self) -> Vec<u32> {
        let drained = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::Drained(drained)) => Some(drained.consumer),
            _ => None,
        });
        drained.collect()
    }
}

// covers: EMS-DEST-A13
#[test]
fn a_message_costs_the_same_however_many_consumers_wait() {
    const CONSUMERS: u32 = 1_000;
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for number in 1..=CONSUMERS {
        // Half of them have no credit, and are not asked again and again.
        bench.open_consumer(number, u64::from(number % 2) * 2, false);
    }
    let before = bench.engine().attempts;
    for sequence in 1..=u64::from(CONSUMERS) {
        bench.publish(sequence, "x");
    }
    let attempts = bench.engine().attempts - before;
    assert!(
        attempts <= 4 * u64::from(CONSUMERS),
        "{attempts} attempts for {CONSUMERS} messages"
    );
    let mut counts = vec![0; CONSUMERS as usize + 1];
    bench
        .handed()
        .iter()
        .for_each(|(consumer, _)| counts[*consumer as usize] += 1);
    assert!((1..=CONSUMERS).all(|number| counts[number as usize] == number % 2 * 2));
    // Those who get credit later are served at once.
    bench.publish(u64::from(CONSUMERS) + 1, "x");
    bench.grant_credit(2, 1, false);
    assert_eq!(bench.handed().last(), Some(&(2, u64::from(CONSUMERS) + 1)));
}

// covers: EMS-DEST-A13
#[test]
fn consumers_take_turns_and_one_without_credit_loses_only_its_own() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for (number, limit) in [(1, 10), (2, 1), (3, 10)] {
        bench.open_consumer(number, limit, false);
    }
    for sequence in 1..=6 {
        bench.publish(sequence, "x");
    }
    let consumers: Vec<u32> = bench.handed().iter().map(|(consumer, _)| *consumer).collect();
    assert_eq!(consumers, [1, 2, 3, 1, 3, 1]);
    bench.grant_credit(2, 2, false);
    bench.publish(7, "x");
    bench.publish(8, "x");
    let consumers: Vec<u32> = bench.handed().iter().map(|(consumer, _)| *consumer).collect();
    assert_eq!(consumers[6..], [3, 1]);
    bench.publish(9, "x");
    assert_eq!(bench.handed().last(), Some(&(2, 9)));
}

#[test]
fn whoever_drains_hears_of_the_end_and_others_do_not() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "x");
    bench.open_consumer(1, 5, true);
    assert_eq!((bench.handed(), bench.drained()), (vec![(1, 1)], vec![1]));
    bench.open_consumer(2, 5, false);
    bench.grant_credit(1, 6, true);
    bench.grant_credit(2, 6, false);
    assert_eq!(bench.drained(), [1, 1]);
    // One whose session is stopped hears of it when that goes on.
    bench.send(1, Sent::Start(proto::Start { stop: true }));
    bench.grant_credit(2, 7, true);
    assert_eq!(bench.drained(), [1, 1]);
    bench.send(1, Sent::Start(proto::Start { stop: false }));
    assert_eq!(bench.drained(), [1, 1, 2]);
}

#[test]
fn what_is_taken_back_is_credit_again() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.open_consumer(1, 1, false);
    // Handed over, and not gone out before it is given back and purged.
    bench.publish_quietly(1);
    bench.engine().purge_queue("orders").unwrap();
    bench.settle();
    assert_eq!(bench.handed(), []);
    bench.publish(2, "x");
    assert_eq!(bench.handed(), [(1, 2)]);
}

#[test]
fn messages_are_handed_out_after_a_start_although_the_clock_stands_still() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish_for(1, 10);
    bench.publish(2, "stays");
    bench.now.wall_ms += 10_000;
    bench.start();
    bench.connect();
    bench.open_consumer(1, 5, true);
    assert_eq!(
        (bench.handed(), bench.drained()),
        (vec![], vec![]),
        "nobody knows yet what is expired"
    );
    let now = bench.now;
    bench.engine().tick(now);
    bench.settle();
    assert_eq!((bench.handed(), bench.drained()), (vec![(1, 2)], vec![1]));
}

// covers: EMS-MSG-A19
#[test]
fn a_reliable_message_without_its_upload_is_dropped_in_silence() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for (sequence, mode) in [(1, 2), (2, 0)] {
        let mut message = Vec::new();
        crate::wire::put_varint_field(&mut message, 1, mode);
        crate::wire::put_bytes_field(&mut message, 14, &[9, 77, 0, 0, 0, 0, 0, 0, 0]);
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![message.into()],
            ..proto::Publish::default()
        };
        bench.send(1, Sent::Publish(publish));
    }
    let refused: Vec<u64> = bench.rejected().into_iter().map(|(first, _)| first).collect();
    assert_eq!((refused, bench.confirmed()), (vec![2], vec![]));
}

impl Bench {
    /// Publishes and hands out, without taking the output.
    fn publish_quietly(&mut self, sequence: u64) {
        let publish = proto::Publish {
            producer: 1,
            first_sequence: sequence,
            messages: vec![b"\x4a\x01x".to_vec().into()],
            ..proto::Publish::default()
        };
        self.handle(1, Sent::Publish(publish));
        while let Ok(Some(job)) = self.engine().next_write() {
            let done = job.run();
            self.engine().complete_write(done).unwrap();
            let ready = self.engine().poll().ready;
            self.ready.extend(ready);
        }
    }
}

#[test]
fn what_is_taken_before_a_browser_sees_it_is_no_damage() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let mut message = Vec::new();
    crate::wire::put_varint_field(&mut message, 1, 1);
    let publish = proto::Publish {
        producer: 1,
        first_sequence: 1,
        messages: vec![message.into()],
        ..proto::Publish::default()
    };
    bench.send(1, Sent::Publish(publish));
    let browse = proto::OpenConsumer {
        consumer: 1,
        destination: Some(orders()),
        browse: true,
        ..proto::OpenConsumer::default()
    };
    bench.send(1, Sent::OpenConsumer(browse));
    let credit = proto::Credit {
        consumer: 1,
        message_limit: 5,
        ..proto::Credit::default()
    };
    bench.handle(1, Sent::Credit(credit));
    let ready = bench.engine().poll().ready;
    bench.ready.extend(ready);
    bench.engine().purge_queue("orders").unwrap();
    bench.settle();
    assert_eq!((bench.handed(), bench.errors()), (vec![], vec![]));
    assert_eq!(bench.drained(), [1], "and it hears of the end");
}

#[test]
fn what_is_taken_back_before_it_went_out_is_credit_again() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for sequence in 1..=3 {
        bench.publish(sequence, "a");
    }
    bench.open_consumer(1, 0, false);
    let credit = proto::Credit {
        consumer: 1,
        message_limit: 2,
        ..proto::Credit::default()
    };
    bench.handle(1, Sent::Credit(credit));
    let ready = bench.engine().poll().ready;
    bench.ready.extend(ready);
    bench.handle(1, Sent::Recover(proto::Recover::default()));
    bench.settle();
    assert_eq!(bench.handed(), [(1, 1), (1, 2)]);
}

#[test]
fn what_a_browser_of_the_session_has_not_been_sent_comes_flagged_if_a_consumer_had_it() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "b");
    bench.open_consumer(1, 2, false);
    let browse = proto::OpenConsumer {
        consumer: 2,
        destination: Some(orders()),
        browse: true,
        ..proto::OpenConsumer::default()
    };
    bench.send(1, Sent::OpenConsumer(browse));
    let credit = proto::Credit {
        consumer: 2,
        message_limit: 2,
        ..proto::Credit::default()
    };
    // The browser's copies wait to go out, and the client is lost.
    bench.handle(1, Sent::Credit(credit));
    bench.engine().poll();
    assert_eq!(bench.handed(), [(1, 1), (1, 2)]);
    bench.close();
    bench.frames.clear();
    bench.connect();
    bench.open_consumer(1, 2, false);
    let deliveries = bench.frames.iter().filter_map(|frame| match &frame.frame {
        Some(Got::Deliver(deliver)) => Some(&deliver.deliveries),
        _ => None,
    });
    let told: Vec<_> = deliveries
        .flatten()
        .map(|one| (one.sequence, one.redelivered, one.delivery_count))
        .collect();
    assert_eq!(told, [(1, true, 2), (2, true, 2)]);
}

#[test]
fn a_message_that_the_disk_cannot_read_is_put_aside_with_its_reason_and_the_others_come() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    for (sequence, text) in [(1, "one"), (2, "two"), (3, "three")] {
        bench.publish(sequence, text);
        bench.settle();
    }
    bench.start();
    let id = bench.source();
    let place = bench.engine().state().browse(id, 0).nth(1).unwrap().position;
    // In its first segment a log's positions are the file's offsets.
    bench.disk.make_unreadable("0000000000000001.segment", place.get());
    bench.connect();
    bench.open_consumer(1, 10, false);
    bench.settle();
    assert_eq!(bench.handed(), [(1, 1), (1, 3)]);
    assert_eq!(bench.errors(), [ErrorCode::MessageDamaged]);
    let undelivered = crate::state::UNDELIVERED.source();
    let aside: Vec<_> = bench.engine().state().browse(undelivered, 0).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(aside[0].position, place);
    let mut cursor = bench.engine().state().browse_cursor(undelivered);
    let found = bench.engine().state_mut().browse_next(&mut cursor, None);
    assert!(
        matches!(found, crate::state::BrowseNext::Found(_, seen) if seen.reason == Some(crate::state::Reason::Damaged)),
        "{found:?}"
    );
    let state = bench.engine().state();
    assert!(state.source(id).unwrap().queue.find(2).is_none());
    let places = state.log().damaged_places();
    assert!(places.len() == 1 && places[0].why.contains("cannot read"), "{places:?}");
    assert!(bench.engine().state().failed().is_none());
}

#[test]
fn what_is_damaged_takes_no_credit() {
    for bytes_limit in [0, 1] {
        let mut bench = Bench::new(Properties::default());
        bench.connect();
        bench.producer(0, 0);
        for sequence in 1..=8 {
            bench.publish(sequence, "some text");
            bench.settle();
        }
        bench.start();
        let id = bench.source();
        let places: Vec<_> = bench
            .engine()
            .state()
            .browse(id, 0)
            .map(|entry| entry.position)
            .collect();
        for damaged in [0, 1, 2, 4, 6] {
            bench
                .disk
                .make_unreadable("0000000000000001.segment", places[damaged].get());
        }
        bench.connect();
        // Credit for exactly what is whole: by messages, or for one message at a time by bytes.
        let open = proto::OpenConsumer {
            consumer: 1,
            destination: Some(orders()),
            credit: Some(proto::Credit {
                consumer: 1,
                message_limit: if bytes_limit == 0 { 2 } else { 8 },
                bytes_limit,
                drain: false,
            }),
            ..proto::OpenConsumer::default()
        };
        bench.send(1, Sent::OpenConsumer(open));
        bench.settle();
        let expected: &[(u32, u64)] = if bytes_limit == 0 { &[(1, 4), (1, 6)] } else { &[(1, 4)] };
        assert_eq!(bench.handed(), expected, "bytes_limit {bytes_limit}");
        let credit = proto::Credit {
            consumer: 1,
            message_limit: 8,
            ..proto::Credit::default()
        };
        bench.send(1, Sent::Credit(credit));
        bench.settle();
        assert_eq!(bench.handed(), [(1, 4), (1, 6), (1, 8)]);
        assert_eq!(bench.errors(), [ErrorCode::MessageDamaged; 5]);
    }
}
