//! What has come of bodies that are uploaded, of one producer, and which of them were refused.
//!
//! A refused upload is remembered until its message comes, so that this is told which limit it was. A connection may have
//! so many of them remembered one by one; of more only is known that there were some, and the last limit.

use super::errors::{Refused, over_limit};
use rustc_hash::FxHashMap;

/// So many refused uploads of a connection are remembered one by one.
pub const REFUSED_MAX: u32 = 1_024;

/// A producer may have so many bodies, however small: each takes some room beside its bytes. Larger ones reach the limit of
/// their connection long before.
const BODIES_MAX: usize = 16_384;

/// The limit that an upload went beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// `message_bytes`, which is so many.
    Message(u64),
    /// `upload_bytes`, which is so many.
    Connection(u64),
}

impl Over {
    /// What whoever sends is told: the limit, its value, and what to do.
    #[must_use]
    pub fn refusal(self) -> Refused {
        let (mut refused, remedy) = match self {
            Self::Message(value) => (
                over_limit(
                    "message_bytes",
                    value,
                    "The uploaded body is larger than a message may be",
                ),
                "Send a smaller body, or have the broker's limits.messageBytes raised, and limits.uploadBytes with it.",
            ),
            Self::Connection(value) => (
                over_limit(
                    "upload_bytes",
                    value,
                    "With this body the connection would have more uploaded than it may and not published",
                ),
                "Send smaller bodies, or fewer at a time over one connection, or have the broker's limits.uploadBytes \
                 raised to what they have together.",
            ),
        };
        remedy.clone_into(&mut refused.remedy);
        refused
    }
}

/// What has come of one body.
#[derive(Debug)]
pub struct Body {
    /// From its beginning.
    pub bytes: Vec<u8>,
    /// The size of the whole, as its client has told; 0: it did not, and nothing of it is kept when its stream breaks.
    pub whole: u64,
    /// The CRC-32 of what has come, which clients have at hand without any package, where the size of the whole was told.
    pub sum: u32,
}

impl Body {
    /// One of which nothing has come.
    #[must_use]
    pub const fn new(whole: u64) -> Self {
        Self {
            bytes: Vec::new(),
            whole,
            sum: 0,
        }
    }

    /// Takes what comes next.
    pub fn add(&mut self, data: &[u8]) {
        let room = self.bytes.capacity() - self.bytes.len();
        if self.whole != 0 {
            let mut sum = crc32fast::Hasher::new_with_initial(self.sum);
            sum.update(data);
            self.sum = sum.finalize();
            if room < data.len() {
                // Twice as much each time, but no more than there will be.
                let left = usize::try_from(self.whole)
                    .unwrap_or(usize::MAX)
                    .saturating_sub(self.bytes.len());
                self.bytes.reserve_exact(self.bytes.len().min(left).max(data.len()));
            }
        }
        self.bytes.extend_from_slice(data);
    }

    /// Whether more is to come, as far as is known.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        (self.bytes.len() as u64) < self.whole
    }
}

/// The uploads of one producer, by the numbers that its client gave them.
#[derive(Debug, Default)]
pub struct Uploads {
    /// What has come of each body.
    pub bodies: FxHashMap<u64, Body>,
    refused: FxHashMap<u64, Over>,
    /// The last limit that refused one that is not remembered.
    beyond: Option<Over>,
}

impl Uploads {
    /// Whether there is nothing: neither bodies nor refusals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty() && self.refused.is_empty()
    }

    /// Whether there are so many bodies that no other one may begin.
    #[must_use]
    pub fn is_full_for(&self, upload_id: u64) -> bool {
        self.bodies.len() >= BODIES_MAX && !self.bodies.contains_key(&upload_id)
    }

    /// Takes out what its client may come back for: whose size it has told, and of which so many bytes have come.
    pub fn take_resumable(&mut self, bytes_min: u64) -> Vec<(u64, Body)> {
        let is_resumable = |body: &Body| body.whole != 0 && body.bytes.len() as u64 >= bytes_min;
        let taken = self.bodies.iter().filter(|(_, body)| is_resumable(body));
        let taken: Vec<u64> = taken.map(|(&upload_id, _)| upload_id).collect();
        let bodies = taken.into_iter().map(|one| (one, self.bodies.remove(&one)));
        bodies.filter_map(|(one, body)| Some((one, body?))).collect()
    }

    /// What all bodies have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bodies.values().map(|body| body.bytes.len() as u64).sum()
    }

    /// How many refused ones are remembered.
    #[must_use]
    pub fn refused_count(&self) -> u32 {
        u32::try_from(self.refused.len()).unwrap_or(u32::MAX)
    }

    /// Remembers that an upload was refused; `counted`: as many as its connection has remembered.
    pub fn refuse(&mut self, upload_id: u64, over: Over, counted: &mut u32) {
        if *counted >= REFUSED_MAX && !self.refused.contains_key(&upload_id) {
            self.beyond = Some(over);
        } else if self.refused.insert(upload_id, over).is_none() {
            *counted += 1;
        }
    }

    /// Why an upload was refused, if it was.
    #[must_use]
    pub fn refused(&self, upload_id: u64) -> Option<Over> {
        self.refused.get(&upload_id).copied()
    }

    /// The same of an upload that is not there, and is remembered no more.
    pub fn forget_refused(&mut self, upload_id: u64, counted: &mut u32) -> Option<Over> {
        match self.refused.remove(&upload_id) {
            Some(over) => {
                *counted = counted.saturating_sub(1);
                Some(over)
            }
            None => self.beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_bodies_begin_than_so_many_however_small() {
        let mut uploads = Uploads::default();
        for upload_id in 0..BODIES_MAX as u64 {
            assert!(!uploads.is_full_for(upload_id));
            uploads.bodies.insert(upload_id, Body::new(0));
        }
        assert!(uploads.is_full_for(u64::MAX) && !uploads.is_full_for(3));
    }

    #[test]
    fn so_many_refusals_are_remembered_one_by_one_and_of_others_that_there_were_some() {
        let mut uploads = Uploads::default();
        let mut counted = 0;
        for upload_id in 0..u64::from(REFUSED_MAX) {
            uploads.refuse(upload_id, Over::Message(7), &mut counted);
            uploads.refuse(upload_id, Over::Message(7), &mut counted);
        }
        assert_eq!((counted, uploads.refused_count()), (REFUSED_MAX, REFUSED_MAX));
        assert_eq!(uploads.forget_refused(1 << 40, &mut counted), None);
        uploads.refuse(1 << 40, Over::Connection(9), &mut counted);
        assert_eq!((counted, uploads.refused(1 << 40)), (REFUSED_MAX, None));
        assert_eq!(uploads.forget_refused(1 << 40, &mut counted), Some(Over::Connection(9)));
        assert_eq!(uploads.forget_refused(3, &mut counted), Some(Over::Message(7)));
        assert_eq!((counted, uploads.refused(3)), (REFUSED_MAX - 1, None));
    }
}
