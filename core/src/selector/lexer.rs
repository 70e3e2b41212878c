//! Text to tokens, one at a time.

use std::borrow::Cow;

use super::error::SelectorError;
use super::value::Comparison;

/// The reserved words. Their case does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Null,
    True,
    False,
    Not,
    And,
    Or,
    Between,
    Like,
    In,
    Is,
    Escape,
}

const KEYWORDS: [(&str, Keyword); 11] = [
    ("NULL", Keyword::Null),
    ("TRUE", Keyword::True),
    ("FALSE", Keyword::False),
    ("NOT", Keyword::Not),
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("BETWEEN", Keyword::Between),
    ("LIKE", Keyword::Like),
    ("IN", Keyword::In),
    ("IS", Keyword::Is),
    ("ESCAPE", Keyword::Escape),
];

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    Identifier(&'a str),
    Keyword(Keyword),
    Text(Cow<'a, str>),
    /// A whole number without its sign: up to 2^63, which only a minus makes a `long`.
    Exact(u64),
    Float(f32),
    Double(f64),
    Open,
    Close,
    Comma,
    Compare(Comparison),
    Plus,
    Minus,
    Star,
    Slash,
    End,
}

/// A token and its place in the text, in bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Space, tab, form feed and line terminators separate words (EMS-CLI-A19).
pub(super) fn is_white_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c' | '\n' | '\r')
}

fn starts_identifier(character: char) -> bool {
    character.is_alphabetic() || matches!(character, '_' | '$')
}

fn continues_identifier(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$')
}

