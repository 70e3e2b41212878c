//! The sum of a message's body: made once for what is logged, and kept for as long as the record is.

use super::*;
use crate::log::{Log, Position};
use crate::state::catalogue_record::kinds;
use xxhash_rust::xxh3::xxh3_128;

/// The records of messages in a source, in its order of delivery, with the sums in their heads.
fn sums(bench: &mut Bench, source: SourceId) -> Vec<(Position, Option<u128>)> {
    let positions: Vec<_> = bench.state().browse(source, 0).map(|found| found.position).collect();
    let sum = |position| (position, bench.message_at(position).head.checksum);
    positions.into_iter().map(sum).collect()
}

fn sum_of(text: &str) -> Option<u128> {
    Some(xxh3_128(text.as_bytes()))
}

fn only(found: &[(Position, Option<u128>)]) -> (Position, Option<u128>) {
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

#[test]
fn what_is_logged_has_its_bodys_sum_and_what_is_in_memory_has_none() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let topic = bench.topic("news", Properties::default());
    let plain = bench.subscribe("", "news", |_| {});
    // A second message has its own sum, or none: nothing stays of the one before.
    bench.send(queue, &Message::text("kept").priority(7).with("n", Value::Int(1)));
    bench.send(queue, &Message::text("lost").volatile());
    bench.send(queue, &Message::text(""));
    bench.send(topic, &Message::text("nobody has to keep it"));
    bench.settle();
    let found: Vec<_> = sums(&mut bench, queue.source()).into_iter().map(|one| one.1).collect();
    assert_eq!(found, [sum_of("kept"), None, sum_of("")]);
    assert_eq!(only(&sums(&mut bench, plain)).1, None);
    bench.restart_cleanly();
    let found: Vec<_> = sums(&mut bench, queue.source()).into_iter().map(|one| one.1).collect();
    assert_eq!(found, [sum_of("kept"), sum_of("")]);
}

#[test]
fn an_uploaded_body_is_summed_and_not_the_reference_to_it() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let mut reference = Vec::new();
    put_varint(&mut reference, 1 << 3 | 1);
    reference.extend_from_slice(&7_u64.to_le_bytes());
    let mut bytes = Vec::new();
    put_bytes_field(&mut bytes, 14, &reference);
    let view = MessageView::parse(&bytes).unwrap();
    assert!(view.check().is_ok());
    for (number, uploaded) in [(1, &[7; 1000][..]), (2, &[])] {
        let incoming = Incoming {
            view: &view,
            uploaded,
            incarnation: 77,
            sequence: number,
            connection: 7,
            client_id: "me",
            user: "",
            transaction: None,
            may_be_again: false,
        };
        bench.state().publish(queue, &incoming).unwrap();
    }
    bench.settle();
    let found: Vec<_> = sums(&mut bench, queue.source()).into_iter().map(|one| one.1).collect();
    assert_eq!(found, [Some(xxh3_128(&[7; 1000])), Some(xxh3_128(&[]))]);
}

#[test]
fn copies_and_references_of_a_message_have_one_sum() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let audit = bench.queue("audit", Properties::default());
    bench.bridge(Kind::Topic, "news", Kind::Queue, "audit", None);
    let (first, second) = (
        bench.subscribe("a", "news", |_| {}),
        bench.subscribe("b", "news", |_| {}),
    );
    bench.send(topic, &Message::text("one"));
    bench.settle();
    let found = only(&sums(&mut bench, first));
    assert_eq!(found.1, sum_of("one"));
    for source in [second, audit.source()] {
        assert_eq!(only(&sums(&mut bench, source)), found, "the same record");
    }
    bench
        .state()
        .move_message(audit.source(), 1, UNDELIVERED.source(), "admin")
        .unwrap();
    bench.settle();
    bench.restart();
    assert_eq!(only(&sums(&mut bench, UNDELIVERED.source())), found);
}

fn compacting() -> StateOptions {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.log.compact_below_percent = 60;
    options.checkpoint_bytes = Some(128 * 1024);
    options
}

