//! Patterns: names in which `*` stands for exactly one element and a last `>` for one or more.

use std::fmt;
use std::sync::Arc;

use super::elements::check;
use super::error::NameError;

/// The pattern whose entry holds the settings of all temporary destinations (EMS-DEST-A39). It is no wildcard like the
/// others: it matches no name that users can use, and inherits from no other pattern.
pub const TEMPORARY_SETTINGS: &str = "TMP.>";

/// A checked pattern. A name without wildcards is a pattern, too, and matches itself alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Takes a name or a pattern; the limits are those of names.
    ///
    /// # Errors
    /// A [`NameError`] that says which element is wrong and why.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        check(text)?;
        Ok(Self(text.into()))
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it matches more than one name.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.elements().any(|element| matches!(element, "*" | ">"))
    }

    /// Whether this is [`TEMPORARY_SETTINGS`].
    #[must_use]
    pub fn is_temporary_settings(&self) -> bool {
        &*self.0 == TEMPORARY_SETTINGS
    }

    /// The elements, wildcards as they are written.
    pub fn elements(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether `name` (without wildcards) is one of the names this pattern stands for.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut names = name.split('.');
        for element in self.elements() {
            match (element, names.next()) {
                (_, None) => return false,
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (literal, Some(found)) if literal == found => {}
                _ => return false,
            }
        }
        names.next().is_none()
    }

    /// Whether every name that `other` matches is matched by this pattern, too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let mut others = other.elements();
        for element in self.elements() {
            match (element, others.next()) {
                (_, None) => return false,
                (">", Some(_)) => return true,
                // A tail on the other side stands for names longer than any one element here.
                (_, Some(">")) => return false,
                ("*", Some(_)) => {}
                (literal, Some(found)) if literal == found => {}
                _ => return false,
            }
        }
        others.next().is_none()
    }

    /// Whether some name is matched by both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.elements(), other.elements());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (None, _) | (_, None) => return false,
                (Some(">"), _) | (_, Some(">")) => return true,
                (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
                _ => return false,
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<super::DestinationName> for Pattern {
    fn from(name: super::DestinationName) -> Self {
        Self(name.as_str().into())
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

    // covers: EMS-DEST-A42, EMS-DEST-A09
    #[test]
    fn wildcards_match_whole_elements() {
        let cases = [
            (">", "foo", true),
            (">", "foo.a.b", true),
            ("foo.>", "foo.bar", true),
            ("foo.>", "foo.a.b", true),
            ("foo.>", "foo", false),
            ("foo.>", "food.a", false),
            ("foo.*", "foo.bar", true),
            ("foo.*", "foo.a.b", false),
            ("foo.*", "foo", false),
            ("foo.*.bar", "foo.x.bar", true),
            ("foo.*.bar", "foo.bar", false),
            ("foo.*.bar", "foo.x.y.bar", false),
            ("*.bar", "foo.bar", true),
            ("*.*", "foo", false),
            ("*.>", "foo", false),
            ("*.>", "foo.a.b.c", true),
            ("foo.bar", "foo.bar", true),
            ("foo.bar", "foo.bar.x", false),
            ("foo.bar", "FOO.bar", false),
        ];
        for (text, name, expected) in cases {
            assert_eq!(pattern(text).matches(name), expected, "{text} on {name}");
        }
    }

    // covers: EMS-DEST-A09
    #[test]
    fn wildcards_stand_alone_and_the_tail_stands_last() {
        assert!(matches!(
            Pattern::parse("a.>.b"),
            Err(NameError::TailNotLast { element: 2, .. })
        ));
        assert!(matches!(
            Pattern::parse("a.b*"),
            Err(NameError::WildcardInElement {
                element: 2,
                wildcard: '*',
                ..
            })
        ));
        assert!(matches!(
            Pattern::parse(">>"),
            Err(NameError::WildcardInElement { element: 1, .. })
        ));
        assert!(matches!(
            Pattern::parse("a..>"),
            Err(NameError::EmptyElement { element: 2, .. })
        ));
        assert!(pattern("*.*.>").has_wildcard() && !pattern("a.b").has_wildcard());
        assert!(pattern("TMP.>").is_temporary_settings() && !pattern("TMP.*").is_temporary_settings());
    }

    #[test]
    fn covering_is_a_subset_and_overlap_is_symmetric() {
        let cases = [
            ("foo.>", "foo.*", true, true),
            ("foo.*", "foo.>", false, true),
            ("*.>", ">", false, true),
            (">", "*.a", true, true),
            ("a.*", "*.b", false, true),
            ("a.b", "a.*", false, true),
            ("a.*", "b.*", false, false),
            ("a.*", "a", false, false),
            ("a.>", "a", false, false),
            ("a.*.c", "a.>", false, true),
        ];
        for (a, b, covers, overlaps) in cases {
            assert_eq!(pattern(a).covers(&pattern(b)), covers, "{a} covers {b}");
            assert_eq!(pattern(a).overlaps(&pattern(b)), overlaps, "{a} overlaps {b}");
            assert_eq!(pattern(b).overlaps(&pattern(a)), overlaps, "{b} overlaps {a}");
        }
    }

    /// All names of up to four elements over an alphabet with a letter that no pattern below uses: enough to tell any
    /// two patterns of up to three elements apart.
    fn names() -> Vec<String> {
        let mut all: Vec<String> = vec![];
        let mut longest: Vec<String> = ["a", "b", "z"].map(str::to_owned).to_vec();
        for _ in 0..4 {
            all.extend(longest.iter().cloned());
            longest = longest
                .iter()
                .flat_map(|name| ["a", "b", "z"].map(|last| format!("{name}.{last}")))
                .collect();
        }
        all
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn covers_and_overlaps_agree_with_the_names_that_match(
            a in "(a|b|[*])([.](a|b|[*])){0,2}([.]>)?",
            b in "((a|b|[*])[.]){0,2}(a|b|[*]|>)",
        ) {
            let (a, b) = (pattern(&a), pattern(&b));
            let names = names();
            prop_assert_eq!(a.covers(&b), names.iter().all(|name| !b.matches(name) || a.matches(name)));
            prop_assert_eq!(a.overlaps(&b), names.iter().any(|name| a.matches(name) && b.matches(name)));
        }
    }
}
