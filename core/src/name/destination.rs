//! The name of one destination.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::elements::{check, excerpt};
use super::error::NameError;
use super::pattern::TEMPORARY_SETTINGS;

/// What names of the broker's own destinations begin with (`$sys.undelivered`).
pub const SYSTEM_PREFIX: &str = "$sys.";

/// What names of temporary destinations begin with; the broker makes up the rest.
pub const TEMPORARY_PREFIX: &str = "$TMP$.";

/// The checked name of one queue or topic: no wildcards, within the limits. Cheap to clone.
///
/// ```
/// use sterna_core::name::DestinationName;
/// assert!(DestinationName::parse("flights.JFK.UA").is_ok());
/// assert!(DestinationName::parse("flights..UA").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DestinationName(Arc<str>);

impl DestinationName {
    /// Takes any well-formed name, the broker's own (`$sys.`, `$TMP$.`) included: for names of things that exist.
    ///
    /// # Errors
    /// A [`NameError`] that says which element is wrong and why.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        Self::check(name)?;
        Ok(Self(name.into()))
    }

    /// As [`DestinationName::parse`], and refuses what users may not choose: names that begin with `$`, and names
    /// under `TMP.`. For names of things to be created.
    ///
    /// # Errors
    /// A [`NameError`] that says which element is wrong and why.
    pub fn parse_chosen(name: &str) -> Result<Self, NameError> {
        let parsed = Self::parse(name)?;
        if name.starts_with('$') {
            return Err(NameError::Reserved { name: excerpt(name) });
        }
        if parsed.is_temporary_settings() {
            return Err(NameError::TemporarySettings { name: excerpt(name) });
        }
        Ok(parsed)
    }

    /// A system destination that belongs to another one, such as `$sys.delayed.q.` and a queue's name. The result may
    /// be longer than a name a user may choose, since the limits were applied to `name` already.
    #[must_use]
    pub fn derived(system_prefix: &str, name: &Self) -> Self {
        Self(format!("{system_prefix}{name}").into())
    }

    /// Whether [`DestinationName::parse`] would take `name`, without making anything.
    ///
    /// # Errors
    /// A [`NameError`] that says which element is wrong and why.
    pub fn check(name: &str) -> Result<(), NameError> {
        check(name)?;
        for (index, element) in name.split('.').enumerate() {
            // `check` has made sure that a wildcard is a whole element.
            if let Some(wildcard) = element.chars().next().filter(|first| matches!(first, '*' | '>')) {
                return Err(NameError::Wildcard {
                    name: excerpt(name),
                    element: index + 1,
                    wildcard,
                });
            }
        }
        Ok(())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is one of the broker's own destinations.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.0.starts_with(SYSTEM_PREFIX)
    }

    /// Whether this is a temporary destination.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.0.starts_with(TEMPORARY_PREFIX)
    }

    /// Whether the name lies under `TMP.`, where only settings for temporary destinations live (EMS-DEST-A40).
    #[must_use]
    pub fn is_temporary_settings(&self) -> bool {
        TEMPORARY_SETTINGS
            .strip_suffix('>')
            .is_some_and(|prefix| self.0.starts_with(prefix))
    }
}

impl fmt::Display for DestinationName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl AsRef<str> for DestinationName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

