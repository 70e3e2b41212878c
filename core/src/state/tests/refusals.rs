//! Refused numbers that come again: neither confirmed without being stored nor stored twice, however full the table is.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::sim::Random;
use crate::sim::seeds::{each_seed, seeds};

/// One producer at one destination, as its client knows it.
#[derive(Default)]
struct Sent {
    next: u64,
    stored: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

/// What a client and an honest judge know.
struct Story {
    bench: Bench,
    sent: BTreeMap<(u64, DestinationId), Sent>,
    unknown: u64,
}

impl Story {
    fn send(&mut self, key: (u64, DestinationId), sequence: u64) {
        let text = format!("{}.{}.{sequence}", key.0, key.1.0);
        let outcome = self.bench.send_as(key.1, &Message::text(text), (key.0, sequence), None);
        let sent = self.sent.entry(key).or_default();
        let was_stored = sent.stored.contains(&sequence);
        match outcome {
            Ok(accepted) => {
                assert_eq!(
                    accepted.duplicate, was_stored,
                    "{key:?} {sequence}: confirmed and not stored, or stored twice"
                );
                sent.stored.insert(sequence);
                sent.refused.remove(&sequence);
            }
            Err(PublishError::UnknownProducer) => {
                self.unknown += 1;
                // The layer above notes every refusal.
                self.bench.state().note_refused(key.1, key.0, sequence, false);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn refuse(&mut self, key: (u64, DestinationId), sequence: u64) {
        self.bench.state().note_refused(key.1, key.0, sequence, false);
        let sent = self.sent.entry(key).or_default();
        if !sent.stored.contains(&sequence) {
            sent.refused.insert(sequence);
        }
    }

    /// A killed broker forgets refusals that no later message tells of: their producers send them again first.
    fn restart(&mut self) {
        self.bench.settle();
        self.bench.restart();
        let again: Vec<_> = self
            .sent
            .iter()
            .flat_map(|(key, sent)| {
                let highest = sent.stored.last().copied().unwrap_or(0);
                sent.refused.range(highest + 1..).map(|sequence| (*key, *sequence))
            })
            .collect();
        for (key, sequence) in again {
            self.send(key, sequence);
        }
    }
}

#[test]
fn a_refused_number_that_comes_again_is_neither_confirmed_without_being_stored_nor_stored_twice() {
    let unknown = std::cell::Cell::new(0);
    each_seed(60, |seed| {
        let mut random = Random::new(seed);
        let mut options = small_options();
        options.refusals_max = [1, 2, 8, 65_536][random.below(4) as usize];
        let mut bench = Bench::on(SimDisk::new(seed), options);
        let queues = [
            bench.queue("a", Properties::default()),
            bench.queue("b", Properties::default()),
        ];
        let mut story = Story {
            bench,
            sent: BTreeMap::new(),
            unknown: 0,
        };
        for _ in 0..400 {
            let key = (1_000 + random.below(6), queues[random.below(2) as usize]);
            let sent = story.sent.entry(key).or_default();
            match random.below(12) {
                0..=2 => {
                    sent.next += 1;
                    let sequence = sent.next;
                    story.send(key, sequence);
                }
                3..=5 => {
                    sent.next += 1;
                    let sequence = sent.next;
                    story.refuse(key, sequence);
                }
                6..=8 if sent.next > 0 => {
                    let sequence = 1 + random.below(sent.next);
                    story.send(key, sequence);
                }
                9 if sent.next > 0 => {
                    let sequence = 1 + random.below(sent.next);
                    story.refuse(key, sequence);
                }
                10 if random.one_in(4) => {
                    story.bench.settle();
                    story.bench.state().checkpoint().unwrap();
                    story.bench.settle();
                }
                11 if random.one_in(4) => story.restart(),
                _ => {}
            }
        }
        story.restart();
        story.bench.settle();
        for (key, sent) in &story.sent {
            let prefix = format!("{}.{}.", key.0, key.1.0);
            let texts = story.bench.texts(key.1.source());
            let mut there: Vec<u64> = texts
                .iter()
                .filter_map(|text| text.strip_prefix(&prefix)?.parse().ok())
                .collect();
            there.sort_unstable();
            assert_eq!(there, sent.stored.iter().copied().collect::<Vec<_>>());
        }
        unknown.set(unknown.get() + story.unknown);
    });
    // One seed alone may have drawn a table that nothing fills.
    assert!(unknown.get() > 0 || seeds(60).len() < 8, "the tables were never full");
}

#[test]
fn so_many_refused_producers_cost_no_more_for_each_than_few_and_none_of_theirs_is_confirmed() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send_as(queue, &Message::text("first"), (7, 1), None).unwrap();
    bench.state().note_refused(queue, 7, 2, false);
    for incarnation in 1_000..71_000 {
        bench.state().note_refused(queue, incarnation, 1, false);
    }
    for incarnation in [7, 1_000, 70_999, 80_000] {
        bench
            .send_as(queue, &Message::text("later"), (incarnation, 3), None)
            .unwrap();
    }
    let mut again =
        |incarnation, sequence| bench.send_as(queue, &Message::text("again"), (incarnation, sequence), None);
    assert!(matches!(again(7, 2), Err(PublishError::UnknownProducer)));
    assert!(again(7, 3).unwrap().duplicate, "it is known");
    assert!(matches!(again(1_000, 1), Err(PublishError::UnknownProducer)));
    assert!(!again(70_999, 1).unwrap().duplicate, "it is stored");
    assert!(
        again(80_000, 1).unwrap().duplicate,
        "a later producer is not touched by it"
    );
}
