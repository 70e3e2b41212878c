//! What came of bodies whose stream broke: kept for a while, for the producer that sends them to come back.
//!
//! Nothing else of a session is kept with it. It is found by the producer's incarnation, which nobody has without the
//! producer's token, and by the number of the upload. What there is of it is bounded for each user and for all together:
//! the oldest goes, of the user who has the most. What a user's connections upload goes first.

use super::arriving::Body;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Less than this is sent again as fast as it is looked for.
pub const KEPT_BYTES_MIN: u64 = 32 << 10;
/// All users together have at most so many times what one may have.
const ALL_TIMES: u64 = 2;

/// Incarnation and upload.
type Key = (u64, u64);

#[derive(Debug)]
struct Kept {
    user: Arc<str>,
    body: Body,
    until_ms: u64,
    serial: u64,
}

/// What one user has.
#[derive(Debug, Default)]
struct Share {
    bytes: u64,
    /// By age, the oldest first.
    ages: BTreeMap<u64, Key>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct KeptUploads {
    bodies: BTreeMap<Key, Kept>,
    shares: FxHashMap<Arc<str>, Share>,
    /// By age, the oldest first.
    ages: BTreeMap<u64, Key>,
    serial: u64,
    bytes: u64,
}

impl KeptUploads {
    /// How many bytes there are.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When something goes next.
    #[must_use]
    pub fn next_end_ms(&self) -> u64 {
        let oldest = self.ages.values().next().and_then(|key| self.bodies.get(key));
        oldest.map_or(u64::MAX, |kept| kept.until_ms)
    }

    /// Keeps a body until a time that is never before that of another one. A user has at most `most` bytes.
    pub fn keep(&mut self, user: &Arc<str>, key: Key, mut body: Body, until_ms: u64, most: u64) {
        if let Some(before) = self.remove(key)
            && before.whole == body.whole
            && before.bytes.len() > body.bytes.len()
        {
            body = before; // of the stream that broke last less has come so far
        }
        let size = body.bytes.len() as u64;
        if size < KEPT_BYTES_MIN || size > most {
            return;
        }
        self.make_room(user, most - size);
        while self.bytes + size > most.saturating_mul(ALL_TIMES) {
            let Some(richest) = self.richest() else { return };
            self.remove_oldest(&richest);
        }
        body.bytes.shrink_to_fit();
        self.serial += 1;
        let share = self.shares.entry(Arc::clone(user)).or_default();
        share.bytes += size;
        share.ages.insert(self.serial, key);
        self.bytes += size;
        self.ages.insert(self.serial, key);
        let kept = Kept {
            user: Arc::clone(user),
            body,
            until_ms,
            serial: self.serial,
        };
        self.bodies.insert(key, kept);
    }

    /// Gives a body back to its producer, if it is this user's.
    pub fn claim(&mut self, user: &str, key: Key) -> Option<Body> {
        self.bodies.get(&key).filter(|kept| *kept.user == *user)?;
        self.remove(key)
    }

    /// Drops all that is kept of a producer: its client does not want it.
    pub fn drop_all_of(&mut self, incarnation: u64) {
        while let Some((&key, _)) = self.bodies.range((incarnation, 0)..=(incarnation, u64::MAX)).next() {
            drop(self.remove(key));
        }
    }

    /// Leaves a user at most so many bytes.
    pub fn make_room(&mut self, user: &Arc<str>, most: u64) {
        while self.shares.get(user).is_some_and(|share| share.bytes > most) {
            self.remove_oldest(user);
        }
    }

    /// Drops what has been kept long enough.
    pub fn expire(&mut self, now_ms: u64) {
        while self.next_end_ms() <= now_ms {
            let Some((_, &key)) = self.ages.first_key_value() else {
                return;
            };
            drop(self.remove(key));
        }
    }

    /// The user who has the most.
    fn richest(&self) -> Option<Arc<str>> {
        let richest = self.shares.iter().max_by_key(|(_, share)| share.bytes);
        richest.map(|(user, _)| Arc::clone(user))
    }

    fn remove_oldest(&mut self, user: &Arc<str>) {
        let oldest = self.shares.get(user).and_then(|share| share.ages.values().next());
        if let Some(&key) = oldest {
            drop(self.remove(key));
        }
    }

