//! Which numbers of producers were refused, so that one that is sent again is not taken for one that arrived.
//!
//! A refused message uses its number up, and later ones go on. When the connection is lost before its producer has heard
//! of the refusal, it sends the number again, which is then below the highest that arrived. What is here says that it
//! never did. Most producers never meet a refusal, and cost nothing here.
//!
//! A message record carries what was refused before it, so that this survives a crash as long as it matters: without a
//! later message on record the number is not below anything.
//!
//! All of it is bounded, and nothing is forgotten without a mark: whoever asks for a number below a mark is told that it
//! cannot be told, so that it is neither confirmed without being stored nor stored twice. Within one producer's numbers
//! at a destination the mark is a range that begins with 0, which is nobody's number ([`Ranges`]). When the numbers of a
//! whole producer are put out of the table, the mark goes to its row in [`super::producers`], which is bounded by itself;
//! where it has none, nothing of it has arrived yet, and the highest such incarnation is the mark: the first number of one
//! that arrives then says that those around it cannot be told.
//!
//! A producer that is bound to no destination can be refused before it is known where its message goes. Such a number counts
//! at every destination ([`DestinationId::ANYWHERE`]): it names one message, wherever that goes when it comes again.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::ids::DestinationId;

/// How far back a producer may have to send again: it has no more on the way.
pub const WINDOW: u64 = 65_536;

/// Ranges that are kept for one producer at one destination, and that a record carries.
pub const RANGES_MAX: usize = 256;

/// Ranges that are kept for each producer, on average.
const RANGES_EACH: usize = 4;

/// A producer at a destination.
pub type Key = (u64, DestinationId);

/// What is known of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It was not refused.
    None,
    /// It was refused and has not arrived since.
    Refused,
    /// It cannot be told any more.
    Unknown,
}

/// Refused numbers of one producer at one destination: first and last of each range, ascending. The lowest may begin with
/// 0: of the numbers up to its last it cannot be told which were refused, but for those that other ranges name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ranges(SmallVec<[(u64, u64); 2]>);

impl Ranges {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All, the one that begins with 0 included.
    #[must_use]
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Up to where it cannot be told; 0: everything can.
    #[must_use]
    pub fn unknown_up_to(&self) -> u64 {
        match self.0.first() {
            Some((0, last)) => *last,
            _ => 0,
        }
    }

    /// The ranges of numbers that are known to have been refused.
    #[must_use]
    pub fn exact(&self) -> &[(u64, u64)] {
        let from = usize::from(self.unknown_up_to() > 0);
        self.0.get(from..).unwrap_or_default()
    }

