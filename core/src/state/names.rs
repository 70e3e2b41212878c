//! Which producers have names, so that a program that was started again goes on with its numbers.
//!
//! A name belongs to a user and a destination: another user's same name, and the same name at another destination, is
//! another producer. It stands for one incarnation for as long as it is kept, and the numbers of such an incarnation are
//! kept beside the table of all others ([`super::producers`]), which many short-lived producers push everybody out of.
//!
//! Each opening by name is logged and counted. The count is in the token that the opening gave out, so that of two
//! programs that open one name the earlier has nothing any more to come back with.
//!
//! The table is bounded. When it is full, the user with the most names loses the one that was opened longest ago, and is
//! marked: of a name of theirs that is not in the table it cannot be told whether it is new. The marked users are bounded
//! by the same number; one more and it is every user.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::codec::{Decoder, HeadError, put_byte, put_number, put_text};
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, UNLOGGED_ID};
use super::producers::Producers;
use super::refusals::Key;
use super::tables::Tables;

const VERSION: u8 = 1;

/// Longest name of a producer, in characters.
pub const PRODUCER_NAME_CHARS_MAX: usize = 255;

/// A named producer as records describe it: it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NameHead {
    /// Whose name it is.
    pub user: String,
    /// The name.
    pub name: String,
    /// Where it sends.
    pub destination: DestinationId,
    /// What its numbers are kept under.
    pub incarnation: u64,
    /// Which opening it was, from 1.
    pub opening: u64,
}

impl NameHead {
    /// Appends the encoded head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        self.encode_fields(out);
    }

    /// As in a record and in a checkpoint's item.
    pub(super) fn encode_fields(&self, out: &mut Vec<u8>) {
        put_text(out, &self.user);
        put_text(out, &self.name);
        [self.destination.0, self.incarnation, self.opening]
            .into_iter()
            .for_each(|number| put_number(out, number));
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("producer name record", VERSION)?;
        let head = Self::decode_fields(&mut decoder)?;
        decoder.end("producer name record")?;
        Ok(head)
    }

    pub(super) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        Ok(Self {
            user: decoder.text("a producer's user")?.to_owned(),
            name: decoder.text("a producer's name")?.to_owned(),
            destination: DestinationId(decoder.number("a named producer's destination")?),
            incarnation: decoder.number("a named producer's incarnation")?,
            opening: decoder.number("a named producer's opening")?,
        })
    }

    fn key(&self) -> Key {
        (self.incarnation, self.destination)
    }
}

/// A user's names, the one that was opened longest ago first.
#[derive(Debug, Default)]
struct Owned {
    rows: FxHashMap<(String, DestinationId), Row>,
    by_age: BTreeMap<u64, (String, DestinationId)>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    stamp: u64,
    incarnation: u64,
    opening: u64,
}

/// The table.
#[derive(Debug)]
pub struct Names {
    users: BTreeMap<String, Owned>,
    count: usize,
    /// How many there are at each destination that has any.
    at: FxHashMap<DestinationId, usize>,
    names_max: usize,
    stamp: u64,
    forgotten_of: BTreeSet<String>,
    forgotten_of_all: bool,
}

