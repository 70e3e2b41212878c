//! Patterns of LIKE, compiled: `%` stands for any run of characters, `_` for exactly one.

/// The longest stretch with `_` between two `%`, in characters: bounds what one search for it can cost.
const MIXED_CHARACTERS_MAX: usize = 1_024;

/// A compiled pattern: the stretches between its `%`s. With one stretch there is no `%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Like {
    stretches: Vec<Stretch>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stretch {
    Text(Box<str>),
    // `None` is any one character.
    Mixed(Box<[Option<char>]>),
}

impl Like {
    /// Compiles `pattern`; the error is the message for it.
    pub(super) fn compile(pattern: &str, escape: Option<char>) -> Result<Self, String> {
        let mut stretches = Vec::new();
        let mut current = Vec::new();
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            if Some(character) == escape {
                let escaped = characters
                    .next()
                    .filter(|next| matches!(next, '%' | '_') || Some(*next) == escape);
                let Some(escaped) = escaped else {
                    return Err(format!(
                        "in this pattern, {character:?} must be followed by %, _ or itself"
                    ));
                };
                current.push(Some(escaped));
            } else if character == '%' {
                stretches.push(Stretch::new(std::mem::take(&mut current))?);
            } else {
                current.push(Some(character).filter(|&character| character != '_'));
            }
        }
        stretches.push(Stretch::new(current)?);
        Ok(Self { stretches })
    }

    /// Whether the whole of `text` has the pattern's form.
    pub(super) fn matches(&self, text: &str) -> bool {
        let [first, others @ ..] = &*self.stretches else {
            return false;
        };
        let Some(mut rest) = first.strip_start(text) else {
            return false;
        };
        let [middle @ .., last] = others else {
            return rest.is_empty();
        };
        // The leftmost place is always a right one for a stretch that is followed by a `%`.
        for stretch in middle {
            match stretch.find_and_skip(rest) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        last.ends(rest)
    }
}

impl Stretch {
    fn new(items: Vec<Option<char>>) -> Result<Self, String> {
        if let Some(text) = items.iter().copied().collect::<Option<String>>() {
            return Ok(Self::Text(text.into()));
        }
        if items.len() > MIXED_CHARACTERS_MAX {
            return Err(format!(
                "this pattern has more than {MIXED_CHARACTERS_MAX} characters around a _"
            ));
        }
        Ok(Self::Mixed(items.into()))
    }

    /// What follows the stretch at the beginning of `text`, if it is there.
    fn strip_start<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Text(wanted) => text.strip_prefix(&**wanted),
            Self::Mixed(items) => {
                let mut characters = text.chars();
                for item in items {
                    let character = characters.next()?;
                    if item.is_some_and(|wanted| wanted != character) {
                        return None;
                    }
                }
                Some(characters.as_str())
            }
        }
    }

    /// What follows the leftmost place of the stretch in `text`.
    fn find_and_skip<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Text(wanted) => text.find(&**wanted).map(|index| &text[index + wanted.len()..]),
            Self::Mixed(_) => text
                .char_indices()
                .find_map(|(index, _)| self.strip_start(&text[index..])),
        }
    }

    /// Whether `text` ends with the stretch.
    fn ends(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => text.ends_with(&**wanted),
            Self::Mixed(items) => {
                // A mixed stretch has at least one item.
                let start = text.char_indices().rev().nth(items.len() - 1);
                start.is_some_and(|(index, _)| self.strip_start(&text[index..]).is_some())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    /// LIKE as a definition would have it, without any cleverness.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|skipped| naive(rest, &text[skipped..])),
            [first, rest @ ..] => !text.is_empty() && (*first == '_' || *first == text[0]) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn agrees_with_the_naive_matcher(pattern in "[aé%_]{0,8}", text in "[aéb]{0,10}") {
            let like = Like::compile(&pattern, None).unwrap();
            let characters: (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(like.matches(&text), naive(&characters.0, &characters.1));
        }
    }
}
