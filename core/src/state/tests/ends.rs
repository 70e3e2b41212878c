//! An end counts for upkeep only when the record that made it is durable: until then what it ended is on disk, whatever
//! the tables say, and a killed process finds it again.

use super::*;
use crate::state::catalogue_record::kinds;

/// Enough that the messages fill segments of their own.
const MESSAGES: usize = 70;
const BODY_BYTES: usize = 8_000;

/// A store with a queue and a durable subscription that fill sealed segments below the floor.
struct Laden {
    bench: Bench,
    queue: DestinationId,
    durable: SourceId,
    numbers: Vec<String>,
}

/// What waits in a source, by the numbers that the texts begin with.
fn numbers(bench: &mut Bench, source: SourceId) -> Vec<String> {
    let number = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
    bench.texts(source).into_iter().map(number).collect()
}

fn laden(properties: Properties) -> Laden {
    let mut bench = Bench::new();
    let queue = bench.queue("in", properties);
    let topic = bench.topic("news", Properties::default());
    let durable = bench.subscribe("d", "news", |_| {});
    for number in 0..MESSAGES {
        let message = Message::text(format!("{number} {}", "x".repeat(BODY_BYTES)));
        bench.send(queue, &message);
        bench.send(topic, &message);
        bench.settle();
    }
    below_the_floor(&mut bench);
    Laden {
        bench,
        queue,
        durable,
        numbers: (0..MESSAGES).map(|number| number.to_string()).collect(),
    }
}

/// Lets the log go on in another segment, with a checkpoint there: nothing but what is held keeps those before.
fn below_the_floor(bench: &mut Bench) {
    let filler = bench.queue("filler", Properties::default());
    for _ in 0..40 {
        bench.send(filler, &Message::text("x".repeat(BODY_BYTES)));
        bench.settle();
    }
    bench.state().purge(filler.source(), "admin").unwrap();
    bench.state().checkpoint().unwrap();
    bench.settle();
}

/// All upkeep there is, while the writer waits for its disk.
fn upkeep_alone(bench: &mut Bench) {
    for _ in 0..10_000 {
        match bench.state().maintenance().unwrap() {
            Some(job) => {
                let done = job.run();
                bench.state().complete_maintenance(done).unwrap();
            }
            None => return,
        }
    }
    panic!("upkeep never ends");
}

fn segments(bench: &mut Bench) -> usize {
    bench.state().log().disk_use().0
}

/// Ends everything that waits, lets upkeep run before it is written, and kills the process: all has to be there again.
/// Once it is written, the segments go.
fn check(properties: Properties, end: impl Fn(&mut Laden)) {
    let mut laden = laden(properties.clone());
    end(&mut laden);
    upkeep_alone(&mut laden.bench);
    laden.bench.restart();
    assert_eq!(numbers(&mut laden.bench, laden.queue.source()), laden.numbers);
    assert_eq!(numbers(&mut laden.bench, laden.durable), laden.numbers);

    let mut laden = self::laden(properties);
    let before = segments(&mut laden.bench);
    end(&mut laden);
    laden.bench.settle();
    let after = segments(&mut laden.bench);
    assert!(after + 3 < before, "{after} of {before} segments are left");
}

fn purge_the_rest(laden: &mut Laden) {
    laden.bench.state().purge(laden.queue.source(), "admin").unwrap();
    laden.bench.state().purge(laden.durable, "admin").unwrap();
}

/// Takes everything, and acknowledges it without its being written.
fn acknowledge_all(laden: &mut Laden, tx: Option<Tx>) {
    let bench = &mut laden.bench;
    let sources = [laden.queue.source(), laden.durable];
    for source in sources {
        while bench.take(source).is_some() {}
    }
    // Watermarks that were raised meanwhile are no part of what is shown.
    bench.settle();
    for source in sources {
        bench
            .state()
            .acknowledge(source, &[(0, u64::MAX)], |_| true, tx)
            .unwrap();
    }
}

#[test]
fn what_was_purged_is_on_disk_until_the_purge_is() {
    check(Properties::default(), purge_the_rest);
}

#[test]
fn what_was_acknowledged_is_on_disk_until_the_acknowledgement_is() {
    check(Properties::default(), |laden| acknowledge_all(laden, None));
}

#[test]
fn what_a_transaction_took_is_on_disk_until_its_commit_is() {
    check(Properties::default(), |laden| {
        let tx = Tx { owner: 1, number: 1 };
        acknowledge_all(laden, Some(tx));
        let out = laden.bench.queue("out", Properties::default());
        laden.bench.send_in(tx, out, &Message::text("out")).unwrap();
        laden.bench.state().commit(tx).unwrap();
    });
}

#[test]
fn what_a_prepared_transaction_took_is_on_disk_until_its_commit_is() {
    check(Properties::default(), |laden| {
        let (tx, xid) = (Tx { owner: 1, number: 1 }, Xid::default());
        acknowledge_all(laden, Some(tx));
        laden.bench.state().prepare(tx, xid.clone()).unwrap();
        laden.bench.state().commit_prepared(&xid).unwrap();
    });
}