    /// What is known of a number.
    #[must_use]
    pub fn of(&self, sequence: u64) -> Refusal {
        if self
            .exact()
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&sequence))
        {
            Refusal::Refused
        } else if sequence <= self.unknown_up_to() {
            Refusal::Unknown
        } else {
            Refusal::None
        }
    }

    /// Adds a range above all others.
    pub fn push(&mut self, first: u64, last: u64) {
        if first == 0 {
            self.forget_up_to(last);
        } else {
            self.0.push((first, last));
            self.fit();
        }
    }

    /// Numbers up to this one cannot be told any more, unless they are named.
    pub fn forget_up_to(&mut self, last: u64) {
        match self.0.first_mut() {
            _ if last == 0 => {}
            Some((0, known)) => *known = last.max(*known),
            _ => self.0.insert(0, (0, last)),
        }
    }

    /// Adds all that another one says.
    fn absorb(&mut self, other: &Self) {
        let unknown = self.unknown_up_to().max(other.unknown_up_to());
        let mut all: Vec<(u64, u64)> = self.exact().iter().chain(other.exact()).copied().collect();
        all.sort_unstable();
        self.0.clear();
        for (first, last) in all {
            match self.0.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => self.0.push((first, last)),
            }
        }
        self.forget_up_to(unknown);
        while self.0.len() > RANGES_MAX {
            self.fit();
        }
    }

    /// Without what is too far back for its producer to send again when it is at `sequence`.
    fn forget_before_window(&mut self, sequence: u64) {
        let gone = self
            .exact()
            .iter()
            .filter(|(_, last)| last.saturating_add(WINDOW) < sequence)
            .count();
        self.forget_lowest(gone);
    }

    fn forget_lowest(&mut self, count: usize) {
        let from = usize::from(self.unknown_up_to() > 0);
        if let Some(highest) = self
            .exact()
            .get(..count)
            .and_then(|gone| gone.last())
            .map(|(_, last)| *last)
        {
            self.0.drain(from..from + count);
            self.forget_up_to(highest);
        }
    }

    /// What is too ragged to keep is forgotten from below, half of it at a time.
    fn fit(&mut self) {
        if self.0.len() > RANGES_MAX {
            self.forget_lowest(RANGES_MAX / 2);
        }
    }

    fn insert(&mut self, sequence: u64) {
        let from = usize::from(self.unknown_up_to() > 0);
        let index = self.0.partition_point(|(first, _)| *first <= sequence);
        if let Some((_, last)) = self.0.get_mut(from..index).and_then(<[_]>::last_mut)
            && last.saturating_add(1) >= sequence
        {
            *last = sequence.max(*last);
        } else {
            self.0.insert(index, (sequence, sequence));
            self.fit();
        }
    }

    fn remove(&mut self, sequence: u64) {
        let from = usize::from(self.unknown_up_to() > 0);
        let Some(index) = self
            .exact()
            .iter()
            .position(|(first, last)| (*first..=*last).contains(&sequence))
        else {
            return;
        };
        let (first, last) = self.0.remove(from + index);
        if sequence < last {
            self.0.insert(from + index, (sequence + 1, last));
        }
        if first < sequence {
            self.0.insert(from + index, (first, sequence - 1));
        }
        self.fit();
    }
}

#[derive(Debug)]
struct Kept {
    stamp: u64,
    ranges: Ranges,
}

/// All refused numbers that count. The owner takes what [`Refusals::evict`] gives after every change.
#[derive(Debug)]
pub struct Refusals {
    kept: FxHashMap<Key, Kept>,
    /// Who was noted longest ago goes first.
    by_age: BTreeMap<u64, Key>,
    stamp: u64,
    ranges: usize,
    producers_max: usize,
    /// The highest incarnation of which something was put out before anything of it had arrived.
    pub(super) forgotten_up_to: u64,
    /// The highest incarnation of which something was put out that was refused before it was known where it goes: nothing
    /// that is not above what arrived can be told of these.
    pub(super) anywhere_forgotten_up_to: u64,
}

impl Refusals {
    /// A table for so many producers.
    #[must_use]
    pub fn new(producers_max: usize) -> Self {
        Self {
            kept: FxHashMap::default(),
            by_age: BTreeMap::new(),
            stamp: 0,
            ranges: 0,
            producers_max: producers_max.max(1),
            forgotten_up_to: 0,
            anywhere_forgotten_up_to: 0,
        }
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// What is kept of a number: at its destination, or from before it was known where it goes.
    #[must_use]
    pub fn of(&self, (incarnation, destination): Key, sequence: u64) -> Refusal {
        let of = |key| self.get(key).map_or(Refusal::None, |ranges| ranges.of(sequence));
        let here = of((incarnation, destination));
        match of((incarnation, DestinationId::ANYWHERE)) {
            Refusal::Refused => Refusal::Refused,
            Refusal::Unknown if here == Refusal::None => Refusal::Unknown,
            Refusal::None if here == Refusal::None && incarnation <= self.anywhere_forgotten_up_to => Refusal::Unknown,
            _ => here,
        }
    }

    /// What is kept of a producer at a destination.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Ranges> {
        self.kept.get(&key).map(|kept| &kept.ranges)
    }

