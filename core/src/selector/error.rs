//! Why a text is no selector, with the place.

use std::fmt;

/// How much of a long line is shown on either side of the place, in characters.
const CONTEXT_CHARACTERS: usize = 60;

/// A text that is no selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectorError {
    message: String,
    offset: usize,
    excerpt: String,
    caret: usize,
}

impl SelectorError {
    /// An error at `byte` of `text`; a place inside a character counts as its beginning.
    pub(super) fn new(text: &str, byte: usize, message: impl Into<String>) -> Self {
        let mut byte = byte.min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        let (before, after) = text.split_at(byte);
        let is_break = |character| matches!(character, '\n' | '\r');
        let mut start: String = before
            .chars()
            .rev()
            .take_while(|&character| !is_break(character))
            .take(CONTEXT_CHARACTERS)
            .collect();
        start = start.chars().rev().collect();
        let end = after
            .chars()
            .take_while(|&character| !is_break(character))
            .take(CONTEXT_CHARACTERS);
        let caret = start.chars().count();
        let excerpt = start
            .chars()
            .chain(end)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Self {
            message: message.into(),
            offset: before.chars().count(),
            excerpt,
            caret,
        }
    }

    /// The place: characters from the beginning of the text, counted from 0.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// What is wrong and what was expected, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line around the place, a caret under the character, and the message: three lines for a terminal.
    #[must_use]
    pub fn render(&self) -> String {
        format!("{}\n{}^\n{}", self.excerpt, " ".repeat(self.caret), self.message)
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (at character {})", self.message, self.offset + 1)
    }
}

impl std::error::Error for SelectorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_character() {
        let error = SelectorError::new("größe = 1\nAND\tx ! 2", 18, "no such operator");
        assert_eq!(error.offset(), 16);
        assert_eq!(error.render(), "AND x ! 2\n      ^\nno such operator");
        assert_eq!(error.to_string(), "no such operator (at character 17)");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}?{}", "a".repeat(10_000), "b".repeat(10_000));
        let error = SelectorError::new(&text, 10_000, "bad");
        assert_eq!(error.offset(), 10_000);
        assert_eq!(
            error.render(),
            format!("{}?{}\n{}^\nbad", "a".repeat(60), "b".repeat(59), " ".repeat(60))
        );
    }
}
