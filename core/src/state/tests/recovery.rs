//! Power loss at any step: what was confirmed is there, what was acknowledged stays gone, no transaction is torn.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::log::Position;
use crate::sim::Random;
use crate::sim::disk::Faults;
use crate::sim::seeds::each_seed;

/// What a client was told, by a message's text.
#[derive(Default)]
struct Told {
    sent: BTreeSet<String>,
    confirmed: BTreeSet<String>,
    delivered: BTreeSet<String>,
    acknowledged: BTreeSet<String>,
    /// Sent in one transaction each; the second part was told of its commit.
    transactions: Vec<(Vec<String>, bool)>,
}

struct Waiting {
    sent: Vec<(Position, String)>,
    acknowledged: Vec<(Position, String)>,
    committed: Vec<(Position, usize)>,
}

/// Runs a random mix until it is over or the power is lost, and notes what clients were told until then.
#[expect(clippy::too_many_lines, reason = "one arm for each thing a client does")]
fn run(bench: &mut Bench, random: &mut Random, steps: u64, told: &mut Told, round: u64) -> Result<(), StateError> {
    let queue = bench.state().destination(Kind::Queue, "orders").map(|found| found.id);
    let Some(queue) = queue else { return Ok(()) };
    let source = queue.source();
    let mut waiting = Waiting {
        sent: Vec::new(),
        acknowledged: Vec::new(),
        committed: Vec::new(),
    };
    let mut held: BTreeMap<u64, String> = BTreeMap::new();
    for step in 0..steps {
        match random.below(10) {
            0..=3 => {
                let text = format!("{round}.{step}");
                let message = Message::text(text.clone()).priority(random.below(3));
                if let Ok(accepted) = bench.try_send(queue, &message) {
                    told.sent.insert(text.clone());
                    waiting.sent.extend(accepted.wait_for.map(|position| (position, text)));
                }
            }
            4..=5 => {
                if let Next::Ready { sequence, priority, .. } =
                    bench.state().next_ready(source, &mut Cursor::default(), None)
                {
                    let delivered = bench.state().deliver(source, priority, sequence, 1).unwrap();
                    if let Payload::Ready(message) = bench.state().payload(delivered.position) {
                        let view = MessageView::parse(&message.bytes).unwrap();
                        let text = view.body().text().unwrap().unwrap_or("").to_owned();
                        assert!(
                            delivered.redelivered || !told.delivered.contains(&text),
                            "delivered before, not flagged: {text}"
                        );
                        assert!(!told.acknowledged.contains(&text), "acknowledged, and back: {text}");
                        told.delivered.insert(text.clone());
                        held.insert(sequence, text);
                    }
                }
            }
            6 => {
                if let Some((sequence, text)) = held.pop_first() {
                    let done = bench
                        .state()
                        .acknowledge(source, &[(sequence, sequence)], |_| true, None)?;
                    waiting
                        .acknowledged
                        .extend(done.wait_for.map(|position| (position, text)));
                }
            }
            7 => {
                let tx = Tx {
                    owner: round,
                    number: step + 1,
                };
                let texts: Vec<String> = (0..3).map(|part| format!("{round}.{step}.{part}")).collect();
                for text in &texts {
                    bench.send_in(tx, queue, &Message::text(text.clone())).ok();
                }
                told.transactions.push((texts, false));
                if random.one_in(3) {
                    bench.state().rollback(tx).ok();
                } else if let Ok(committed) = bench.state().commit(tx) {
                    waiting
                        .committed
                        .extend(committed.wait_for.map(|at| (at, told.transactions.len() - 1)));
                }
            }
            _ => {
                if let Some(job) = bench.state().next_write()? {
                    let done = job.run();
                    let durable = bench.state().complete_write(done)?;
                    for (_, text) in waiting.sent.extract_if(.., |(position, _)| *position < durable) {
                        told.confirmed.insert(text);
                    }
                    for (_, text) in waiting.acknowledged.extract_if(.., |(position, _)| *position < durable) {
                        told.acknowledged.insert(text);
                    }
                    for (_, index) in waiting.committed.extract_if(.., |(position, _)| *position < durable) {
                        told.transactions[index].1 = true;
                    }
                }
                for job in bench.state().take_reads() {
                    let done = job.run();
                    bench.state().complete_read(done);
                }
                if let Some(job) = bench.state().maintenance()? {
                    let done = job.run();
                    bench.state().complete_maintenance(done)?;
                }
            }
        }
    }
    Ok(())
}

fn check(bench: &mut Bench, told: &Told) {
    let source = bench.state().destination(Kind::Queue, "orders").unwrap().id.source();
    let found = bench.texts(source);
    let unique: BTreeSet<&String> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "a message is there twice");
    for text in &told.confirmed {
        let done = told.acknowledged.contains(text) || told.delivered.contains(text);
        assert!(done || unique.contains(text), "confirmed and lost: {text}");
    }
    for text in &told.acknowledged {
        assert!(!unique.contains(text), "acknowledged and back: {text}");
    }
    for (texts, committed) in &told.transactions {
        let there = texts
            .iter()
            .filter(|text| unique.contains(text) || told.delivered.contains(*text))
            .count();
        assert!(there == 0 || there == texts.len(), "torn: {texts:?}");
        assert!(!committed || there == texts.len(), "committed and lost: {texts:?}");
    }
}

fn options(seed: u64) -> StateOptions {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.log.compact_below_percent = 60;
    options.checkpoint_bytes = Some(if seed % 2 == 0 { 32 * 1024 } else { 200 * 1024 });
    options
}

