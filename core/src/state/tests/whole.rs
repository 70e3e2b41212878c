//! Operations that log several records, at every room that may be left in the log: they take effect as a whole or not at all.

use super::*;
use crate::log::AppendError;

/// A broker with small segments. Whatever it does then, what the test prepares comes first.
fn bench() -> Bench {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 32 * 1024;
    options.log.commit_bytes_max = 32 * 1024;
    options.volatile_bytes = 64 << 20;
    Bench::on(SimDisk::new(1), options)
}

/// Fills the log up, the reserve included, but for the last `left` of the moves that end it. No upkeep runs. How many moves
/// there were.
fn fill(bench: &mut Bench, moves: usize) -> usize {
    let [here, there] = ["here", "there"].map(|name| bench.queue(name, Properties::default()));
    for sent in 0..3_000 {
        bench.send(here, &Message::text("x"));
        if sent % 250 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    let big = Message::text("x".repeat(8_000));
    while bench.try_send(here, &big).is_ok() {}
    for moved in 0..moves {
        let sequence = 1 + moved as u64;
        match bench.state().move_message(here.source(), sequence, there.source(), "") {
            Ok(()) => {}
            Err(StateError::Append(AppendError::NoSpace)) => return moved,
            Err(error) => panic!("{error}"),
        }
    }
    moves
}

/// As `fill`, and then what is kept for upkeep, by so many blocks at most; how many it took.
fn fill_kept(bench: &mut Bench, blocks: usize) -> usize {
    fill(bench, usize::MAX);
    let mut head = Vec::new();
    crate::state::starts::StartHead { id: 7, secret: None }.encode(&mut head);
    for block in 0..blocks {
        if bench
            .state()
            .log
            .append_kept(crate::state::catalogue_record::kinds::START, &head, &[])
            .is_err()
        {
            return block;
        }
        let job = bench.state().next_write().unwrap().unwrap();
        bench.state().complete_write(job.run()).unwrap();
    }
    blocks
}

/// Does something with each room that may be left: `act` says whether it was done, `check` what there is then, also after a
/// restart.
fn at_every_room<T>(
    lefts: impl Iterator<Item = usize>,
    prepare: impl Fn(&mut Bench) -> T,
    act: impl Fn(&mut Bench, &T) -> Result<(), StateError>,
    check: impl Fn(&mut Bench, &T, bool),
) {
    at_every_room_of(fill, lefts, prepare, act, check);
}

fn at_every_room_of<T>(
    fill: impl Fn(&mut Bench, usize) -> usize,
    lefts: impl Iterator<Item = usize>,
    prepare: impl Fn(&mut Bench) -> T,
    act: impl Fn(&mut Bench, &T) -> Result<(), StateError>,
    check: impl Fn(&mut Bench, &T, bool),
) {
    let mut full = bench();
    prepare(&mut full);
    let most = fill(&mut full, usize::MAX);
    assert!((5..3_000).contains(&most), "{most}");
    let (mut done, mut refused) = (0, 0);
    for left in lefts {
        let mut bench = bench();
        let prepared = prepare(&mut bench);
        assert_eq!(fill(&mut bench, most - left), most - left);
        let result = act(&mut bench, &prepared);
        match &result {
            Ok(()) => done += 1,
            Err(StateError::Append(AppendError::NoSpace)) => refused += 1,
            Err(error) => panic!("{left} left: {error}"),
        }
        check(&mut bench, &prepared, result.is_ok());
        while let Some(job) = bench.state().next_write().unwrap() {
            let written = job.run();
            bench.state().complete_write(written).unwrap();
        }
        bench.restart();
        check(&mut bench, &prepared, result.is_ok());
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
}

struct Rolling {
    rolling: DestinationId,
    orders: DestinationId,
    tx: Tx,
}

/// A transaction that has acknowledged two messages, and sent three to a queue that then discards three others.
fn rolling(bench: &mut Bench) -> Rolling {
    let properties = Properties {
        messages_max: 3,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let rolling = bench.queue("rolling", properties);
    let orders = bench.queue("orders", Properties::default());
    for text in ["a", "b", "c"] {
        bench.send(rolling, &Message::text(text));
        bench.send(orders, &Message::text(text));
    }
    bench.settle();
    let tx = Tx { owner: 1, number: 1 };
    for _ in 0..2 {
        let (_, sequence, _) = bench.take(orders.source()).unwrap();
        let range = [(sequence, sequence)];
        bench
            .state()
            .acknowledge(orders.source(), &range, |_| true, Some(tx))
            .unwrap();
    }
    for text in ["d", "e", "f"] {
        bench.send_in(tx, rolling, &Message::text(text)).unwrap();
    }
    bench.settle();
    Rolling { rolling, orders, tx }
}

impl Rolling {
    fn check(&self, bench: &mut Bench, committed: bool) {
        let held = |bench: &mut Bench, id: DestinationId| bench.state().held_messages(id);
        let sequences = |bench: &mut Bench| -> Vec<u64> {
            let source = bench.state().source(self.rolling.source()).unwrap();
            source.queue.iter().map(|(_, entry)| entry.sequence).collect()
        };
        if committed {
            assert_eq!(sequences(bench), [4, 5, 6]);
            assert_eq!(held(bench, self.orders), 1);
        } else {
            assert_eq!(sequences(bench), [1, 2, 3]);
            assert_eq!(held(bench, self.orders), 3);
        }
    }
}

// covers: EMS-TX-A02
#[test]
fn a_commit_takes_effect_as_a_whole_or_says_that_it_did_not() {
    at_every_room(
        0..12,
        rolling,
        |bench, story| bench.state().commit(story.tx).map(|_| ()),
        |bench, story, done| story.check(bench, done),
    );
}

// covers: EMS-TX-A02
#[test]
fn a_prepared_transaction_commits_as_a_whole_or_is_still_prepared() {
    let xid = Xid {
        format: 1,
        global: vec![7; 64],
        branch: vec![8; 64],
    };
    at_every_room(
        0..12,
        |bench| {
            let story = rolling(bench);
            bench.state().prepare(story.tx, xid.clone()).unwrap();
            bench.settle();
            story
        },
        |bench, _| bench.state().commit_prepared(&xid).map(|_| ()),
        |bench, story, done| {
            story.check(bench, done);
            assert_eq!(bench.state().prepared().len(), usize::from(!done));
        },
    );
    at_every_room(
        0..12,
        rolling,
        |bench, story| bench.state().prepare(story.tx, xid.clone()).map(|_| ()),
        |bench, story, done| {
            story.check(bench, false);
            assert_eq!(bench.state().prepared().len(), usize::from(done));
        },
    );
}

// covers: EMS-DEST-A24
#[test]
fn a_subscription_that_cannot_be_replaced_keeps_what_it_holds() {
    let replace = |bench: &mut Bench| {
        bench.state().subscribe(SubscriptionDefinition {
            client_id: "me".to_owned(),
            name: "late".to_owned(),
            durable: true,
            shared: false,
            // An administrator's may use the reserve.
            is_static: true,
            pattern: Pattern::parse("flights").unwrap(),
            selector: selector("delay > 60"),
            no_local: false,
            connection: 7,
        })
    };
    at_every_room(
        0..12,
        |bench| {
            let topic = bench.topic("flights", Properties::default());
            let source = bench.subscribe("late", "flights", |_| {});
            bench.send(topic, &Message::text("a"));
            bench.settle();
            source
        },
        |bench, _| {
            let subscribed = replace(bench)?;
            assert!(subscribed.replaced && subscribed.created);
            Ok(())
        },
        |bench, source, done| {
            let found = bench.state().subscription("me", "late").unwrap();
            assert_eq!(found.id != *source, done);
            assert_eq!(found.selector_text.is_empty(), !done);
            let id = found.id;
            let held = bench.state().source(id).unwrap().statistics.messages;
            assert_eq!(held, u64::from(!done));
        },
    );
}

#[test]
fn a_clients_subscription_that_finds_only_the_reserve_keeps_what_it_holds() {
    let mut bench = bench();
    let topic = bench.topic("flights", Properties::default());
    let source = bench.subscribe("late", "flights", |_| {});
    bench.send(topic, &Message::text("a"));
    bench.settle();
    bench.disk.set_faults(crate::sim::Faults {
        space_bytes: Some(1),
        ..crate::sim::Faults::default()
    });
    let here = bench.queue("here", Properties::default());
    while bench.try_send(here, &Message::text("x".repeat(8_000))).is_ok() {
        bench.settle();
    }
    let refused = bench.state().subscribe(SubscriptionDefinition {
        client_id: "me".to_owned(),
        name: "late".to_owned(),
        durable: true,
        shared: false,
        is_static: false,
        pattern: Pattern::parse("flights").unwrap(),
        selector: selector("delay > 60"),
        no_local: false,
        connection: 7,
    });
    assert!(
        matches!(refused, Err(StateError::Append(AppendError::NoSpace))),
        "{refused:?}"
    );
    assert_eq!(bench.texts(source), ["a"]);
    bench.restart();
    assert_eq!(bench.texts(source), ["a"]);
}

#[test]
fn a_purge_of_more_than_one_record_ends_all_or_none() {
    at_every_room_of(
        fill_kept,
        0..7,
        |bench| {
            let queue = bench.queue("many", Properties::default());
            for sent in 0..5_000 {
                bench.send(queue, &Message::text("x"));
                if sent % 250 == 0 {
                    bench.settle();
                }
            }
            bench.settle();
            queue
        },
        |bench, queue| bench.state().purge(queue.source(), "admin").map(|_| ()),
        |bench, queue, done| {
            let held = bench.state().held_messages(*queue);
            assert_eq!(held, if done { 0 } else { 5_000 });
        },
    );
}

// covers: EMS-DEST-A63
#[test]
fn nothing_is_discarded_where_one_of_several_queues_finds_no_room() {
    // A message that is not logged takes the place of logged ones in two queues.
    let rolling = |bench: &mut Bench| {
        let properties = Properties {
            messages_max: 1,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        };
        let topics = bench.queue("first", properties.clone());
        let second = bench.queue("second", properties);
        bench.bridge(Kind::Queue, "first", Kind::Queue, "second", None);
        bench.send(topics, &Message::text("logged"));
        bench.settle();
        [topics, second]
    };
    at_every_room(
        0..12,
        rolling,
        |bench, [first, _]| match bench.try_send(*first, &Message::text("volatile").volatile()) {
            Ok(_) => Ok(()),
            Err(PublishError::Append(error)) => Err(error.into()),
            Err(error) => panic!("{error}"),
        },
        |bench, queues, done| {
            for queue in queues {
                let source = bench.state().source(queue.source()).unwrap();
                let logged = source.queue.iter().filter(|(_, entry)| entry.sequence == 1).count();
                assert_eq!(logged, usize::from(!done));
            }
        },
    );
}

#[test]
fn a_checkpoint_that_finds_no_room_for_all_of_it_takes_none() {
    at_every_room(
        [0].into_iter().chain((500..1000).step_by(20)),
        |bench| {
            for number in 0..900 {
                let name = DestinationName::parse(&format!("a.queue.with.a.name.of.some.length.{number}")).unwrap();
                let state = bench.state();
                let made = state.ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default());
                made.unwrap();
            }
            bench.settle();
        },
        |bench, ()| {
            let before = bench.state().log().end();
            let result = bench.state().checkpoint();
            if result.is_err() {
                assert_eq!(bench.state().log().end(), before);
            }
            result?;
            Ok(())
        },
        |bench, (), _| assert_eq!(bench.state().catalogue().destinations().count(), 903),
    );
}

// covers: EMS-DEST-A63
#[test]
fn what_expires_at_a_commit_takes_no_room_that_the_commit_needs() {
    at_every_room(
        0..20,
        |bench| {
            let names = ["one", "two", "three", "four", "five", "six"];
            let queues = names.map(|name| bench.queue(name, Properties::default()));
            let rolling = rolling(bench);
            // More is due than a tick handles: a commit finds the rest.
            let many = Message::text("").ttl(10).volatile().encode();
            let view = MessageView::parse(&many).unwrap();
            let incoming = Incoming {
                view: &view,
                uploaded: &[],
                incarnation: 0,
                sequence: 0,
                connection: 7,
                client_id: "me",
                user: "",
                transaction: None,
                may_be_again: false,
            };
            for _ in 0..65_536 {
                bench.state().publish(queues[0], &incoming).unwrap();
            }
            for queue in queues {
                bench.send(queue, &Message::text("late").ttl(20));
            }
            bench.settle();
            bench.advance(1_000);
            assert!(bench.state().is_overdue());
            rolling
        },
        |bench, rolling| bench.state().commit(rolling.tx).map(|_| ()),
        |bench, rolling, committed| rolling.check(bench, committed),
    );
}