// Maps keyed by names can be asked with a `&str` from a frame.
impl Borrow<str> for DestinationName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{ELEMENTS_MAX, NAME_CHARACTERS_MAX, characters_max};

    /// `elements` elements of nearly equal length that make `characters` characters together, dots included.
    fn name_of(elements: usize, characters: usize) -> String {
        let letters = characters - (elements - 1);
        let lengths = (0..elements).map(|index| letters / elements + usize::from(index < letters % elements));
        lengths.map(|length| "x".repeat(length)).collect::<Vec<_>>().join(".")
    }

    // covers: EMS-DEST-A07
    #[test]
    fn elements_are_separated_by_dots_and_never_empty() {
        for name in ["finance", "A.B_C.D", "a b", "a\tb.c", r"a\.b", "\u{1}", "straße.日本"] {
            assert_eq!(DestinationName::parse(name).unwrap().as_str(), name);
        }
        assert_eq!(DestinationName::parse(""), Err(NameError::Empty));
        for (name, element) in [
            ("A..B", 2),
            ("A.", 2),
            (".A", 1),
            (".A.B..", 1),
            (".", 1),
            (r"a\..b", 2),
        ] {
            let expected = NameError::EmptyElement {
                name: name.to_owned(),
                element,
            };
            assert_eq!(DestinationName::parse(name), Err(expected), "{name}");
        }
    }

    // covers: EMS-DEST-A08
    #[test]
    fn lengths_are_limited_and_more_elements_leave_less_room() {
        assert!(DestinationName::parse(&name_of(2, 100)).is_ok());
        assert!(DestinationName::parse(&name_of(64, 196)).is_ok());
        assert!(matches!(
            DestinationName::parse(&name_of(64, 197)),
            Err(NameError::TooLong {
                elements: 64,
                characters: 197,
                limit: 196,
                ..
            })
        ));
        for elements in 2..=ELEMENTS_MAX {
            let error = DestinationName::parse(&name_of(elements, 250)).unwrap_err();
            assert!(
                matches!(error, NameError::TooLong { characters: 250, .. }),
                "{elements}: {error}"
            );
        }
        let error = DestinationName::parse(&name_of(65, 129)).unwrap_err();
        assert!(matches!(
            error,
            NameError::TooManyElements {
                elements: 65,
                limit: 64,
                ..
            }
        ));
    }

    // covers: EMS-DEST-A08
    #[test]
    fn an_element_has_at_most_127_characters_whatever_their_bytes() {
        assert!(DestinationName::parse(&"é".repeat(127)).is_ok());
        assert!(DestinationName::parse(&format!("{}.{}", "x".repeat(100), "é".repeat(127))).is_ok());
        let error = DestinationName::parse(&format!("a.{}", "x".repeat(128))).unwrap_err();
        assert!(matches!(
            error,
            NameError::ElementTooLong {
                element: 2,
                characters: 128,
                limit: 127,
                ..
            }
        ));
    }

    #[test]
    fn the_reserve_grows_with_the_elements() {
        assert_eq!(
            (characters_max(1), characters_max(2), characters_max(64)),
            (248, 247, 196)
        );
        assert!((1..ELEMENTS_MAX).all(|elements| characters_max(elements) >= characters_max(elements + 1)));
        assert!(characters_max(1) < NAME_CHARACTERS_MAX);
    }

    // covers: EMS-DEST-A09
    #[test]
    fn the_name_of_one_destination_has_no_wildcards() {
        for (name, element, wildcard) in [("*", 1, '*'), (">", 1, '>'), ("a.*.b", 2, '*'), ("a.b.>", 3, '>')] {
            let expected = NameError::Wildcard {
                name: name.to_owned(),
                element,
                wildcard,
            };
            assert_eq!(DestinationName::parse(name), Err(expected));
        }
        assert!(matches!(
            DestinationName::parse("x.a>b"),
            Err(NameError::WildcardInElement {
                element: 2,
                wildcard: '>',
                ..
            })
        ));
    }

    #[test]
    fn users_do_not_choose_names_of_the_broker() {
        assert!(DestinationName::parse_chosen("sys.a").is_ok());
        for name in ["$sys.undelivered", "$TMP$.b.1", "$x"] {
            assert!(DestinationName::parse(name).is_ok());
            assert!(matches!(
                DestinationName::parse_chosen(name),
                Err(NameError::Reserved { .. })
            ));
        }
        assert!(matches!(
            DestinationName::parse_chosen("TMP.a"),
            Err(NameError::TemporarySettings { .. })
        ));
        assert!(DestinationName::parse("$sys.undelivered").unwrap().is_system());
        assert!(DestinationName::parse("$TMP$.b.1").unwrap().is_temporary());
        assert!(DestinationName::parse_chosen("TMPX.a").is_ok());
    }

    #[test]
    fn a_derived_name_may_be_longer_than_a_chosen_one() {
        let name = DestinationName::parse(&name_of(64, 196)).unwrap();
        let derived = DestinationName::derived("$sys.delayed.q.", &name);
        assert_eq!(derived.as_str(), format!("$sys.delayed.q.{name}"));
        assert!(derived.is_system());
    }

    #[test]
    fn an_error_repeats_only_the_beginning_of_a_long_name() {
        let error = DestinationName::parse(&"x".repeat(1_000_000)).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