    /// Notes that a number was refused.
    pub fn note(&mut self, key: Key, sequence: u64) {
        let mut ranges = self.take(key);
        ranges.forget_before_window(sequence);
        ranges.insert(sequence);
        self.put(key, ranges);
    }

    /// Notes that these numbers were skipped: they count like refused ones.
    pub fn note_range(&mut self, key: Key, first: u64, last: u64) {
        let mut ranges = self.take(key);
        let mut skipped = Ranges::default();
        skipped.push(first, last);
        ranges.absorb(&skipped);
        self.put(key, ranges);
    }

    /// Notes that of numbers up to this one it cannot be told whether they were refused.
    pub fn doubt(&mut self, key: Key, sequence: u64) {
        let mut ranges = self.take(key);
        ranges.forget_up_to(sequence);
        self.put(key, ranges);
    }

    /// Takes out a number that has arrived after all.
    pub fn arrived(&mut self, key: Key, sequence: u64) {
        for key in [key, (key.0, DestinationId::ANYWHERE)] {
            if self
                .get(key)
                .is_some_and(|ranges| ranges.of(sequence) == Refusal::Refused)
            {
                let mut ranges = self.take(key);
                ranges.remove(sequence);
                self.put(key, ranges);
            }
        }
    }

    /// Takes what a record or a checkpoint says: all that counts at that point.
    pub fn set(&mut self, key: Key, ranges: Ranges) {
        self.take(key);
        self.put(key, ranges);
    }

    /// What a record of this number has to carry of what is kept.
    #[must_use]
    pub fn before(&self, key: Key, sequence: u64) -> Ranges {
        let mut ranges = self.get(key).cloned().unwrap_or_default();
        if let Some(anywhere) = self.get((key.0, DestinationId::ANYWHERE)) {
            ranges.absorb(anywhere);
        }
        if key.0 <= self.anywhere_forgotten_up_to {
            ranges.forget_up_to(sequence.saturating_add(WINDOW));
        }
        ranges.forget_before_window(sequence);
        ranges
    }

    fn take(&mut self, key: Key) -> Ranges {
        let Some(kept) = self.kept.remove(&key) else {
            return Ranges::default();
        };
        self.by_age.remove(&kept.stamp);
        self.ranges -= kept.ranges.0.len();
        kept.ranges
    }

    fn put(&mut self, key: Key, ranges: Ranges) {
        if ranges.is_empty() {
            return;
        }
        self.stamp += 1;
        self.ranges += ranges.0.len();
        self.by_age.insert(self.stamp, key);
        let stamp = self.stamp;
        self.kept.insert(key, Kept { stamp, ranges });
    }

    /// While there is too much: takes out whoever was noted longest ago, and says up to which number it then cannot be told.
    pub fn evict(&mut self) -> Option<(Key, u64)> {
        let fits = self.kept.len() <= self.producers_max && self.ranges <= self.producers_max * RANGES_EACH;
        if fits || self.kept.len() <= 1 {
            return None;
        }
        let key = self.by_age.first_key_value().map(|(_, key)| *key)?;
        let ranges = self.take(key);
        ranges.as_slice().last().map(|(_, last)| (key, *last))
    }