/// Something else happens until segments with little in them were rewritten.
fn go_on(bench: &mut Bench, filler: DestinationId) {
    for round in 0..1_500 {
        bench.send(filler, &Message::text("x".repeat(500)));
        if round % 50 == 49 {
            bench.settle();
            bench.state().purge(filler.source(), "admin").unwrap();
        }
    }
    bench.settle();
    assert!(bench.state().log().has_rewritten());
}

#[test]
fn a_rewritten_record_keeps_its_sum() {
    let mut bench = Bench::on(SimDisk::new(11), compacting());
    let topic = bench.topic("news", Properties::default());
    let filler = bench.queue("filler", Properties::default());
    let (read, left) = (
        bench.subscribe("read", "news", |_| {}),
        bench.subscribe("left", "news", |_| {}),
    );
    let tx = Tx { owner: 1, number: 1 };
    bench.send(topic, &Message::text("plain"));
    bench
        .send_in(tx, topic, &Message::text("sent in a transaction"))
        .unwrap();
    bench.state().commit(tx).unwrap();
    bench.settle();
    while let Some((_, sequence, _)) = bench.take(read) {
        bench.acknowledge(read, sequence);
    }
    let before = sums(&mut bench, left);
    assert_eq!(before[0].1, sum_of("plain"));
    assert_eq!(before[1].1, sum_of("sent in a transaction"));
    go_on(&mut bench, filler);
    bench.restart();
    assert_eq!(sums(&mut bench, left), before);
    for (position, _) in before {
        let head = bench.message_at(position).head;
        assert_eq!(
            (head.references.len(), head.transaction),
            (1, 0),
            "the record was written anew"
        );
    }
}

/// A head as it was written before there were sums: twice in the first queue there is.
fn head_of_before() -> Vec<u8> {
    let mut head = vec![1, 0, 4];
    for number in [1_700_000_000_000, 77, 1, 1, 16] {
        put_varint(&mut head, number);
    }
    head.push(0);
    put_varint(&mut head, 2);
    for sequence in [100_000, 100_001] {
        head.push(0);
        put_varint(&mut head, 16);
        put_varint(&mut head, sequence);
    }
    head
}

#[test]
fn a_record_of_before_has_no_sum_and_is_read_and_rewritten_without_one() {
    let mut bench = Bench::on(SimDisk::new(12), compacting());
    let queue = bench.queue("orders", Properties::default());
    assert_eq!(queue.0, 16);
    let filler = bench.queue("filler", Properties::default());
    bench.settle();
    bench.state.take().unwrap().stop().unwrap();
    bench.disk.kill_process();
    let (mut log, _) = Log::open(Arc::new(bench.disk.clone()), compacting().log, &mut |_| Ok(())).unwrap();
    let payload = Message::text("old").encode();
    let position = log.append(kinds::MESSAGE, &head_of_before(), &payload).unwrap();
    log.close().unwrap();
    bench.disk.kill_process();
    bench.open().unwrap();
    bench.send(queue, &Message::text("new"));
    bench.settle();
    let found = sums(&mut bench, queue.source());
    assert_eq!(found[..2], [(position, None); 2]);
    assert_eq!(found[2].1, sum_of("new"));
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    assert_eq!(bench.acknowledge(queue.source(), sequence).count, 1);
    go_on(&mut bench, filler);
    bench.restart();
    assert_eq!(sums(&mut bench, queue.source()), found[1..]);
    assert_eq!(bench.texts(queue.source()), ["old", "new"]);
    assert_eq!(
        bench.message_at(position).head.references.len(),
        1,
        "it was written anew"
    );
}

#[test]
fn a_record_with_a_flag_that_is_not_known_is_refused_by_name() {
    let mut bench = Bench::new();
    bench.queue("orders", Properties::default());
    bench.settle();
    bench.state.take().unwrap().stop().unwrap();
    bench.disk.kill_process();
    let (mut log, _) = Log::open(Arc::new(bench.disk.clone()), small_options().log, &mut |_| Ok(())).unwrap();
    let mut head = head_of_before();
    head[1] = 128;
    log.append(kinds::MESSAGE, &head, &Message::text("newer").encode())
        .unwrap();
    log.close().unwrap();
    bench.disk.kill_process();
    let refused = bench.open().unwrap_err().to_string();
    assert!(refused.contains("a message has the flag 128"), "{refused}");
}
