//! Faults that tests plant, to show that audits find them.
//!
//! They are in the engine that tests use (feature `sim`) and in no wheel that is shipped; there all of this is nothing. The
//! environment names one: `STERNA_PLANTED_FAULT=lose-arrival:17` strikes the 17th time that it could. What was struck is
//! written to the file that `STERNA_PLANTED_TOLD` names, as `source sequence position` or what of it there is, so that a test
//! knows what an audit has to find. Where that file is there it has struck, and does not strike again after a restart.

use crate::proto::DeliveryMode;

use super::ids::SourceId;
use super::message_record::{MessageHead, Reference};
use super::publishing::Incoming;
use super::tables::Tables;
use super::terminal_record::Reason;

/// What goes wrong, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A message that was logged never comes into its queue.
    LoseArrival,
    /// It comes into it twice.
    DoubleArrival,
    /// With what ends, what stands behind it ends, too.
    EndTooMuch,
    /// What ended stays.
    EndTooLittle,
    /// A message is confirmed, and nothing of it is kept.
    LoseMessage,
    /// A message is stored twice.
    DoubleMessage,
    /// A message is stored with another body than was sent.
    ChangeBody,
    /// A bridge misses a message.
    MissBridge,
    /// A subscription misses a message that it wanted.
    MissSubscription,
    /// A commit leaves out a message.
    LoseInCommit,
    /// A message that was rolled back comes into its queue.
    KeepInRollback,
    /// In place of what ends, what stands behind it ends.
    EndNeighbour,
    /// A message comes into another queue than it was sent to.
    WrongQueue,
    /// What is acknowledged is written down as expired.
    ExpireEarly,
}

#[cfg(not(any(test, feature = "sim")))]
mod here {
    /// Nothing.
    #[derive(Debug, Default)]
    pub struct Planted;

    impl Planted {
        pub const fn from_environment() -> Self {
            Self
        }

        pub const fn is_armed(&self) -> bool {
            false
        }

        #[inline(always)]
        pub fn strikes(&mut self, _: super::Fault, _: impl FnOnce() -> String) -> bool {
            false
        }
    }
}

#[cfg(any(test, feature = "sim"))]
mod here {
    use std::path::PathBuf;

    use super::Fault;

    /// The fault that is planted, and how many times it could strike before it does.
    #[derive(Debug, Default)]
    pub struct Planted {
        left: Option<(Fault, u64)>,
    }

    impl Planted {
        pub fn from_environment() -> Self {
            let text = std::env::var("STERNA_PLANTED_FAULT").unwrap_or_default();
            let left = text
                .split_once(':')
                .and_then(|(name, nth)| Some((fault(name)?, nth.parse().ok()?)));
            assert!(
                text.is_empty() || left.is_some(),
                "there is no such fault to plant: {text}"
            );
            let has_struck = told().is_some_and(|file| file.exists());
            Self {
                left: left.filter(|_| !has_struck),
            }
        }

        /// Whether a fault is planted that did not strike yet.
        pub const fn is_armed(&self) -> bool {
            self.left.is_some()
        }

        /// Whether this fault happens now; `victim` says what it hits.
        pub fn strikes(&mut self, fault: Fault, victim: impl FnOnce() -> String) -> bool {
            match &mut self.left {
                Some((planted, left)) if *planted == fault => *left -= 1,
                _ => return false,
            }
            if !matches!(self.left, Some((_, 0))) {
                return false;
            }
            self.left = None;
            if let Some(file) = told() {
                let written = std::fs::write(&file, victim());
                assert!(written.is_ok(), "{} cannot be written", file.display());
            }
            true
        }
    }

    /// Where it is written down what was struck.
    fn told() -> Option<PathBuf> {
        std::env::var_os("STERNA_PLANTED_TOLD").map(PathBuf::from)
    }

    fn fault(name: &str) -> Option<Fault> {
        Some(match name {
            "lose-arrival" => Fault::LoseArrival,
            "double-arrival" => Fault::DoubleArrival,
            "end-too-much" => Fault::EndTooMuch,
            "end-too-little" => Fault::EndTooLittle,
            "lose-message" => Fault::LoseMessage,
            "double-message" => Fault::DoubleMessage,
            "change-body" => Fault::ChangeBody,
            "miss-bridge" => Fault::MissBridge,
            "miss-subscription" => Fault::MissSubscription,
            "lose-in-commit" => Fault::LoseInCommit,
            "keep-in-rollback" => Fault::KeepInRollback,
            "end-neighbour" => Fault::EndNeighbour,
            "wrong-queue" => Fault::WrongQueue,
            "expire-early" => Fault::ExpireEarly,
            _ => return None,
        })
    }
}

pub(super) use here::Planted;

impl Planted {
    /// Whether this happens to a message.
    pub fn hits(&mut self, fault: Fault, head: &MessageHead) -> bool {
        self.strikes(fault, || format!("{} {}", head.incarnation, head.sequence))
    }

    /// Whether a message is confirmed and not kept.
    pub fn loses(&mut self, incoming: &Incoming<'_>) -> bool {
        let victim = || format!("{} {}", incoming.incarnation, incoming.sequence);
        incoming.view.delivery_mode() == DeliveryMode::Persistent && self.strikes(Fault::LoseMessage, victim)
    }

    /// Changes a message's body, as far as anybody can tell, or takes a durable subscription's reference away.
    pub fn spoil(&mut self, head: &mut MessageHead) {
        if self.hits(Fault::ChangeBody, head) {
            head.checksum = head.checksum.map(|sum| sum ^ 1);
        }
        if !self.is_armed() {
            return;
        }
        // A queue's number is its destination's.
        let queues: Vec<u64> = head.copies.iter().map(|copy| copy.destination.0).collect();
        let is_subscription = |reference: &Reference| !queues.contains(&reference.source.0);
        if let Some(index) = head.references.iter().position(is_subscription)
            && self.hits(Fault::MissSubscription, head)
        {
            head.references.remove(index);
        }
    }
}

impl Tables {
    /// For [`Fault::WrongQueue`] alone: a message for one queue goes into that which was made last.
    pub fn misdirect(&mut self, head: &mut MessageHead) {
        if !self.planted.is_armed() {
            return;
        }
        let victim = format!("{} {}", head.incarnation, head.sequence);
        let [reference] = head.references.as_mut_slice() else {
            return;
        };
        let others = self.sources.values().filter(|other| {
            let is_queue = other.logged && other.destination.is_some();
            is_queue && other.id != reference.source
        });
        let last = others.map(|other| (other.id, other.next_sequence)).max();
        if let Some((source, sequence)) = last
            && self.planted.strikes(Fault::WrongQueue, || victim)
        {
            reference.source = source;
            reference.sequence = sequence;
        }
    }

    /// For [`Fault::ExpireEarly`] alone: why it is said that what a consumer acknowledges has ended.
    pub fn reason_of_acknowledged(&mut self, source: SourceId, sequence: u64) -> Reason {
        let victim = || format!("{} {sequence}", source.0);
        if self.planted.strikes(Fault::ExpireEarly, victim) {
            Reason::Expired
        } else {
            Reason::Acknowledged
        }
    }
}
