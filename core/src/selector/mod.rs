//! Selectors: conditions over a message's header fields and properties, in the SQL-92 subset of JMS.
//!
//! Used by consumers, durable subscriptions, bridges, browsers and audits. A text is parsed once ([`Selector::parse`]),
//! which refuses whatever can be seen to make no sense and points at the character; evaluating the result against a
//! message is a loop over a flat program and allocates nothing for ordinary selectors.
//!
//! Neither parsing nor evaluating recurses, so no text, however deeply nested, can exhaust the stack of the broker. The
//! stages are lexer (text to tokens), parser (tokens to program), program, evaluation; `like` holds compiled
//! patterns, `value` Java's arithmetic and comparison.
//!
//! Choices where the rules leave room:
//! - Whole numbers written in a selector are Java `long`s. Properties keep their own width, so `int` arithmetic between
//!   two `int` properties wraps at 32 bits, as in Java.
//! - A comparison of types that do not compare is FALSE, and so are LIKE, NOT LIKE, IN and NOT IN on something that is
//!   no string, and BETWEEN and NOT BETWEEN on something that is no number. NULL makes all of these UNKNOWN.
//! - Ordering strings or booleans is refused where the text shows it, and FALSE where only the message shows it.
//! - An integer division by zero ends the evaluation: the message does not match, whatever stands around it.
//! - `JMSXDeliveryCount` is a property like others; the broker supplies it.

mod builder;
mod error;
mod eval;
mod identifier;
mod lexer;
mod like;
mod parser;
mod predicate;
mod program;
#[cfg(test)]
mod tests;
mod value;

pub use error::SelectorError;
pub use identifier::{HeaderField, Scope};
pub use parser::{LITERALS_MAX, NESTING_MAX, TEXT_BYTES_MAX};
pub use value::Value;

use program::Program;

/// What a selector is evaluated against.
pub trait Fields {
    /// The value of a header field, `None` when the message has none.
    fn header(&self, field: HeaderField) -> Option<Value<'_>>;

    /// The value of the property called `name`, `None` when the message has none.
    fn property(&self, name: &str) -> Option<Value<'_>>;
}

/// How an evaluation ended. Only [`Verdict::True`] selects the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// NULL leaves it open.
    Unknown,
    /// An integer was divided by zero.
    Failed,
}

/// A parsed selector. Two selectors are equal when they differ in white space and the case of keywords at most.
#[derive(Debug, Clone)]
pub struct Selector {
    text: Box<str>,
    normal: Box<str>,
    program: Program,
}

impl Selector {
    /// Parses a selector that may stand anywhere: `JMSDestination` is refused.
    ///
    /// ```
    /// use sterna_core::selector::Selector;
    /// assert!(Selector::parse("delay > 60 AND carrier IN ('UA', 'DL')").is_ok());
    /// let error = Selector::parse("delay >> 60").unwrap_err();
    /// assert_eq!(error.offset(), 7);
    /// ```
    ///
    /// # Errors
    /// A [`SelectorError`] that points at the character. An empty text is one, too: see [`Selector::parse_optional`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Self::parse_in(text, Scope::Ordinary)
    }

    /// Parses a selector for the given place.
    ///
    /// # Errors
    /// A [`SelectorError`] that points at the character.
    pub fn parse_in(text: &str, scope: Scope) -> Result<Self, SelectorError> {
        let (program, normal) = parser::parse(text, scope)?;
        Ok(Self {
            text: text.into(),
            normal: normal.into(),
            program,
        })
    }

    /// As [`Selector::parse_in`], but a text of nothing but white space means: no selector.
    ///
    /// # Errors
    /// A [`SelectorError`] that points at the character.
    pub fn parse_optional(text: &str, scope: Scope) -> Result<Option<Self>, SelectorError> {
        if text.chars().all(lexer::is_white_space) {
            Ok(None)
        } else {
            Self::parse_in(text, scope).map(Some)
        }
    }

    /// Whether the message with these fields is selected.
    #[must_use]
    pub fn matches(&self, fields: &impl Fields) -> bool {
        self.evaluate(fields) == Verdict::True
    }

    /// How the condition comes out for the message with these fields.
    #[must_use]
    pub fn evaluate(&self, fields: &impl Fields) -> Verdict {
        match eval::run(&self.program, fields) {
            Ok(Some(true)) => Verdict::True,
            Ok(Some(false)) => Verdict::False,
            Ok(None) => Verdict::Unknown,
            Err(eval::DivisionByZero) => Verdict::Failed,
        }
    }

    /// The text as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text with single spaces between its words and upper-case keywords: equal for equal selectors.
    #[must_use]
    pub fn normal_text(&self) -> &str {
        &self.normal
    }

    /// Whether the selector looks at `field`, so that callers need not make up values that nobody asks for.
    #[must_use]
    pub fn uses(&self, field: HeaderField) -> bool {
        self.program.uses(field)
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.normal == other.normal
    }
}

impl Eq for Selector {}
