//! Under which starts the store gave out producers' incarnations, and the secret by which it knows them again.
//!
//! An incarnation is a number that only grows in a store: its epoch and a count. But a store that is new, and one that was
//! restored from a copy, begin with epochs that were given out before. So each start for writing draws a random *start
//! id* and logs it as its first record: what was given out under it is known by both. The oldest of very many are
//! forgotten; a producer of theirs is unknown, and says so.
//!
//! A producer that comes back shows a token: an HMAC over store, start id, incarnation and user. Nobody else has one, so
//! nobody can use up another's numbers.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::codec::{Decoder, HeadError, put_byte, put_bytes, put_flag};
use super::facade::State;

const VERSION: u8 = 1;
/// Starts that are known. Incarnations of earlier ones are answered as unknown, and message ids lose their start id.
const STARTS_MAX: usize = 65_536;
/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;

/// What a start draws, by whoever has random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// The start id. 0: none; then no producer of this start can be told from others, and none is taken back.
    pub id: u64,
    /// The store's secret, should it have none yet.
    pub secret: [u8; SECRET_BYTES],
}

impl std::fmt::Debug for Start {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Start {{ id: {:x}, .. }}", self.id)
    }
}

/// A start as its record has it. The secret stands in the first one alone, and in checkpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct StartHead {
    pub id: u64,
    pub secret: Option<[u8; SECRET_BYTES]>,
}

impl StartHead {
    /// Appends the encoded head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        put_flag(out, self.secret.is_some());
        put_bytes(out, &self.id.to_le_bytes());
        if let Some(secret) = &self.secret {
            put_bytes(out, secret);
        }
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("start record", VERSION)?;
        let has_secret = decoder.flag("has a secret")?;
        let start = Self {
            id: u64::from_le_bytes(decoder.array("start id")?),
            secret: if has_secret {
                Some(decoder.array("secret")?)
            } else {
                None
            },
        };
        decoder.end("start record")?;
        Ok(start)
    }
}

/// The starts that the log knows, in the order of their epochs.
pub(super) struct Starts {
    incarnation_bits: u32,
    by_epoch: Vec<(u64, u64)>,
    secret: Option<[u8; SECRET_BYTES]>,
}

impl std::fmt::Debug for Starts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl Starts {
    /// None yet. `incarnation_bits`: as the state's options have it.
    pub const fn new(incarnation_bits: u32) -> Self {
        Self {
            incarnation_bits,
            by_epoch: Vec::new(),
            secret: None,
        }
    }

    /// The id of the start that gave out an incarnation.
    pub fn of_incarnation(&self, incarnation: u64) -> Option<u64> {
        self.of(incarnation >> self.incarnation_bits)
    }

    /// Notes a start, by its record or a checkpoint.
    pub fn note(&mut self, epoch: u64, id: u64) {
        match self.by_epoch.binary_search_by_key(&epoch, |(known, _)| *known) {
            // A follower that became active within an epoch of its leader would be a second start of it: the later holds.
            Ok(place) => self.by_epoch[place].1 = id,
            Err(place) => self.by_epoch.insert(place, (epoch, id)),
        }
        if self.by_epoch.len() > STARTS_MAX {
            self.by_epoch.remove(0);
        }
    }

    /// Takes the store's secret.
    pub fn keep(&mut self, secret: [u8; SECRET_BYTES]) {
        self.secret = Some(secret);
    }

    /// The secret.
    pub const fn secret(&self) -> Option<[u8; SECRET_BYTES]> {
        self.secret
    }

    /// The start id of an epoch.
    pub fn of(&self, epoch: u64) -> Option<u64> {
        // Nearly always the current one is asked for.
        if let Some(&(last, id)) = self.by_epoch.last()
            && last == epoch
        {
            return Some(id);
        }
        let place = self.by_epoch.binary_search_by_key(&epoch, |(known, _)| *known).ok()?;
        Some(self.by_epoch[place].1)
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_epoch.iter().copied()
    }
}

impl State {
    /// The id of the current start; 0: it has none.
    #[must_use]
    pub fn start_id(&self) -> u64 {
        self.tables.starts.of(self.log.epoch()).unwrap_or(0)
    }

