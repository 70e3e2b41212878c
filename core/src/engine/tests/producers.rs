//! Producers that come back: who is taken for whom, in this store, another one, and an older copy of it.

use super::*;
use crate::proto::reply::Result as Answered;

impl Bench {
    /// Opens a producer as a client that was given this incarnation and this token would; its answer.
    fn come_back(&mut self, incarnation: u64, token: Vec<u8>) -> Answered {
        self.come_back_to(Some(orders()), incarnation, token)
    }

    fn come_back_to(&mut self, destination: Option<proto::Destination>, incarnation: u64, token: Vec<u8>) -> Answered {
        let open = proto::OpenProducer {
            producer: 1,
            destination,
            incarnation,
            first_unconfirmed: 1,
            token,
            left_out: Vec::new(),
            ..proto::OpenProducer::default()
        };
        self.open(open)
    }

    fn begin_anew(&mut self) {
        self.start();
        self.frames.clear();
        self.connect();
    }
}

fn is_unknown(answer: &Answered) -> bool {
    matches!(answer, Answered::Error(error) if error.code() == ErrorCode::UnknownProducer)
}

#[test]
fn a_producer_that_shows_its_token_goes_on_after_a_restart_and_nothing_is_kept_twice() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    let incarnation = bench.incarnation();
    let token = bench.token(incarnation);
    for _ in 0..2 {
        bench.begin_anew();
        assert!(
            matches!(bench.come_back(incarnation, token.clone()), Answered::ProducerOpened(opened)
            if (opened.incarnation, opened.last_sequence) == (incarnation, 1) && opened.token == token)
        );
        bench.publish(1, "a");
        assert_eq!((bench.confirmed(), bench.held()), (vec![1], Some(1)));
    }
}

#[test]
fn an_incarnation_is_taken_back_from_nobody_but_who_was_given_it() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    let incarnation = bench.incarnation();
    let token = bench.token(incarnation);
    let others = bench.engine().state().producer_token(incarnation, "somebody").unwrap();
    bench.reconnect();
    for (claimed, shown) in [
        (incarnation, Vec::new()),
        (incarnation, token[..15].to_vec()),
        (incarnation, [token.clone(), vec![0]].concat()),
        (incarnation, others.to_vec()),
        (incarnation + 1, token.clone()),
        (incarnation + (1 << 32), token.clone()),
        (u64::MAX, token.clone()),
    ] {
        assert!(is_unknown(&bench.come_back(claimed, shown)), "{claimed:x}");
    }
    assert!(matches!(
        bench.come_back(incarnation, token),
        Answered::ProducerOpened(_)
    ));
}

#[test]
fn a_store_that_is_new_gives_numbers_again_and_stores_what_comes_under_them() {
    let mut before = Bench::new(Properties::default());
    before.connect();
    before.producer(0, 0);
    (1..=50).for_each(|sequence| before.publish(sequence, "before"));
    let incarnation = before.incarnation();
    let token = before.token(incarnation);
    // The volume is lost: same name, same identity even, another start.
    let mut after = Bench::new(Properties::default());
    after.starts = 1_000;
    after.disk = SimDisk::new(2);
    after.begin_anew();
    assert!(is_unknown(&after.come_back(incarnation, token)));
    after.producer(0, 0);
    while after.incarnation() < incarnation {
        after.reconnect();
        after.producer(0, 0);
    }
    assert_eq!(after.incarnation(), incarnation, "the number is given again");
    (1..=50).for_each(|sequence| after.publish(sequence, "after"));
    assert_eq!((after.confirmed().len(), after.held()), (50, Some(50)));
}

#[test]
fn an_older_copy_takes_back_whom_it_knows_and_nobody_else() {
    let first = |later: u64| {
        let mut bench = Bench::new(Properties::default());
        bench.connect();
        bench.producer(0, 0);
        let early = bench.incarnation();
        let token = bench.token(early);
        // Here the copy was taken; what starts from it is another start than what went on.
        bench.starts = later;
        bench.begin_anew();
        bench.producer(0, 0);
        (bench, early, token)
    };
    let (mut went_on, early, early_token) = first(10);
    let late = went_on.incarnation();
    let late_token = went_on.token(late);
    let (mut copy, _, _) = first(20);
    assert_eq!(copy.incarnation(), late, "the same number");
    copy.reconnect();
    assert!(is_unknown(&copy.come_back(late, late_token)));
    assert!(matches!(
        copy.come_back(early, early_token),
        Answered::ProducerOpened(_)
    ));
}