#[test]
fn what_expired_is_on_disk_until_that_is_told() {
    let properties = Properties {
        expiration_ms: Some(1_000),
        ..Properties::default()
    };
    let mut laden = laden(properties);
    laden.bench.advance(2_000);
    laden.bench.state().purge(laden.durable, "admin").unwrap();
    upkeep_alone(&mut laden.bench);
    let now = laden.bench.now;
    laden.bench.now.wall_ms -= 2_000;
    laden.bench.restart();
    laden.bench.now = now;
    assert_eq!(numbers(&mut laden.bench, laden.queue.source()), laden.numbers);
}

#[test]
fn what_a_deleted_queue_held_is_on_disk_until_its_deletion_is() {
    let mut laden = laden(Properties::default());
    let (queue, durable) = (laden.queue, laden.durable);
    laden.bench.state().delete_destination(queue, true, "admin").unwrap();
    laden.bench.state().unsubscribe(durable, "admin").unwrap();
    upkeep_alone(&mut laden.bench);
    laden.bench.restart();
    assert_eq!(numbers(&mut laden.bench, queue.source()), laden.numbers);
    assert_eq!(numbers(&mut laden.bench, durable), laden.numbers);
}

#[test]
fn a_value_is_on_disk_until_the_one_that_replaces_it_is() {
    let mut bench = Bench::new();
    let last = bench.queue(
        "last",
        Properties {
            messages_max: 1,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        },
    );
    bench.send(last, &Message::text("old"));
    bench.settle();
    below_the_floor(&mut bench);
    bench.send(last, &Message::text("new"));
    upkeep_alone(&mut bench);
    bench.restart();
    assert_eq!(bench.texts(last.source()), ["old"]);
}

#[test]
fn what_has_ended_here_alone_stays_until_all_members_of_a_pair_know() {
    let mut laden = laden(Properties::default());
    let before = segments(&mut laden.bench);
    purge_the_rest(&mut laden);
    let state = laden.bench.state();
    let job = state.next_write().unwrap().unwrap();
    let durable = state.complete_write_only(job.run()).unwrap();
    upkeep_alone(&mut laden.bench);
    assert_eq!(segments(&mut laden.bench), before, "not committed yet");
    laden.bench.state().advance_commit(durable);
    upkeep_alone(&mut laden.bench);
    assert!(segments(&mut laden.bench) < before);
}

#[test]
fn what_a_message_takes_the_place_of_ends_behind_it_in_the_log() {
    let mut bench = Bench::new();
    let last = Properties {
        messages_max: 1,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queue = bench.queue("last", last);
    for number in 0..3 {
        bench.send(queue, &Message::text(number.to_string()));
    }
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["2"]);
    bench.disk.kill_process();
    let mut found = Vec::new();
    let mut visit = |record: crate::log::Recovered<'_>| {
        if [kinds::MESSAGE, kinds::TERMINAL].contains(&record.kind) {
            found.push(record.kind);
        }
        Ok(())
    };
    drop(crate::log::Log::open(Arc::new(bench.disk.clone()), bench.options.log.clone(), &mut visit).unwrap());
    // Cut anywhere, there is a message.
    let (message, end) = (kinds::MESSAGE, kinds::TERMINAL);
    assert_eq!(found, [message, message, end, message, end]);
}

// The sibling of an acknowledgement that waits behind another write: what takes a value's place ends it at once in memory.
#[test]
fn a_value_is_there_until_what_takes_its_place_is_durable() {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    let mut bench = Bench::on(SimDisk::new(3), options);
    let last = Properties {
        messages_max: 1,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queue = bench.queue("last", last);
    let other = bench.queue("other", Properties::default());
    bench.send(queue, &Message::text("old"));
    // Its segment is sealed, holds nothing else that counts, and no checkpoint needs it.
    for _ in 0..20 {
        bench.send(other, &Message::text("x".repeat(8_000)));
        bench.settle();
        let (_, sequence, _) = bench.take(other.source()).unwrap();
        bench.acknowledge(other.source(), sequence);
    }
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    let before = bench.state().log().start();
    bench.send(queue, &Message::text("new"));
    // Its write waits; upkeep goes on.
    let upkeep = |bench: &mut Bench| {
        while let Some(job) = bench.state().maintenance().unwrap() {
            bench.state().complete_maintenance(job.run()).unwrap();
        }
    };
    upkeep(&mut bench);
    assert_eq!(
        bench.state().log().start(),
        before,
        "the only copy that is durable went"
    );
    let disk = std::mem::replace(&mut bench.disk, SimDisk::new(0));
    let lost = disk.fork(4);
    lost.power_cycle();
    let mut after = Bench::on(lost, bench.options.clone());
    after.queues = bench.queues.clone();
    after.restart();
    assert_eq!(after.texts(queue.source()), ["old"]);
    bench.disk = disk;
    bench.settle();
    upkeep(&mut bench);
    assert!(
        bench.state().log().start() > before,
        "its segment goes when the new one is durable"
    );
    assert_eq!(bench.texts(queue.source()), ["new"]);
}
