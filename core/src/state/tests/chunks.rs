//! What a checkpoint is read for: complete ones end what they do not name, parts of one end nothing; and what it has to say
//! of names.

use super::*;
use crate::log::Position;
use crate::state::checkpoint_record::{ChunkHead, Item};
use crate::state::names::NameHead;
use crate::state::refusals::Ranges;
use crate::state::tables::Liveness;

/// Nothing is on disk.
struct Nothing;

impl Liveness for Nothing {
    fn hold(&mut self, _: Position) {}
    fn release(&mut self, _: Position) {}
    fn depend(&mut self, _: Position, _: Position) {}
}

fn chunk(number: u64, chunk: u64, is_last: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    ChunkHead { number, chunk, is_last }.encode(&mut bytes);
    let counters = Item::Counters {
        next_id: 0,
        generations: 0,
        forgotten_up_to: 0,
    };
    counters.encode(&mut bytes).unwrap();
    bytes
}

/// A checkpoint's number, which of its chunks this is, and whether it is the last.
type Chunk = (u64, u64, bool);

#[test]
fn only_a_checkpoint_that_is_read_from_its_beginning_to_its_end_drops_what_it_does_not_name() {
    // With each whether all of it is one whole checkpoint.
    let whole: [(&[Chunk], bool); 8] = [
        (&[(1, 0, true)], true),
        (&[(1, 0, false), (1, 1, true)], true),
        (&[(1, 0, false), (1, 1, false), (1, 2, true)], true),
        (&[(1, 1, true)], false),
        (&[(1, 0, false), (2, 1, true)], false),
        (&[(1, 0, false), (1, 2, true)], false),
        (&[(1, 0, false)], false),
        (&[(1, 0, false), (2, 0, true)], true),
    ];
    for (chunks, is_whole) in whole {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        let tables = &mut bench.state().tables;
        for (at, (number, which, is_last)) in (1..).zip(chunks) {
            let bytes = chunk(*number, *which, *is_last);
            tables
                .apply_checkpoint(&mut Nothing, Position(at * 64), &bytes)
                .unwrap();
        }
        let is_there = tables.catalogue.destination(queue).is_some();
        assert_eq!(is_there, !is_whole, "{chunks:?}");
    }
}

fn name(incarnation: u64, destination: DestinationId) -> NameHead {
    NameHead {
        user: "me".to_owned(),
        name: "import".to_owned(),
        destination,
        incarnation,
        opening: 1,
    }
}

#[test]
fn a_producer_that_a_checkpoint_names_has_one_row() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let tables = &mut bench.state().tables;
    let none = Ranges::default();
    tables.producers.arrive(7, queue, 3, Position(64), &none);
    tables.restore_name(&name(7, queue), 5);
    let last = |tables: &crate::state::tables::Tables, who| tables.producers.last(who, queue).map(|last| last.sequence);
    assert_eq!(last(tables, 7), Some(5), "an earlier message's number hides it");
    tables.producers.arrive(7, queue, 6, Position(128), &none);
    assert_eq!(last(tables, 7), Some(6));
    // Another has the name now, and the first is one among all.
    tables.restore_name(&name(8, queue), 9);
    assert_eq!((last(tables, 7), last(tables, 8)), (Some(6), Some(9)));
    tables.keep_names(&Default::default(), Default::default(), false);
    assert_eq!(last(tables, 8), Some(9), "its own row says whether it stays");
    assert_eq!(tables.producers.kept_row(&(8, queue)), None);
}

#[test]
fn names_of_what_was_deleted_stand_in_checkpoints_for_as_long_as_a_message_may_ask_for_them() {
    for holds in [true, false] {
        let mut bench = Bench::new();
        let topic = bench
            .state()
            .ensure_destination(
                Kind::Topic,
                &DestinationName::parse("flights.JFK").unwrap(),
                Origin::Dynamic,
                Properties::default(),
            )
            .unwrap();
        let all = bench.subscribe("d", "flights.*", |_| {});
        bench.send(topic, &Message::text("late"));
        bench.settle();
        if !holds {
            let (_, sequence, _) = bench.take(all).unwrap();
            bench.acknowledge(all, sequence);
            bench.settle();
        }
        bench.state().delete_destination(topic, true, "admin").unwrap();
        bench.settle();
        bench.state().checkpoint().unwrap();
        let known = bench.state().catalogue().name_of(topic).is_some();
        assert_eq!(known, holds, "a message is held: {holds}");
    }
}

#[test]
fn what_goes_to_the_undelivered_is_counted_where_it_was() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for _ in 0..3 {
        bench.send(queue, &Message::text("late").ttl(50).preserved());
    }
    bench.settle();
    bench.advance(60);
    bench.settle();
    let statistics = &bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!((statistics.undelivered_total, statistics.expired_total), (3, 3));
}