#[test]
fn message_ids_tell_stores_apart_and_stay_after_a_restart() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    let incarnation = bench.incarnation();
    let expected = format!("ID:sterna.{incarnation:X}.0000000000000001:1");
    for _ in 0..2 {
        bench.begin_anew();
        bench.consumer(1, 10);
        let ids: Vec<String> = bench
            .frames
            .iter()
            .filter_map(|frame| match &frame.frame {
                Some(Got::Deliver(deliver)) => Some(deliver.deliveries[0].message_id.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(ids, std::slice::from_ref(&expected));
    }
}

#[test]
fn a_producer_of_many_destinations_is_unknown_once_any_of_its_numbers_may_be_forgotten() {
    let mut bench = Bench::new(Properties::default());
    bench.producers_max = 4;
    bench.begin_anew();
    bench.connect();
    bench.anonymous(0, 0);
    bench.send_to("orders", 1);
    let incarnation = bench.incarnation();
    let token = bench.token(incarnation);
    bench.reconnect();
    assert!(matches!(
        bench.come_back_to(None, incarnation, token.clone()),
        Answered::ProducerOpened(_)
    ));
    for _ in 0..8 {
        bench.reconnect();
        bench.producer(0, 0);
        bench.publish(1, "another's");
    }
    bench.reconnect();
    assert!(is_unknown(&bench.come_back_to(None, incarnation, token)));
    assert_eq!(bench.held(), Some(9));
}

#[test]
fn a_producer_that_comes_back_leaves_out_what_it_declares_and_nothing_else() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let incarnation = bench.incarnation();
    let token = bench.token(incarnation);
    let range = |first, last| proto::SequenceRange { first, last };
    let come_back = |bench: &mut Bench, left_out: Vec<proto::SequenceRange>| {
        bench.reconnect();
        bench.send(
            1,
            Sent::OpenProducer(proto::OpenProducer {
                producer: 1,
                destination: Some(orders()),
                incarnation,
                first_unconfirmed: 2,
                token: token.clone(),
                left_out,
                ..proto::OpenProducer::default()
            }),
        );
    };
    come_back(&mut bench, vec![range(3, 4), range(6, 0)]);
    for sequence in [2, 5, 7] {
        bench.publish(sequence, "kept");
    }
    assert_eq!((bench.confirmed(), bench.held()), (vec![2, 5, 7], Some(3)));
    come_back(&mut bench, Vec::new());
    bench.publish(2, "kept");
    bench.publish(4, "not declared");
    assert_eq!(
        (bench.confirmed(), bench.held()),
        (vec![2], Some(3)),
        "a gap closes the producer"
    );
    for wrong in [
        vec![range(1, 1)],
        vec![range(4, 3)],
        vec![range(5, 6), range(6, 7)],
        vec![range(3, u64::MAX)],
    ] {
        come_back(&mut bench, wrong);
        assert_eq!(bench.errors(), [ErrorCode::InvalidArgument]);
    }
}

#[test]
fn a_number_that_comes_again_is_unknown_when_its_producer_left_the_table_after_it_came_back() {
    for bound in [true, false] {
        let mut bench = Bench::new(Properties::default());
        bench.producers_max = 4;
        bench.begin_anew();
        let to = bound.then(orders);
        let send = |bench: &mut Bench, sequence| match bound {
            true => bench.publish(sequence, "in doubt"),
            false => bench.send_to("orders", sequence),
        };
        match bound {
            true => bench.producer(0, 0),
            false => bench.anonymous(0, 0),
        }
        send(&mut bench, 1);
        send(&mut bench, 2);
        let incarnation = bench.incarnation();
        let token = bench.token(incarnation);
        bench.reconnect();
        let opened = bench.come_back_to(to, incarnation, token);
        assert!(matches!(opened, Answered::ProducerOpened(_)), "{opened:?}");
        // Before it sends again, others push it out.
        let returned = bench.stream;
        for _ in 0..8 {
            bench.connect();
            bench.producer(0, 0);
            bench.publish(1, "another's");
        }
        bench.stream = returned;
        bench.frames.clear();
        send(&mut bench, 1);
        send(&mut bench, 2);
        let unknown = |sequence| (sequence, ErrorCode::UnknownProducer);
        assert_eq!(bench.rejected(), [unknown(1), unknown(2)], "bound: {bound}");
        assert_eq!(bench.held(), Some(10), "nothing is stored twice");
        if bound {
            // What it never sent before is new, whoever is forgotten.
            send(&mut bench, 3);
            assert_eq!((bench.confirmed(), bench.held()), (vec![3], Some(11)));
            // That it is known by this one again says nothing of those before.
            bench.frames.clear();
            send(&mut bench, 1);
            send(&mut bench, 2);
            assert_eq!(bench.rejected(), [unknown(1), unknown(2)]);
            assert_eq!((bench.confirmed(), bench.held()), (vec![], Some(11)));
        }
    }
}

#[test]
fn what_was_under_way_when_a_queue_takes_again_waits_for_what_it_refused_before() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "1");
    let closed = || errors::refuse(ErrorCode::Unavailable, "destination", "It is being emptied.");
    let close = |bench: &mut Bench, reason| {
        bench
            .engine()
            .close_to_producers(Kind::Queue, "orders", reason)
            .unwrap()
    };
    close(&mut bench, Some(closed()));
    bench.publish(2, "2");
    bench.publish(3, "3");
    close(&mut bench, None);
    // These were on their way, and would be taken before those that have to be sent again.
    bench.publish(4, "4");
    bench.publish(5, "5");
    assert_eq!(bench.confirmed(), [1]);
    let unavailable = |first| (first, ErrorCode::Unavailable);
    assert_eq!(bench.rejected(), [2, 3, 4, 5].map(unavailable));
    bench.publish(2, "2");
    bench.publish(6, "6");
    for sequence in 3..=6 {
        bench.publish(sequence, &sequence.to_string());
    }
    assert_eq!(bench.confirmed(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(bench.rejected().len(), 5, "and 6, once");
    assert_eq!(bench.held(), Some(6));
    // Whoever gives up what was refused goes on, after a moment.
    close(&mut bench, Some(closed()));
    bench.publish(7, "7");
    close(&mut bench, None);
    bench.publish(8, "8");
    bench.advance(2_001);
    bench.publish(9, "9");
    assert_eq!((bench.confirmed().last(), bench.held()), (Some(&9), Some(7)));
    // What is refused for good is not waited for.
    let mut for_good = closed();
    for_good.retryable = false;
    close(&mut bench, Some(for_good));
    bench.publish(10, "10");
    close(&mut bench, None);
    bench.publish(11, "11");
    assert_eq!((bench.confirmed().last(), bench.held()), (Some(&11), Some(8)));
}
