//! Values filed under patterns, found by the names the patterns match.
//!
//! Used for topic subscriptions, bridges, import and export lists. A lookup walks the elements of the name and follows at
//! most three branches a step (the literal, `*`, `>`), so its cost depends on the patterns that resemble the name and
//! not on how many others there are.

use std::fmt;

use rustc_hash::FxHashMap;

use super::pattern::Pattern;

/// A map from patterns to any number of values each.
pub struct Trie<T> {
    root: Node<T>,
    count: usize,
}

struct Node<T> {
    literals: FxHashMap<Box<str>, Node<T>>,
    // Behind a `*`.
    any: Option<Box<Node<T>>>,
    // Of patterns that end here.
    values: Vec<T>,
    // Of patterns that go on with `>` and end.
    tail_values: Vec<T>,
}

impl<T> Default for Node<T> {
    fn default() -> Self {
        Self {
            literals: FxHashMap::default(),
            any: None,
            values: Vec::new(),
            tail_values: Vec::new(),
        }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self {
            root: Node::default(),
            count: 0,
        }
    }
}

impl<T> Trie<T> {
    /// An empty trie.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Files `value` under `pattern`, beside what is there already, equal values too.
    pub fn insert(&mut self, pattern: &Pattern, value: T) {
        let mut node = &mut self.root;
        self.count += 1;
        for element in pattern.elements() {
            match element {
                ">" => {
                    node.tail_values.push(value);
                    return;
                }
                "*" => node = node.any.get_or_insert_default(),
                literal => {
                    // Looking first spares the allocation of the key where it exists.
                    if !node.literals.contains_key(literal) {
                        node.literals.insert(literal.into(), Node::default());
                    }
                    let Some(next) = node.literals.get_mut(literal) else {
                        return;
                    };
                    node = next;
                }
            }
        }
        node.values.push(value);
    }

    /// Removes the first value under exactly `pattern` that `wanted` accepts, and returns it.
    pub fn remove(&mut self, pattern: &Pattern, wanted: impl FnMut(&T) -> bool) -> Option<T> {
        let removed = self.root.remove(pattern.as_str(), wanted);
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// Visits every value whose pattern matches `name`, once each, in an order that depends only on the calls made.
    pub fn matches<'t>(&'t self, name: &str, mut visit: impl FnMut(&'t T)) {
        self.root.visit(Some(name), &mut visit);
    }

    /// Whether any pattern matches `name`.
    #[must_use]
    pub fn has_match(&self, name: &str) -> bool {
        let mut found = false;
        self.matches(name, |_| found = true);
        found
    }
}

/// The first element of what is left of a name, and what is left after it.
fn split_first(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once('.') {
        Some((element, rest)) => (element, Some(rest)),
        None => (rest, None),
    }
}

impl<T> Node<T> {
    fn is_empty(&self) -> bool {
        self.literals.is_empty() && self.any.is_none() && self.values.is_empty() && self.tail_values.is_empty()
    }

    // Recursion goes no deeper than a pattern has elements, at most 64; a longer name finds no node to go on with.
    fn visit<'t>(&'t self, rest: Option<&str>, visit: &mut impl FnMut(&'t T)) {
        let Some(rest) = rest else {
            self.values.iter().for_each(visit);
            return;
        };
        self.tail_values.iter().for_each(&mut *visit);
        let (element, rest) = split_first(rest);
        if let Some(node) = self.literals.get(element) {
            node.visit(rest, visit);
        }
        if let Some(node) = &self.any {
            node.visit(rest, visit);
        }
    }

    fn remove(&mut self, rest: &str, wanted: impl FnMut(&T) -> bool) -> Option<T> {
        let (element, rest) = split_first(rest);
        if element == ">" {
            return take(&mut self.tail_values, wanted);
        }
        let node = if element == "*" {
            self.any.as_deref_mut()?
        } else {
            self.literals.get_mut(element)?
        };
        let removed = match rest {
            None => take(&mut node.values, wanted),
            Some(rest) => node.remove(rest, wanted),
        };
        // Nodes that lead nowhere go, or names that came and went would stay as memory.
        if node.is_empty() {
            if element == "*" {
                self.any = None;
            } else {
                self.literals.remove(element);
            }
        }
        removed
    }
}

fn take<T>(values: &mut Vec<T>, wanted: impl FnMut(&T) -> bool) -> Option<T> {
    let index = values.iter().position(wanted)?;
    Some(values.remove(index))
}

impl<T: fmt::Debug> fmt::Debug for Trie<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Trie")
            .field("len", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    fn found(trie: &Trie<usize>, name: &str) -> Vec<usize> {
        let mut values = Vec::new();
        trie.matches(name, |&value| values.push(value));
        values.sort_unstable();
        values
    }

    // covers: EMS-DEST-A42
    #[test]
    fn a_name_finds_the_values_of_all_its_patterns() {
        let mut trie = Trie::new();
        for (value, text) in [">", "foo.>", "foo.*", "foo.*.bar", "*.bar", "foo.bar", "foo"]
            .into_iter()
            .enumerate()
        {
            trie.insert(&pattern(text), value);
        }
        assert_eq!(found(&trie, "foo"), [0, 6]);
        assert_eq!(found(&trie, "foo.bar"), [0, 1, 2, 4, 5]);
        assert_eq!(found(&trie, "foo.x.bar"), [0, 1, 3]);
        assert_eq!(found(&trie, "other"), [0]);
        assert!(trie.has_match("x") && trie.len() == 7);
    }

    #[test]
    fn what_is_removed_leaves_no_nodes_behind() {
        let mut trie = Trie::new();
        for text in ["a.b.c", "a.*.>", "a.b", "a.b"] {
            trie.insert(&pattern(text), text.len());
        }
        assert_eq!(trie.remove(&pattern("a.b.x"), |_| true), None);
        assert_eq!(trie.remove(&pattern("a.b"), |&value| value == 99), None);
        for text in ["a.b", "a.b.c", "a.*.>", "a.b"] {
            assert_eq!(trie.remove(&pattern(text), |_| true), Some(text.len()), "{text}");
        }
        assert!(trie.is_empty() && trie.root.is_empty());
    }

    #[test]
    fn many_other_patterns_do_not_make_a_lookup_visit_more() {
        let mut trie = Trie::new();
        for index in 0..10_000 {
            trie.insert(&pattern(&format!("other.{index}.>")), index);
        }
        trie.insert(&pattern("mine.*"), 1);
        let mut visits = 0;
        trie.matches("mine.x", |_| visits += 1);
        assert_eq!(visits, 1);
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn agrees_with_matching_every_pattern_by_itself(
            patterns in proptest::collection::vec("((a|b|c|[*])[.]){0,3}(a|b|c|[*]|>)", 0..30),
            removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
            name in "((a|b|c|d)[.]){0,4}(a|b|c|d)",
        ) {
            let mut trie = Trie::new();
            let mut all: Vec<(Pattern, usize)> = patterns.iter().map(|text| pattern(text)).zip(0..).collect();
            for (pattern, value) in &all {
                trie.insert(pattern, *value);
            }
            for index in removed {
                if !all.is_empty() {
                    let (pattern, value) = all.remove(index.index(all.len()));
                    prop_assert_eq!(trie.remove(&pattern, |&found| found == value), Some(value));
                }
            }
            let naive: Vec<usize> = all.iter().filter(|(p, _)| p.matches(&name)).map(|(_, value)| *value).collect();
            prop_assert_eq!(found(&trie, &name), naive);
            prop_assert_eq!(trie.len(), all.len());
        }
    }
}