// covers: EMS-STORE-A02
#[test]
fn power_loss_at_any_step_loses_nothing_confirmed_and_brings_nothing_back() {
    each_seed(60, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut bench = Bench::on(disk.clone(), options(seed));
        bench.queue("orders", Properties::default());
        bench.settle();
        let mut told = Told::default();
        for round in 0..4 {
            let crash_at = disk.operations() + 1 + random.below(80);
            disk.set_faults(Faults {
                crash_at: Some(crash_at),
                ..Faults::default()
            });
            let steps = 200 + random.below(800);
            let _ = run(&mut bench, &mut random, steps, &mut told, round);
            bench.state = None;
            disk.set_faults(Faults::default());
            disk.power_cycle();
            if let Err(error) = bench.open() {
                panic!("seed {seed}: the store does not open: {error}");
            }
            check(&mut bench, &told);
        }
    });
}

#[test]
fn a_failed_sync_ends_confirmations_and_says_so() {
    let disk = SimDisk::new(3);
    let mut bench = Bench::on(disk.clone(), small_options());
    let queue = bench.queue("orders", Properties::default());
    bench.settle();
    disk.set_faults(Faults {
        fail_sync_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    let accepted = bench.send(queue, &Message::text("a"));
    let job = bench.state().next_write().unwrap().unwrap();
    let done = job.run();
    assert!(bench.state().complete_write(done).is_err());
    assert!(bench.state().failed().is_some());
    assert!(
        accepted
            .wait_for
            .is_some_and(|position| position >= bench.state().committed()),
        "never confirmed"
    );
    assert!(bench.try_send(queue, &Message::text("b")).is_err());
    assert!(bench.try_send(queue, &Message::text("b").volatile()).is_err());
}

#[test]
fn totals_count_from_the_start_and_not_what_the_log_tells_of_before() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for text in ["a", "b", "c", "d"] {
        bench.send(queue, &Message::text(text));
    }
    bench.send(queue, &Message::text("expires").ttl(10));
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench.acknowledge(queue.source(), sequence);
    bench.advance(10);
    bench.settle();
    let before = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!(
        (before.published_total, before.acknowledged_total, before.expired_total),
        (5, 1, 1)
    );
    assert!(bench.state().log().records_written() >= 7);
    bench.restart();
    let after = bench.state().source(queue.source()).unwrap().statistics;
    let expected = SourceStatistics {
        messages: 3,
        bytes: after.bytes,
        ..SourceStatistics::default()
    };
    assert_eq!(after, expected);
    assert!(after.bytes > 0);
    bench.advance(0);
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench.acknowledge(queue.source(), sequence);
    let counted = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!((counted.delivered_total, counted.acknowledged_total), (1, 1));
}

#[test]
fn a_checkpoint_of_several_records_is_a_whole_one_when_it_is_read() {
    let mut options = small_options();
    options.log.record_bytes_max = 8 * 1024;
    let mut bench = Bench::on(SimDisk::new(1), options);
    for number in 0..400 {
        let name = format!("a.subscription.with.quite.a.long.name.{number}");
        bench.subscribe(&name, "news", |_| {});
    }
    bench.state().checkpoint().unwrap();
    bench.settle();
    let checkpoint = bench.state().tables.checkpoint;
    assert_ne!(checkpoint, Position::ZERO);
    assert!(
        bench.state().log().end().0 - checkpoint.0 > 2 * 8 * 1024,
        "it is several records"
    );
    bench.restart();
    assert_eq!(bench.state().tables.checkpoint, checkpoint);
}

#[test]
fn a_message_without_a_delay_is_ready_also_when_the_clock_was_set_back() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("at once"));
    bench.settle();
    bench.now.wall_ms -= 60_000;
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["at once"]);
}

// Its first message is still there, and tells of it; the later ones, and what was known of them, are gone.
#[test]
fn a_producer_that_was_forgotten_is_not_known_again_by_an_older_message_after_a_restart() {
    let options = StateOptions {
        producers_max: 4,
        ..small_options()
    };
    let mut bench = Bench::on(SimDisk::new(1), options);
    let queue = bench.queue("orders", Properties::default());
    let send = |bench: &mut Bench, who: u64, number: u64| {
        let sent = bench.send_as(queue, &Message::text("x".repeat(8_000)), (who, number), None);
        bench.settle();
        sent
    };
    let who = bench.state().next_incarnation().unwrap();
    for number in 1..=100 {
        send(&mut bench, who, number).unwrap();
    }
    // The others' are gone as well, but for those of one.
    let others: Vec<u64> = (0..4).map(|_| bench.state().next_incarnation().unwrap()).collect();
    for other in &others {
        send(&mut bench, *other, 1).unwrap();
    }
    for number in 2..=70 {
        send(&mut bench, others[3], number).unwrap();
    }
    let again = |bench: &mut Bench| {
        let bytes = Message::text("again").encode();
        let incoming = Incoming {
            view: &MessageView::parse(&bytes).unwrap(),
            uploaded: &[],
            incarnation: who,
            sequence: 100,
            connection: 7,
            client_id: "me",
            user: "",
            transaction: None,
            may_be_again: true,
        };
        let sent = bench.state().publish(queue, &incoming);
        assert!(matches!(sent, Err(PublishError::UnknownProducer)), "{sent:?}");
    };
    again(&mut bench);
    for number in 40..=160 {
        bench.state().deliver(queue.source(), 4, number, 1).unwrap();
        bench.acknowledge(queue.source(), number);
    }
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    assert!(
        !bench.state().log().has_all_from(Position::FIRST),
        "all of it is still there"
    );
    let before = bench.state().dump();
    bench.restart();
    again(&mut bench);
    let producers = |dump: String| {
        dump.lines()
            .filter(|line| line.starts_with("producer"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(producers(bench.state().dump()), producers(before));
}