impl Names {
    /// A table of so many names.
    #[must_use]
    pub fn new(names_max: usize) -> Self {
        Self {
            users: BTreeMap::new(),
            count: 0,
            at: FxHashMap::default(),
            names_max: names_max.max(1),
            stamp: 0,
            forgotten_of: BTreeSet::new(),
            forgotten_of_all: false,
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Incarnation and opening of a name.
    #[must_use]
    pub fn get(&self, user: &str, name: &str, destination: DestinationId) -> Option<(u64, u64)> {
        let row = self.users.get(user)?.rows.get(&(name.to_owned(), destination))?;
        Some((row.incarnation, row.opening))
    }

    /// Whether a name of this user may have been forgotten.
    #[must_use]
    pub fn may_have_forgotten(&self, user: &str) -> bool {
        self.forgotten_of_all || self.forgotten_of.contains(user)
    }

    /// Marks a user: a name of theirs was forgotten. None: of anybody.
    pub fn mark(&mut self, user: Option<&str>) {
        match user {
            Some(user) => {
                self.forgotten_of.insert(user.to_owned());
                self.forgotten_of_all |= self.forgotten_of.len() > self.names_max;
            }
            None => self.forgotten_of_all = true,
        }
        if self.forgotten_of_all {
            self.forgotten_of.clear();
        }
    }

    /// The marks: those of users, and whether it is everybody's.
    pub fn marks(&self) -> (impl Iterator<Item = &str>, bool) {
        (self.forgotten_of.iter().map(String::as_str), self.forgotten_of_all)
    }

    /// Takes a name as it was opened last. What stood for it before, if that was another incarnation.
    fn put(&mut self, head: &NameHead) -> Option<Key> {
        self.stamp += 1;
        let owned = self.users.entry(head.user.clone()).or_default();
        let key = (head.name.clone(), head.destination);
        let row = Row {
            stamp: self.stamp,
            incarnation: head.incarnation,
            opening: head.opening,
        };
        owned.by_age.insert(row.stamp, key.clone());
        match owned.rows.insert(key, row) {
            None => {
                self.count += 1;
                *self.at.entry(head.destination).or_default() += 1;
                None
            }
            Some(before) => {
                owned.by_age.remove(&before.stamp);
                (before.incarnation != head.incarnation).then_some((before.incarnation, head.destination))
            }
        }
    }

    /// While there are too many: takes one out, marks its user and says under what its numbers are kept.
    fn evict(&mut self) -> Option<Key> {
        if self.count <= self.names_max {
            return None;
        }
        let most = self.users.values().map(|owned| owned.rows.len()).max()?;
        let (user, owned) = self.users.iter_mut().find(|(_, owned)| owned.rows.len() == most)?;
        let user = user.clone();
        let (_, key) = owned.by_age.pop_first()?;
        let row = owned.rows.remove(&key)?;
        self.count -= 1;
        if owned.rows.is_empty() {
            self.users.remove(&user);
        }
        self.mark(Some(&user));
        self.note_gone(key.1);
        Some((row.incarnation, key.1))
    }

    /// Takes out all that `leaves` says, and says under what their numbers are kept.
    fn remove(&mut self, leaves: impl Fn(Key) -> bool) -> Vec<Key> {
        let mut removed = Vec::new();
        for owned in self.users.values_mut() {
            owned.by_age.retain(|_, key| {
                let Some(row) = owned.rows.get(key) else { return false };
                let known = (row.incarnation, key.1);
                let stays = !leaves(known);
                if !stays {
                    owned.rows.remove(key);
                    removed.push(known);
                }
                stays
            });
        }
        self.count -= removed.len();
        for (_, destination) in &removed {
            self.note_gone(*destination);
        }
        self.users.retain(|_, owned| !owned.rows.is_empty());
        removed
    }

    fn note_gone(&mut self, destination: DestinationId) {
        if let Some(count) = self.at.get_mut(&destination) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&destination);
            }
        }
    }

    /// All of them, of each user the one that was opened longest ago first.
    pub fn iter(&self) -> impl Iterator<Item = NameHead> + '_ {
        let mut all: Vec<(u64, NameHead)> = Vec::with_capacity(self.count);
        for (user, owned) in &self.users {
            all.extend(owned.rows.iter().map(|((name, destination), row)| {
                let head = NameHead {
                    user: user.clone(),
                    name: name.clone(),
                    destination: *destination,
                    incarnation: row.incarnation,
                    opening: row.opening,
                };
                (row.stamp, head)
            }));
        }
        all.sort_unstable_by_key(|(stamp, _)| *stamp);
        all.into_iter().map(|(_, head)| head)
    }
}

impl Tables {
    /// A producer was opened by its name.
    pub(super) fn apply_name(&mut self, head: &NameHead) {
        if let Some(before) = self.names.put(head) {
            self.producers.let_go(before);
        }
        self.producers.keep(head.key(), 0);
        self.bound_names();
    }

    /// A checkpoint says that a producer has a name, and up to where numbers have arrived under it. Nothing is put out for it:
    /// what records from before it say of others would take the place of what it says.
    pub(super) fn restore_name(&mut self, head: &NameHead, sequence: u64) {
        if let Some(before) = self.names.put(head)
            && let Some(row) = self.producers.kept_mut().remove(&before)
        {
            self.producers.put_row_unbounded(before, row);
        }
        self.producers.keep(head.key(), sequence);
    }

    pub(super) fn bound_names(&mut self) {
        while let Some(key) = self.names.evict() {
            self.producers.let_go(key);
        }
    }

    /// A checkpoint that names all names and all users whose names were forgotten is complete. Rows and bounds come after.
    pub(super) fn keep_names(&mut self, named: &FxHashSet<Key>, marks: BTreeSet<String>, of_all: bool) {
        for key in self.names.remove(|key| !named.contains(&key)) {
            // Which of the others stay is said by their own rows.
            if let Some(row) = self.producers.kept_mut().remove(&key) {
                self.producers.put_row_unbounded(key, row);
            }
        }
        self.names.forgotten_of = marks;
        self.names.forgotten_of_all = of_all;
    }

    /// A destination is no more, and none has its number ever again.
    pub(super) fn drop_names_at(&mut self, destination: DestinationId) {
        if self.names.count > 0 {
            for key in self.names.remove(|(_, at)| at == destination) {
                self.producers.kept_mut().remove(&key);
            }
        }
    }
}

impl Producers {
    /// The highest logged number of a named producer.
    pub(super) fn kept_sequence(&self, key: Key) -> u64 {
        self.kept_row(&key).map_or(0, |row| row.sequence)
    }