    /// Everything, the oldest first, for a checkpoint.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Ranges)> {
        self.by_age
            .values()
            .filter_map(|key| Some((*key, &self.kept.get(key)?.ranges)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (7, DestinationId(20));

    #[test]
    fn refused_numbers_merge_and_leave_when_they_arrive() {
        let mut refusals = Refusals::new(10);
        [4, 5, 9, 6]
            .into_iter()
            .for_each(|sequence| refusals.note(KEY, sequence));
        assert_eq!(refusals.before(KEY, 10).as_slice(), [(4, 6), (9, 9)]);
        let of = |refusals: &Refusals, sequence| refusals.of(KEY, sequence);
        assert_eq!(of(&refusals, 5), Refusal::Refused);
        assert_eq!(of(&refusals, 7), Refusal::None);
        assert_eq!(refusals.get((8, DestinationId(20))), None);
        refusals.arrived(KEY, 5);
        assert_eq!(refusals.before(KEY, 10).as_slice(), [(4, 4), (6, 6), (9, 9)]);
        [4, 6, 9]
            .into_iter()
            .for_each(|sequence| refusals.arrived(KEY, sequence));
        assert_eq!(refusals.iter().count(), 0);
        assert_eq!(refusals.ranges, 0);
    }

    #[test]
    fn what_is_too_ragged_or_too_old_to_keep_cannot_be_told_any_more() {
        let mut refusals = Refusals::new(1_000);
        (0..1_000).for_each(|step| refusals.note(KEY, 1 + 2 * step));
        let ranges = refusals.get(KEY).unwrap().clone();
        assert!(ranges.as_slice().len() <= RANGES_MAX);
        assert_eq!(ranges.of(1), Refusal::Unknown);
        assert_eq!(ranges.of(2), Refusal::Unknown, "it may have been refused");
        assert_eq!((ranges.of(1_999), ranges.of(1_998)), (Refusal::Refused, Refusal::None));
        refusals.note(KEY, 2_000 + WINDOW);
        assert_eq!(refusals.get(KEY).unwrap().of(1_999), Refusal::Unknown);
        assert_eq!(
            refusals.before(KEY, 3_000 + 2 * WINDOW).as_slice(),
            [(0, 2_000 + WINDOW)]
        );
    }

    #[test]
    fn numbers_that_arrive_out_of_a_long_range_leave_no_more_ranges_than_are_kept() {
        let mut refusals = Refusals::new(10_000);
        (1..=10_000).for_each(|sequence| refusals.note(KEY, sequence));
        for sequence in (1..=10_000).step_by(2) {
            refusals.arrived(KEY, sequence);
            let ranges = refusals.get(KEY).unwrap();
            assert!(ranges.as_slice().len() <= RANGES_MAX);
            assert_ne!(ranges.of(sequence), Refusal::Refused, "it arrived");
        }
        let ranges = refusals.get(KEY).unwrap();
        assert!(
            (2..=10_000)
                .step_by(2)
                .all(|sequence| ranges.of(sequence) != Refusal::None)
        );
    }

    #[test]
    fn the_table_is_bounded_by_producers_and_by_ranges_and_gives_out_the_oldest_one_by_one() {
        let mut refusals = Refusals::new(3);
        let key = |who: u64| (who, DestinationId(20));
        for who in 1..=3 {
            refusals.note(key(who), 5);
            assert_eq!(refusals.evict(), None);
        }
        refusals.note(key(1), 9);
        refusals.note(key(4), 5);
        assert_eq!(refusals.evict(), Some((key(2), 5)), "who was noted last stays");
        assert_eq!(refusals.evict(), None);
        (0..20).for_each(|step| refusals.note(key(5), 10 + 2 * step));
        let gone: Vec<_> = std::iter::from_fn(|| refusals.evict()).collect();
        assert_eq!(gone, [(key(3), 5), (key(1), 9), (key(4), 5)]);
        assert_eq!(refusals.iter().count(), 1);
    }

    #[test]
    fn ranges_say_of_each_number_what_a_set_of_them_says() {
        crate::sim::seeds::each_seed(60, |seed| {
            let mut random = crate::sim::Random::new(seed);
            let mut both = [Ranges::default(), Ranges::default()];
            let mut sets = [std::collections::BTreeSet::new(), std::collections::BTreeSet::new()];
            let mut unknown = [0, 0];
            for _ in 0..200 {
                let (which, number) = (random.below(2) as usize, 1 + random.below(40));
                match random.below(12) {
                    0..=5 => {
                        both[which].insert(number);
                        sets[which].insert(number);
                    }
                    6..=8 => {
                        both[which].remove(number);
                        sets[which].remove(&number);
                    }
                    9 => {
                        both[which].forget_up_to(number / 4);
                        unknown[which] = unknown[which].max(number / 4);
                    }
                    10 => {
                        let other = both[1 - which].clone();
                        both[which].absorb(&other);
                        let exact = both[which].exact();
                        assert!(exact.windows(2).all(|two| two[0].1 + 1 < two[1].0), "{exact:?}");
                        let others = sets[1 - which].clone();
                        sets[which].extend(others);
                        unknown[which] = unknown[which].max(unknown[1 - which]);
                    }
                    _ => {
                        let from = number.saturating_sub(20);
                        for (first, last) in both[which].exact() {
                            if *last < from {
                                sets[which].retain(|number| !(*first..=*last).contains(number));
                                unknown[which] = unknown[which].max(*last);
                            }
                        }
                        both[which].forget_before_window(from + WINDOW);
                    }
                }
                for number in 1..=45 {
                    let wanted = match (sets[which].contains(&number), number <= unknown[which]) {
                        (true, _) => Refusal::Refused,
                        (false, true) => Refusal::Unknown,
                        (false, false) => Refusal::None,
                    };
                    assert_eq!(both[which].of(number), wanted, "{number}: {:?}", both[which]);
                }
            }
        });
    }

    #[test]
    fn as_many_ranges_and_as_far_back_as_is_promised_are_exact() {
        let mut refusals = Refusals::new(10);
        for count in 0..RANGES_MAX as u64 {
            refusals.note(KEY, 1 + 2 * count);
        }
        let ranges = refusals.get(KEY).unwrap();
        assert_eq!((ranges.exact().len(), ranges.unknown_up_to()), (RANGES_MAX, 0));
        // The same ones, in another order.
        let mut other = ranges.clone();
        other.absorb(ranges);
        assert_eq!(&other, ranges);
        refusals.note(KEY, 2 * RANGES_MAX as u64 + 1);
        let ranges = refusals.get(KEY).unwrap();
        assert_eq!(
            ranges.unknown_up_to(),
            RANGES_MAX as u64 - 1,
            "half of them is forgotten"
        );
        assert_eq!(ranges.exact().len(), RANGES_MAX / 2 + 1);
        other.absorb(ranges);
        assert!(other.as_slice().len() <= RANGES_MAX);
        let mut far = Refusals::new(10);
        far.note(KEY, 7);
        assert_eq!(far.before(KEY, 7 + WINDOW).as_slice(), [(7, 7)]);
        assert_eq!(far.before(KEY, 8 + WINDOW).as_slice(), [(0, 7)]);
    }

    #[test]
    fn what_is_kept_from_before_it_was_known_where_a_number_goes_counts_everywhere() {
        let anywhere = (KEY.0, DestinationId::ANYWHERE);
        let mut refusals = Refusals::new(10);
        refusals.note(anywhere, 5);
        assert_eq!(refusals.of(KEY, 5), Refusal::Refused);
        assert_eq!(refusals.of(KEY, 4), Refusal::None);
        refusals.note(KEY, 3);
        refusals.doubt(anywhere, 4);
        assert_eq!(refusals.of(KEY, 3), Refusal::Refused, "of this one it can be told");
        assert_eq!(refusals.of(KEY, 4), Refusal::Unknown);
        refusals.anywhere_forgotten_up_to = 8;
        assert_eq!(refusals.of((8, KEY.1), 1), Refusal::Unknown);
        assert_eq!(refusals.of((9, KEY.1), 1), Refusal::None);
        refusals.note((8, KEY.1), 2);
        assert_eq!(refusals.of((8, KEY.1), 2), Refusal::Refused);
    }

    #[test]
    fn as_many_producers_as_there_may_be_have_as_many_ranges_as_they_may_on_average() {
        let mut refusals = Refusals::new(10);
        for who in 1..=10 {
            for step in 0..RANGES_EACH as u64 {
                refusals.note((who, DestinationId(20)), 1 + 2 * step);
            }
        }
        assert_eq!(refusals.evict(), None);
        refusals.note((10, DestinationId(20)), 99);
        assert_eq!(refusals.evict(), Some(((1, DestinationId(20)), 7)));
    }
}