    /// The id of the start that gave out an incarnation; None: of none that is known.
    #[must_use]
    pub fn start_id_of(&self, incarnation: u64) -> Option<u64> {
        self.tables.starts.of_incarnation(incarnation)
    }

    /// By what a producer of this user shows that it was given its incarnation here; None: nothing could show it.
    #[must_use]
    pub fn producer_token(&self, incarnation: u64, user: &str) -> Option<[u8; TOKEN_BYTES]> {
        let whole = self.producer_mac(incarnation, 0, user)?.finalize().into_bytes();
        whole[..TOKEN_BYTES].try_into().ok()
    }

    /// As [`State::producer_token`], of a producer that was opened by its name: the same of that opening, and its number.
    #[must_use]
    pub fn opening_token(&self, incarnation: u64, opening: u64, user: &str) -> Option<Vec<u8>> {
        let whole = self.producer_mac(incarnation, opening, user)?.finalize().into_bytes();
        Some([&whole[..TOKEN_BYTES], &opening.to_le_bytes()].concat())
    }

    /// Whether it was given this incarnation, in this store, for this user.
    #[must_use]
    pub fn is_producer_token(&self, token: &[u8], incarnation: u64, user: &str) -> bool {
        self.is_mac(token, incarnation, 0, user)
    }

    /// Which opening of a producer by its name gave out this token; None: none did, in this store, for this user.
    #[must_use]
    pub fn opening_of_token(&self, token: &[u8], incarnation: u64, user: &str) -> Option<u64> {
        let (mac, opening) = token.split_at_checked(TOKEN_BYTES)?;
        let opening = u64::from_le_bytes(opening.try_into().ok()?);
        let known = opening > 0 && self.is_mac(mac, incarnation, opening, user);
        known.then_some(opening)
    }

    fn is_mac(&self, shown: &[u8], incarnation: u64, opening: u64, user: &str) -> bool {
        // The length is compared first: the library takes any part of the whole, an empty one too.
        shown.len() == TOKEN_BYTES
            && self
                .producer_mac(incarnation, opening, user)
                .is_some_and(|mac| mac.verify_truncated_left(shown).is_ok())
    }

    /// What keys of names are made with, so that nobody who lacks the store can try which name a key stands for. Copies of a
    /// store have the same.
    #[must_use]
    pub fn names_secret(&self) -> [u8; SECRET_BYTES] {
        let mac = self.tables.starts.secret().and_then(|secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&secret).ok()?;
            mac.update(b"sterna names of events\0");
            Some(mac.finalize().into_bytes().into())
        });
        mac.unwrap_or_default()
    }

    fn producer_mac(&self, incarnation: u64, opening: u64, user: &str) -> Option<Hmac<Sha256>> {
        let start = self.start_id_of(incarnation)?;
        let secret = self.tables.starts.secret()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret).ok()?;
        // Of tokens that were given out before there were names the text is as it was.
        if opening == 0 {
            mac.update(b"sterna producer\0");
        } else {
            mac.update(b"sterna named producer\0");
            mac.update(&opening.to_le_bytes());
        }
        mac.update(&self.log.store_id());
        mac.update(&start.to_le_bytes());
        mac.update(&incarnation.to_le_bytes());
        mac.update(user.as_bytes());
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_as_it_was_written() {
        for id in [0, 1, 0x7f, 0x80, u64::MAX] {
            for secret in [None, Some([0; SECRET_BYTES]), Some([0xff; SECRET_BYTES])] {
                let mut head = Vec::new();
                StartHead { id, secret }.encode(&mut head);
                let read = StartHead::decode(&head).unwrap();
                assert_eq!((read.id, read.secret), (id, secret));
                for cut in 0..head.len() {
                    assert!(StartHead::decode(&head[..cut]).is_err(), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn the_newest_starts_are_known_and_the_oldest_forgotten() {
        let mut starts = Starts::new(32);
        for epoch in 1..=STARTS_MAX as u64 + 2 {
            starts.note(epoch, epoch * 3);
        }
        assert_eq!(starts.iter().count(), STARTS_MAX);
        let last = STARTS_MAX as u64 + 2;
        assert_eq!((starts.of(last), starts.of(3)), (Some(last * 3), Some(9)));
        assert_eq!((starts.of(1), starts.of(last + 1)), (None, None));
        starts.note(7, 1);
        assert_eq!(starts.of(7), Some(1));
    }
}
