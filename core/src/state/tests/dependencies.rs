//! Which records must outlive which: without one of these a restart finds a record whose end is gone, or an end whose
//! beginning is.

use super::super::catalogue_record::{Decision, TransactionHead, kinds};
use super::super::names::Names;
use super::super::producers::Producers;
use super::super::spill::SpillFiles;
use super::super::starts::Starts;
use super::super::tables::{Recovering, Tables};
use super::super::terminal_record::{MoveHead, TerminalHead};
use super::super::volatile::VolatileStore;
use super::*;
use crate::log::Position;

const QUEUE: SourceId = SourceId(20);
const TRANSACTION: u64 = 1 << 32 | 1;

struct Story {
    tables: Tables,
    recovering: Recovering,
    next: u64,
}

impl Story {
    fn new() -> Self {
        let now = Now {
            wall_ms: 1,
            monotonic_ms: 1,
        };
        let spill = SpillFiles::new(Arc::new(SimDisk::new(1)));
        Self {
            tables: Tables::new(
                now,
                (Producers::new(10, 10), Names::new(10)),
                VolatileStore::new(1, spill),
                Starts::new(32),
            ),
            recovering: Recovering::default(),
            next: 0,
        }
    }

    /// Applies a record in a segment of its own.
    fn apply(&mut self, kind: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Position {
        self.next += 1 << 20;
        let (position, mut head) = (Position(self.next), Vec::new());
        encode(&mut head);
        self.tables
            .apply(&mut self.recovering, position, 1, kind, &head, 10)
            .unwrap();
        position
    }

    fn message(&mut self, sequence: u64, transaction: u64) -> Position {
        let mut head = MessageHead::default();
        head.copies.push(MessageCopy {
            destination: DestinationId(QUEUE.0),
            own_id: None,
            expiration_ms: None,
            names_sender: false,
        });
        head.references.push(Reference {
            copy: 0,
            source: QUEUE,
            sequence,
        });
        head.transaction = transaction;
        self.apply(kinds::MESSAGE, |out| head.encode(out).unwrap())
    }

    fn end(&mut self, ends: &[(u64, Position)], transaction: u64) -> Position {
        let mut head = TerminalHead::new(Reason::Acknowledged, QUEUE, 1, "");
        ends.iter()
            .for_each(|(sequence, position)| head.add(*sequence, *position));
        head.transaction = transaction;
        head.finish();
        self.apply(kinds::TERMINAL, |out| head.encode(out).unwrap())
    }

    fn decide(&mut self, decision: Decision) -> Position {
        let head = TransactionHead {
            transaction: TRANSACTION,
            decision,
            xid: matches!(decision, Decision::Prepared).then(Xid::default),
            time_ms: 1,
        };
        self.apply(kinds::TRANSACTION, |out| head.encode(out).unwrap())
    }

    fn move_on(
        &mut self,
        from: (SourceId, u64),
        to: (SourceId, u64),
        position: Position,
        previous: Position,
    ) -> Position {
        let head = MoveHead {
            reason: Reason::Moved,
            time_ms: 1,
            actor: String::new(),
            from,
            to,
            position,
            bytes: 10,
            priority: 0,
            copy: 0,
            origin: DestinationId(QUEUE.0),
            previous,
        };
        self.apply(kinds::MOVE, |out| head.encode(out).unwrap())
    }

    /// What has been said since this was last asked, each once, as (holder, target).
    fn dependencies(&mut self) -> Vec<(Position, Position)> {
        let mut said = std::mem::take(&mut self.recovering.dependencies);
        said.sort_unstable();
        said.dedup();
        said
    }
}

#[test]
fn an_end_depends_on_all_that_it_ends() {
    let mut story = Story::new();
    let (first, second) = (story.message(1, 0), story.message(2, 0));
    let end = story.end(&[(1, first), (2, second)], 0);
    assert_eq!(story.dependencies(), [(end, first), (end, second)]);
}

#[test]
fn a_move_depends_on_the_message_and_on_the_move_before() {
    let mut story = Story::new();
    let message = story.message(1, 0);
    let (there, back) = ((SourceId(21), 1), (QUEUE, 2));
    let first = story.move_on((QUEUE, 1), there, message, Position::ZERO);
    assert_eq!(story.dependencies(), [(first, message)]);
    let second = story.move_on(there, back, message, first);
    assert_eq!(story.dependencies(), [(second, message), (second, first)]);
}

#[test]
fn what_prepares_and_what_decides_depend_on_all_of_the_transaction() {
    for decision in [Decision::Committed, Decision::RolledBack] {
        let mut story = Story::new();
        let taken = story.message(1, 0);
        let sent = story.message(2, TRANSACTION);
        let end = story.end(&[(1, taken)], TRANSACTION);
        assert_eq!(story.dependencies(), [(end, taken)]);
        let prepared = story.decide(Decision::Prepared);
        let all = [(prepared, taken), (prepared, sent), (prepared, end)];
        assert_eq!(story.dependencies(), all);
        let decided = story.decide(decision);
        let mut expected = [taken, sent, end, prepared].map(|target| (decided, target)).to_vec();
        if decision == Decision::Committed {
            // Once more: what was undecided was not let go of by a rewrite, but these were.
            expected.splice(0..0, [(end, taken)].into_iter().chain(all));
        }
        assert_eq!(story.dependencies(), expected, "{decision:?}");
    }
}

#[test]
fn a_commit_in_one_phase_depends_on_what_it_sent_and_took() {
    let mut story = Story::new();
    let taken = story.message(1, 0);
    let sent = story.message(2, TRANSACTION);
    let end = story.end(&[(1, taken)], TRANSACTION);
    story.dependencies();
    let decided = story.decide(Decision::Committed);
    assert_eq!(
        story.dependencies(),
        [(end, taken), (decided, taken), (decided, sent), (decided, end)]
    );
}
