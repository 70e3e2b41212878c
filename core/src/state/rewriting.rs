//! What compaction may drop: the tables' word on each record of a segment of which little is alive.

use crate::log::{Position, Presence, Rewritable, Rewrite, Rewriter};

use super::catalogue_record::{TransactionHead, kinds};
use super::message_record::MessageHead;
use super::tables::Tables;
use super::terminal_record::{MoveHead, TerminalHead};

impl Rewriter for Tables {
    fn rewrite(&self, record: Rewritable<'_>, presence: &Presence<'_>) -> Rewrite {
        // Below the checkpoint nothing is needed for the catalogue's or the producers' sake.
        let superseded = record.position < self.checkpoint;
        match record.kind {
            kinds::MESSAGE => self.rewrite_message(&record, superseded),
            kinds::TERMINAL => match TerminalHead::decode(record.head) {
                Ok(head) => self.rewrite_terminal(record.position, &head, presence),
                Err(_) => Rewrite::Keep,
            },
            kinds::MOVE => match MoveHead::decode(record.head) {
                Ok(head) => self.rewrite_move(record.position, &head, superseded, presence),
                Err(_) => Rewrite::Keep,
            },
            kinds::TRANSACTION => match TransactionHead::decode(record.head) {
                Ok(head) => self.rewrite_transaction(record.position, head),
                Err(_) => Rewrite::Keep,
            },
            kinds::DESTINATION
            | kinds::SUBSCRIPTION
            | kinds::WATERMARK
            | kinds::CHECKPOINT
            | kinds::START
            | kinds::PRODUCER_NAME
            | kinds::EXPORTED
            | kinds::NOTE
            | kinds::RETURN
            | kinds::DUE
                if superseded =>
            {
                Rewrite::Drop
            }
            _ => Rewrite::Keep,
        }
    }
}

impl Tables {
    /// Takes dead references out. What is left of a dead message above the checkpoint are its numbers.
    fn rewrite_message(&self, record: &Rewritable<'_>, superseded: bool) -> Rewrite {
        let mut head = MessageHead::default();
        if head.decode(record.head).is_err() {
            return Rewrite::Keep;
        }
        if head.transaction != 0 && self.transactions.get(head.transaction).is_some() {
            return Rewrite::Keep;
        }
        let before = head.references.len();
        let priority = head.priority;
        let was_open = head.transaction != 0;
        head.references
            .retain(|reference| self.is_live(reference.source, priority, reference.sequence));
        if head.references.is_empty() && !self.beside.contains_key(&record.position) {
            // A transaction that was rolled back leaves numbers behind that were used up; they are above the checkpoint.
            if superseded {
                return Rewrite::Drop;
            }
        }
        if head.references.len() == before && !was_open {
            return Rewrite::Keep;
        }
        head.transaction = 0;
        let mut bytes = Vec::new();
        match head.encode(&mut bytes) {
            Ok(()) => Rewrite::KeepAs(bytes),
            Err(_) => Rewrite::Keep,
        }
    }

    /// Small, and without them a transaction's messages would mean something else: they go with their segment. A decided one
    /// is from now on decided where it was prepared, since after the rewrite the decision may go before it.
    fn rewrite_transaction(&self, position: Position, head: TransactionHead) -> Rewrite {
        let Some(decided) = self.decided.get(&position) else {
            return Rewrite::Keep;
        };
        let head = TransactionHead {
            decision: decided.decision,
            xid: None,
            ..head
        };
        let mut bytes = Vec::new();
        match head.encode(&mut bytes) {
            Ok(()) => Rewrite::KeepAs(bytes),
            Err(_) => Rewrite::Keep,
        }
    }

    fn rewrite_terminal(&self, position: Position, head: &TerminalHead, presence: &Presence<'_>) -> Rewrite {
        if head.transaction != 0 && self.transactions.get(head.transaction).is_some() {
            return Rewrite::Keep;
        }
        // In a transaction it took effect when that was committed, which was later than its own position.
        let effective = if head.transaction == 0 {
            position
        } else {
            Position(u64::MAX)
        };
        if head.targets.iter().any(|target| presence.may_exist(effective, *target)) {
            Rewrite::Keep
        } else {
            Rewrite::Drop
        }
    }

    fn rewrite_move(&self, position: Position, head: &MoveHead, superseded: bool, presence: &Presence<'_>) -> Rewrite {
        let stands = self.is_live(head.to.0, head.priority, head.to.1);
        let needed = presence.may_exist(position, head.position)
            || (head.previous != Position::ZERO && presence.may_exist(position, head.previous));
        if stands {
            Rewrite::Keep
        } else if needed || !superseded {
            Rewrite::KeepSuperseded
        } else {
            Rewrite::Drop
        }
    }
}
