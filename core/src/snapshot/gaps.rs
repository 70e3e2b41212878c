//! Records that no event tells of, as stretches of the log with the reason.

use crate::log::Position;

/// Gaps that are told one by one; of more the two that lie closest are one.
pub const GAPS_MAX: usize = 100;

/// Records that no event tells of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Where they begin.
    pub from: Position,
    /// Where they end.
    pub to: Position,
    /// Why.
    pub why: String,
}

/// Gaps in order, apart from each other.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    /// Adds one where none is yet, joined with what it adjoins for the same reason. Says what became a gap only because
    /// there are too many: whatever tells of that has to go.
    pub fn add(&mut self, gap: Gap) -> Option<(Position, Position)> {
        if gap.from >= gap.to {
            return None;
        }
        let at = self.0.partition_point(|other| other.from < gap.from);
        self.0.insert(at, gap);
        // First with the one behind it, so that the place of the one before stays.
        for first in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            if let [one, next, ..] = &self.0[first..]
                && (one.to, &one.why) == (next.from, &next.why)
            {
                self.join(first);
            }
        }
        if self.0.len() <= GAPS_MAX {
            return None;
        }
        let apart = |pair: &[Gap]| pair[1].from.0.saturating_sub(pair[0].to.0);
        let (first, _) = self.0.windows(2).enumerate().min_by_key(|(_, pair)| apart(pair))?;
        let between = (self.0[first].to, self.0[first + 1].from);
        self.join(first);
        Some(between).filter(|(from, to)| from < to)
    }

    /// Makes one of the gap at this place and the next.
    fn join(&mut self, first: usize) {
        let next = self.0.remove(first + 1);
        self.0[first].to = next.to;
    }

    /// Of each what lies between two positions.
    pub fn within(&self, from: Position, to: Position) -> Vec<Gap> {
        let part = |gap: &Gap| Gap {
            from: gap.from.max(from),
            to: gap.to.min(to),
            why: gap.why.clone(),
        };
        self.0.iter().map(part).filter(|gap| gap.from < gap.to).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets what lies below a position.
    pub fn forget_below(&mut self, position: Position) {
        self.0.retain(|gap| gap.to > position);
        for gap in &mut self.0 {
            gap.from = gap.from.max(position);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from: u64, to: u64, why: &str) -> Gap {
        Gap {
            from: Position(from),
            to: Position(to),
            why: why.to_owned(),
        }
    }

    fn of(all: &[(u64, u64, &str)]) -> Gaps {
        let mut gaps = Gaps::default();
        for (from, to, why) in all {
            assert_eq!(gaps.add(gap(*from, *to, why)), None);
        }
        gaps
    }

    #[test]
    fn what_adjoins_for_one_reason_is_one_whatever_came_first() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let parts = [(0, 10, "a"), (10, 20, "a"), (20, 30, "a")];
            assert_eq!(of(&order.map(|index| parts[index])).0, [gap(0, 30, "a")], "{order:?}");
            let parts = [(0, 10, "a"), (10, 20, "b"), (21, 30, "b")];
            assert_eq!(
                of(&order.map(|index| parts[index])).0,
                parts.map(|(from, to, why)| gap(from, to, why)),
                "{order:?}"
            );
        }
        assert_eq!(of(&[(5, 5, "a")]).0, [], "nothing is no gap");
    }

    #[test]
    fn a_gap_is_divided_at_any_position() {
        let mut gaps = of(&[(0, 10, "a"), (20, 40, "b")]);
        assert_eq!(
            gaps.within(Position(5), Position(30)),
            [gap(5, 10, "a"), gap(20, 30, "b")]
        );
        assert_eq!(gaps.within(Position(10), Position(20)), []);
        gaps.forget_below(Position(30));
        assert_eq!(gaps.0, [gap(30, 40, "b")]);
        gaps.forget_below(Position(40));
        assert_eq!(gaps.0, []);
    }

    #[test]
    fn of_too_many_the_two_that_lie_closest_become_one_and_what_lay_between_goes() {
        let mut gaps = Gaps::default();
        for index in 0..GAPS_MAX as u64 {
            let from = index * 100;
            let length = if index == 7 { 60 } else { 50 };
            assert_eq!(gaps.add(gap(from, from + length, "a")), None);
        }
        let more = gap(1_000_000, 1_000_010, "b");
        assert_eq!(gaps.add(more.clone()), Some((Position(760), Position(800))));
        assert_eq!((gaps.0.len(), gaps.0.last()), (GAPS_MAX, Some(&more)));
        assert!(gaps.0.contains(&gap(700, 850, "a")));
        // Two that adjoin for different reasons are closer still, and nothing lies between them.
        assert_eq!(gaps.add(gap(1_000_010, 1_000_020, "c")), None);
        assert!(gaps.0.contains(&gap(1_000_000, 1_000_020, "b")));
    }
}