    /// The row of a named producer from now on stands beside the others.
    fn keep(&mut self, key: Key, sequence: u64) {
        let known = self.take_row(key);
        let row = self.kept_mut().entry(key).or_default();
        if let Some(known) = known {
            *row = known;
        }
        row.sequence = row.sequence.max(sequence);
    }

    /// It is one among all others again.
    fn let_go(&mut self, key: Key) {
        if let Some(row) = self.kept_mut().remove(&key) {
            self.put_row(key, row);
        }
    }
}

/// Why a producer is not opened under its name.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The name is not known, and it cannot be told whether it is new.
    #[error("names of this user were forgotten: it cannot be told whether this one is new")]
    Forgotten,
    /// It cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A producer that was opened by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// What its numbers are kept under.
    pub incarnation: u64,
    /// Which opening this is.
    pub opening: u64,
    /// The highest number that arrived.
    pub last: u64,
}

impl State {
    /// Opens a producer by its name, for the first time or again. What is told of it may be told once all that is logged by
    /// now is durable. `is_new`: where it cannot be told whether the name is new, it is.
    ///
    /// # Errors
    /// It cannot be told, or there is no room for its record.
    pub fn open_named(
        &mut self,
        user: &str,
        name: &str,
        destination: DestinationId,
        is_new: bool,
    ) -> Result<Named, NameError> {
        let (incarnation, opening) = match self.tables.names.get(user, name, destination) {
            Some((incarnation, opening)) => (incarnation, opening + 1),
            None if self.tables.names.may_have_forgotten(user) && !is_new => return Err(NameError::Forgotten),
            None => (self.next_incarnation()?, 1),
        };
        let head = NameHead {
            user: user.to_owned(),
            name: name.to_owned(),
            destination,
            incarnation,
            opening,
        };
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer);
        // A full disk refuses it; while the log's next files are being prepared it finds room, as a destination does.
        self.leave_reserve()
            .and_then(|()| self.append_event(super::catalogue_record::kinds::PRODUCER_NAME))
            .map_err(StateError::from)?;
        self.tables.apply_name(&head);
        let last = self.tables.producers.last(incarnation, destination);
        Ok(Named {
            incarnation,
            opening,
            last: last.map_or(0, |last| last.sequence),
        })
    }

    /// What is known of a named producer that comes back after its link broke.
    #[must_use]
    pub fn named_producer(&self, user: &str, name: &str, destination: DestinationId) -> Option<Named> {
        let (incarnation, opening) = self.tables.names.get(user, name, destination)?;
        let last = self.tables.producers.last(incarnation, destination)?.sequence;
        Some(Named {
            incarnation,
            opening,
            last,
        })
    }

    /// How many producers have names.
    #[must_use]
    pub const fn named_producers(&self) -> usize {
        self.tables.names.count()
    }

    /// Whether producers at a destination have names: it goes with their numbers.
    #[must_use]
    pub fn has_named_producers(&self, destination: DestinationId) -> bool {
        self.tables.names.at.contains_key(&destination)
    }

    /// Whether a destination can have named producers: what no record names is gone with the process.
    #[must_use]
    pub const fn may_have_named_producers(destination: DestinationId) -> bool {
        destination.0 < UNLOGGED_ID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(user: &str, name: &str, incarnation: u64) -> NameHead {
        NameHead {
            user: user.to_owned(),
            name: name.to_owned(),
            destination: DestinationId(20),
            incarnation,
            opening: 1,
        }
    }

    fn put(names: &mut Names, user: &str, name: &str, incarnation: u64) -> Option<Key> {
        assert_eq!(names.put(&head(user, name, incarnation)), None);
        names.evict()
    }

    #[test]
    fn who_has_the_most_names_loses_the_one_that_was_opened_longest_ago_and_is_marked() {
        let mut names = Names::new(3);
        assert_eq!(put(&mut names, "a", "one", 1), None);
        assert_eq!(put(&mut names, "b", "one", 2), None);
        assert_eq!(put(&mut names, "b", "two", 3), None);
        assert_eq!(put(&mut names, "b", "one", 2), None, "opened again");
        assert_eq!(put(&mut names, "b", "three", 4), Some((3, DestinationId(20))));
        assert_eq!(put(&mut names, "c", "one", 5), Some((2, DestinationId(20))));
        assert_eq!(names.get("a", "one", DestinationId(20)), Some((1, 1)));
        assert_eq!(names.get("a", "one", DestinationId(21)), None);
        let marked = ["a", "b", "c"].map(|user| names.may_have_forgotten(user));
        assert_eq!((marked, names.count()), ([false, true, false], 3));
    }

    #[test]
    fn marks_of_more_users_than_there_may_be_are_everybodys() {
        let mut names = Names::new(2);
        names.mark(Some("a"));
        names.mark(Some("b"));
        assert!(!names.may_have_forgotten("c"));
        names.mark(Some("d"));
        assert!(names.may_have_forgotten("c") && names.may_have_forgotten("a"));
        assert_eq!((names.marks().0.count(), names.marks().1), (0, true));
    }
}