    fn remove(&mut self, key: Key) -> Option<Body> {
        let kept = self.bodies.remove(&key)?;
        let size = kept.body.bytes.len() as u64;
        self.ages.remove(&kept.serial);
        self.bytes -= size;
        if let Some(share) = self.shares.get_mut(&kept.user) {
            share.ages.remove(&kept.serial);
            share.bytes -= size;
            if share.ages.is_empty() {
                self.shares.remove(&kept.user);
            }
        }
        Some(kept.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 10 * KEPT_BYTES_MIN;

    /// So many times the least that is kept.
    fn body(times: u64) -> Body {
        let size = times * KEPT_BYTES_MIN;
        let mut body = Body::new(2 * size);
        body.add(&vec![7; usize::try_from(size).unwrap()]);
        body
    }

    fn kept(uploads: &KeptUploads) -> Vec<Key> {
        uploads.bodies.keys().copied().collect()
    }

    #[test]
    fn a_users_oldest_goes_when_he_has_too_much_and_so_does_what_is_old() {
        let (anna, mut uploads) = (Arc::from("anna"), KeptUploads::default());
        uploads.keep(&anna, (1, 1), body(4), 10, MOST);
        uploads.keep(&anna, (1, 2), body(6), 20, MOST);
        assert_eq!((uploads.bytes(), uploads.next_end_ms()), (MOST, 10));
        uploads.keep(&anna, (2, 1), body(1), 30, MOST);
        assert_eq!(kept(&uploads), [(1, 2), (2, 1)]);
        uploads.keep(&anna, (3, 1), body(11), 30, MOST);
        assert_eq!(
            kept(&uploads),
            [(1, 2), (2, 1)],
            "what is too large alone costs nobody anything"
        );
        uploads.expire(19);
        assert_eq!(uploads.next_end_ms(), 20);
        uploads.expire(20);
        assert_eq!(kept(&uploads), [(2, 1)]);
        uploads.make_room(&anna, 0);
        assert_eq!(
            (uploads.bytes(), uploads.next_end_ms(), uploads.shares.len()),
            (0, u64::MAX, 0)
        );
    }

    #[test]
    fn where_all_have_too_much_it_is_taken_from_who_has_the_most() {
        let mut uploads = KeptUploads::default();
        let users: Vec<Arc<str>> = ["anna", "bert", "carl"].into_iter().map(Arc::from).collect();
        uploads.keep(&users[0], (1, 1), body(9), 10, MOST);
        uploads.keep(&users[1], (2, 1), body(5), 10, MOST);
        uploads.keep(&users[1], (2, 2), body(5), 10, MOST);
        uploads.keep(&users[2], (3, 1), body(1), 10, MOST);
        assert_eq!(uploads.bytes(), 2 * MOST);
        uploads.keep(&users[2], (3, 2), body(1), 10, MOST);
        assert_eq!(kept(&uploads), [(1, 1), (2, 2), (3, 1), (3, 2)]);
    }

    #[test]
    fn only_who_has_sent_it_gets_it_and_the_longer_of_two_beginnings_stays() {
        let (anna, mut uploads) = (Arc::from("anna"), KeptUploads::default());
        let mut longer = Body::new(4 * KEPT_BYTES_MIN);
        longer.add(&vec![7; 3 * usize::try_from(KEPT_BYTES_MIN).unwrap()]);
        uploads.keep(&anna, (1, 1), longer, 10, MOST);
        uploads.keep(&anna, (1, 1), body(2), 20, MOST);
        assert_eq!((uploads.bytes(), uploads.next_end_ms()), (3 * KEPT_BYTES_MIN, 20));
        assert!(uploads.claim("bert", (1, 1)).is_none() && uploads.claim("anna", (1, 2)).is_none());
        let claimed = uploads.claim("anna", (1, 1)).unwrap();
        assert_eq!((claimed.bytes.len() as u64, uploads.bytes()), (3 * KEPT_BYTES_MIN, 0));
        uploads.keep(&anna, (1, 1), claimed, 30, MOST);
        uploads.keep(&anna, (2, 1), body(1), 30, MOST);
        uploads.drop_all_of(1);
        assert_eq!(kept(&uploads), [(2, 1)]);
    }
}