/// Reads tokens from a text.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn error(&self, byte: usize, message: impl Into<String>) -> SelectorError {
        SelectorError::new(self.text, byte, message)
    }

    /// The next token; at the end of the text [`Kind::End`], again and again.
    pub(super) fn next(&mut self) -> Result<Token<'a>, SelectorError> {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches(is_white_space).len();
        let start = self.position;
        let kind = match self.rest().chars().next() {
            None => Kind::End,
            Some('\'') => self.string()?,
            Some('.' | '0'..='9') => self.number()?,
            Some(first) if starts_identifier(first) => self.word(),
            Some(first) => self.symbol(first)?,
        };
        Ok(Token {
            kind,
            start,
            end: self.position,
        })
    }

    fn word(&mut self) -> Kind<'a> {
        let rest = self.rest();
        let length = rest
            .find(|character| !continues_identifier(character))
            .unwrap_or(rest.len());
        let word = &rest[..length];
        self.position += length;
        let keyword = KEYWORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        keyword.map_or(Kind::Identifier(word), |&(_, keyword)| Kind::Keyword(keyword))
    }

    fn symbol(&mut self, first: char) -> Result<Kind<'a>, SelectorError> {
        let second = self.rest().chars().nth(1);
        let (length, kind) = match (first, second) {
            ('<', Some('>')) => (2, Kind::Compare(Comparison::NotEqual)),
            ('<', Some('=')) => (2, Kind::Compare(Comparison::LessOrEqual)),
            ('>', Some('=')) => (2, Kind::Compare(Comparison::GreaterOrEqual)),
            ('<', _) => (1, Kind::Compare(Comparison::Less)),
            ('>', _) => (1, Kind::Compare(Comparison::Greater)),
            ('=', _) => (1, Kind::Compare(Comparison::Equal)),
            ('(', _) => (1, Kind::Open),
            (')', _) => (1, Kind::Close),
            (',', _) => (1, Kind::Comma),
            ('+', _) => (1, Kind::Plus),
            ('-', _) => (1, Kind::Minus),
            ('*', _) => (1, Kind::Star),
            ('/', _) => (1, Kind::Slash),
            ('!', _) => return Err(self.error(self.position, "'!' is no operator: write <> for 'not equal', or NOT")),
            ('"', _) => return Err(self.error(self.position, "strings stand in single quotes: 'text'")),
            _ => {
                let message = format!("the character {first:?} has no meaning here");
                return Err(self.error(self.position, message));
            }
        };
        self.position += length;
        Ok(kind)
    }

    /// A string in single quotes, in which two quotes stand for one.
    fn string(&mut self) -> Result<Kind<'a>, SelectorError> {
        let start = self.position;
        self.position += 1;
        let mut text = Cow::Borrowed("");
        loop {
            let rest = self.rest();
            let Some(length) = rest.find('\'') else {
                return Err(self.error(start, "this string has no closing quote"));
            };
            let (piece, after) = (&rest[..length], &rest[length + 1..]);
            self.position += length + 1;
            if text.is_empty() {
                text = Cow::Borrowed(piece);
            } else {
                text.to_mut().push_str(piece);
            }
            if !after.starts_with('\'') {
                return Ok(Kind::Text(text));
            }
            self.position += 1;
            text.to_mut().push('\'');
        }
    }

    /// Takes digits of the given radix and returns them.
    fn digits(&mut self, radix: u32) -> &'a str {
        let rest = self.rest();
        let length = rest
            .find(|character: char| !character.is_digit(radix))
            .unwrap_or(rest.len());
        self.position += length;
        &rest[..length]
    }

    fn eat(&mut self, letters: [char; 2]) -> bool {
        let found = self.rest().starts_with(letters);
        self.position += usize::from(found);
        found
    }

    /// A number in Java's notation: decimal and hexadecimal integers, with or without `L`, and floating-point literals.
    fn number(&mut self) -> Result<Kind<'a>, SelectorError> {
        let start = self.position;
        let is_hexadecimal = self.rest().starts_with("0x") || self.rest().starts_with("0X");
        let kind = if is_hexadecimal {
            self.hexadecimal(start)?
        } else {
            self.decimal(start)?
        };
        // `1AND` and `5kg` are mistakes, not two words.
        if self.rest().starts_with(continues_identifier) {
            return Err(self.error(self.position, "a number ends here, but a letter or digit follows"));
        }
        Ok(kind)
    }

    fn hexadecimal(&mut self, start: usize) -> Result<Kind<'a>, SelectorError> {
        self.position += 2;
        let digits = self.digits(16);
        let is_long = self.eat(['l', 'L']);
        // In Java, digits that reach the sign bit make a negative number. That surprises, so it is refused.
        let limit = if is_long { i64::MAX as u64 } else { i32::MAX as u64 };
        match u64::from_str_radix(digits, 16) {
            Ok(value) if value <= limit => Ok(Kind::Exact(value)),
            _ if digits.is_empty() => Err(self.error(self.position, "hexadecimal digits are expected here")),
            _ => Err(self.error(start, format!("this number is out of range: at most 0x{limit:X} here"))),
        }
    }

    fn decimal(&mut self, start: usize) -> Result<Kind<'a>, SelectorError> {
        let whole = self.digits(10);
        let has_point = self.rest().starts_with('.');
        let mut fraction = "";
        if has_point {
            self.position += 1;
            fraction = self.digits(10);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(self.error(
                start,
                "a number needs a digit beside its point; names have no dots in selectors",
            ));
        }
        let has_exponent = self.eat(['e', 'E']);
        if has_exponent {
            if self.rest().starts_with(['+', '-']) {
                self.position += 1;
            }
            if self.digits(10).is_empty() {
                return Err(self.error(self.position, "the exponent needs digits"));
            }
        }
        let digits = &self.text[start..self.position];
        if self.eat(['f', 'F']) {
            return self.finite(
                start,
                digits
                    .parse::<f32>()
                    .ok()
                    .filter(|value| value.is_finite())
                    .map(Kind::Float),
            );
        }
        if self.eat(['d', 'D']) || has_point || has_exponent {
            return self.finite(
                start,
                digits
                    .parse::<f64>()
                    .ok()
                    .filter(|value| value.is_finite())
                    .map(Kind::Double),
            );
        }
        self.eat(['l', 'L']);
        // Java reads 010 as eight. Whoever writes it may mean ten.
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(self.error(start, "whole numbers are written without leading zeros"));
        }
        match digits.parse() {
            Ok(value) if value <= i64::MAX as u64 + 1 => Ok(Kind::Exact(value)),
            _ => Err(self.error(start, "this number is out of range: whole numbers have 64 bits")),
        }
    }

    fn finite(&self, start: usize, number: Option<Kind<'a>>) -> Result<Kind<'a>, SelectorError> {
        number.ok_or_else(|| self.error(start, "this number is too large for its type"))
    }
}
