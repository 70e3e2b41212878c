//! A simulated consumer, and what a session holds of deliveries.

use super::env::Env;
use super::scene::ConsumerPlan;
use crate::proto::{self, client_frame};
use crate::sim::facts::{ConsumerId, PlaceId};
use crate::sim::history::DeliveryId;
use std::collections::BTreeMap;

/// One opening of a consumer.
pub struct Consumer {
    /// Its number in the connection; never used twice by a client.
    pub number: u32,
    /// For the checker.
    pub id: ConsumerId,
    /// What it was opened as.
    pub plan: ConsumerPlan,
    /// The broker has answered.
    pub open: bool,
    /// The queue or subscription, once the broker has answered.
    pub source: u64,
    /// The place, once the broker has answered.
    pub place: Option<PlaceId>,
    /// What a browser looks at.
    pub looks_at: Option<PlaceId>,
    /// Messages that it may have been sent.
    pub limit: u64,
    /// Messages that it got.
    pub received: u64,
    /// It was asked to close.
    pub closing: bool,
}

impl Consumer {
    /// The frame that opens it with some credit.
    #[must_use]
    pub fn open_frame(&self) -> client_frame::Frame {
        let plan = &self.plan;
        client_frame::Frame::OpenConsumer(proto::OpenConsumer {
            consumer: self.number,
            destination: Some(plan.at.to_proto()),
            selector: plan.predicate.text(),
            no_local: plan.no_local,
            subscription: plan
                .subscription
                .as_ref()
                .map(|(name, durable, shared)| proto::Subscription {
                    name: name.clone(),
                    durable: *durable,
                    shared: *shared,
                }),
            browse: plan.browse,
            credit: Some(self.credit()),
        })
    }

    /// Its credit as it stands.
    #[must_use]
    pub fn credit(&self) -> proto::Credit {
        proto::Credit {
            consumer: self.number,
            message_limit: self.limit,
            bytes_limit: 0,
            drain: false,
        }
    }

    /// Grants more.
    pub fn grant(&mut self, env: &mut Env) -> client_frame::Frame {
        self.limit += env.between(1, 20);
        client_frame::Frame::Credit(self.credit())
    }
}

/// Deliveries that a session was handed and has not acknowledged or given back, by source and sequence.
#[derive(Default)]
pub struct Held {
    deliveries: BTreeMap<(u64, u64), (DeliveryId, u32)>,
}

impl Held {
    /// One more.
    pub fn add(&mut self, source: u64, sequence: u64, delivery: DeliveryId, consumer: u32) {
        self.deliveries.insert((source, sequence), (delivery, consumer));
    }

    /// Takes out all for which `wanted` says so, or those of one consumer.
    pub fn take(&mut self, mut wanted: impl FnMut(u32) -> bool) -> Vec<(u64, u64, DeliveryId)> {
        let mut taken = Vec::new();
        self.deliveries
            .retain(|&(source, sequence), &mut (delivery, consumer)| {
                let takes = wanted(consumer);
                if takes {
                    taken.push((source, sequence, delivery));
                }
                !takes
            });
        taken
    }
}

/// Ranges of sequences by source, as acknowledgements carry them.
#[must_use]
pub fn ranges(taken: &[(u64, u64, DeliveryId)]) -> Vec<(u64, Vec<proto::SequenceRange>)> {
    let mut sets: Vec<(u64, Vec<proto::SequenceRange>)> = Vec::new();
    for &(source, sequence, _) in taken {
        if sets.last().is_none_or(|(last, _)| *last != source) {
            sets.push((source, Vec::new()));
        }
        let Some((_, ranges)) = sets.last_mut() else { continue };
        match ranges.last_mut() {
            Some(range) if range.last + 1 == sequence => range.last = sequence,
            _ => ranges.push(proto::SequenceRange {
                first: sequence,
                last: sequence,
            }),
        }
    }
    sets
}

/// As [`ranges`], for acknowledgements and releases.
#[must_use]
pub fn ack_sets(taken: &[(u64, u64, DeliveryId)], epoch: u64) -> Vec<proto::AckSet> {
    ranges(taken)
        .into_iter()
        .map(|(source, ranges)| proto::AckSet { source, ranges, epoch })
        .collect()
}

/// As [`ranges`], for what was seen.
#[must_use]
pub fn seen_sets(taken: &[(u64, u64, DeliveryId)]) -> Vec<proto::SeenSet> {
    ranges(taken)
        .into_iter()
        .map(|(source, ranges)| proto::SeenSet { source, ranges })
        .collect()
}
