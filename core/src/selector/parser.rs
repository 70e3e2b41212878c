//! Tokens to a program, by operator precedence.
//!
//! Two stacks stand in for recursion: operands (what kind of thing each is, and where it began; its code is in the
//! program already) and operators that still wait for their right side. An operator is reduced, that is checked and
//! added to the program, as soon as one arrives that binds no tighter. From loose to tight: OR, AND, NOT, the
//! predicates (comparisons, BETWEEN, LIKE, IN, IS), `+ -`, `* /`, signs.

use super::builder::{Builder, PendingJump};
use super::error::SelectorError;
use super::identifier::{Scope, classify};
use super::lexer::{Keyword, Kind, Lexer, Token};
use super::program::{Constant, Program, Step};
use super::value::{Arithmetic, Comparison};

/// The longest text, in bytes. Brokers may set a lower limit of their own.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// The most string literals in one selector (EMS-CLI-A12, A16).
pub const LITERALS_MAX: usize = 32_767;

/// The most operators and parentheses that may be open at once.
pub const NESTING_MAX: usize = 16_384;

/// What stands on the stack of operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// A result of a predicate or of logic.
    Condition,
    /// TRUE or FALSE, which is a condition and a value.
    Bool,
    /// A field: only the message knows its type.
    Field,
    Number,
    Text,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Operand {
    pub(super) type_: Type,
    pub(super) start: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Operator {
    Open,
    Or(PendingJump),
    And(PendingJump),
    Not,
    Compare(Comparison),
    /// BETWEEN that waits for its AND.
    BetweenLow(bool),
    BetweenHigh(bool),
    Calculate(Arithmetic),
    Minus,
    Plus,
}

/// How tightly operators bind.
pub(super) mod precedence {
    pub(in crate::selector) const OPEN: u8 = 0;
    pub(in crate::selector) const OR: u8 = 1;
    pub(in crate::selector) const AND: u8 = 2;
    pub(in crate::selector) const NOT: u8 = 3;
    pub(in crate::selector) const PREDICATE: u8 = 4;
    pub(in crate::selector) const SUM: u8 = 5;
    pub(in crate::selector) const PRODUCT: u8 = 6;
    pub(in crate::selector) const SIGN: u8 = 7;
}

impl Operator {
    fn precedence(self) -> u8 {
        match self {
            Self::Open => precedence::OPEN,
            Self::Or(_) => precedence::OR,
            Self::And(_) => precedence::AND,
            Self::Not => precedence::NOT,
            Self::Compare(_) | Self::BetweenLow(_) | Self::BetweenHigh(_) => precedence::PREDICATE,
            Self::Calculate(Arithmetic::Add | Arithmetic::Subtract) => precedence::SUM,
            Self::Calculate(_) => precedence::PRODUCT,
            Self::Minus | Self::Plus => precedence::SIGN,
        }
    }
}

/// Parses `text` into a program and its normal form.
pub(super) fn parse(text: &str, scope: Scope) -> Result<(Program, String), SelectorError> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!(
            "the selector has {} bytes, at most {TEXT_BYTES_MAX} are allowed",
            text.len()
        );
        return Err(SelectorError::new(text, 0, message));
    }
    let mut parser = Parser {
        text,
        scope,
        lexer: Lexer::new(text),
        peeked: None,
        builder: Builder::default(),
        operands: Vec::new(),
        operators: Vec::new(),
        literals: 0,
        normal: String::with_capacity(text.len()),
    };
    parser.operand()?;
    while parser.operator()? {
        parser.operand()?;
    }
    Ok((parser.builder.finish(), parser.normal))
}

pub(super) struct Parser<'a> {
    text: &'a str,
    scope: Scope,
    lexer: Lexer<'a>,
    peeked: Option<Token<'a>>,
    pub(super) builder: Builder<'a>,
    pub(super) operands: Vec<Operand>,
    // With the place of each, for errors.
    pub(super) operators: Vec<(Operator, usize)>,
    literals: usize,
    normal: String,
}

impl<'a> Parser<'a> {
    pub(super) fn error<T>(&self, byte: usize, message: impl Into<String>) -> Result<T, SelectorError> {
        Err(SelectorError::new(self.text, byte, message))
    }

    pub(super) fn peek(&mut self) -> Result<&Token<'a>, SelectorError> {
        if self.peeked.is_none() {
            self.peeked = Some(self.lexer.next()?);
        }
        let end = self.text.len();
        Ok(self.peeked.get_or_insert(Token {
            kind: Kind::End,
            start: end,
            end,
        }))
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, SelectorError> {
        let token = match self.peeked.take() {
            Some(token) => token,
            None => self.lexer.next()?,
        };
        if token.kind != Kind::End && !self.normal.is_empty() {
            self.normal.push(' ');
        }
        let word = &self.text[token.start..token.end];
        match token.kind {
            Kind::Keyword(_) => self
                .normal
                .extend(word.chars().map(|letter| letter.to_ascii_uppercase())),
            _ => self.normal.push_str(word),
        }
        Ok(token)
    }

    pub(super) fn push(&mut self, operator: Operator, start: usize) -> Result<(), SelectorError> {
        if self.operators.len() >= NESTING_MAX {
            return self.error(
                start,
                format!("more than {NESTING_MAX} parentheses and operators are open here"),
            );
        }
        self.operators.push((operator, start));
        Ok(())
    }

    /// Takes everything up to and including the next value: opening parentheses, NOTs and signs before it, too.
    fn operand(&mut self) -> Result<(), SelectorError> {
        loop {
            let token = self.next()?;
            let start = token.start;
            match token.kind {
                Kind::Open => self.push(Operator::Open, start)?,
                Kind::Keyword(Keyword::Not) => {
                    let outer = self
                        .operators
                        .last()
                        .map_or(precedence::OPEN, |(operator, _)| operator.precedence());
                    if outer > precedence::NOT {
                        return self.error(start, "NOT cannot stand here: put the condition in parentheses");
                    }
                    self.push(Operator::Not, start)?;
                }
                Kind::Minus => {
                    // A sign right before a number belongs to it: only so can the smallest long be written.
                    if let Some(constant) = self.negative_number()? {
                        self.value(Type::Number, start, constant);
                        return Ok(());
                    }
                    self.push(Operator::Minus, start)?;
                }
                Kind::Plus => self.push(Operator::Plus, start)?,
                _ => return self.atom(token),
            }
        }
    }

    fn negative_number(&mut self) -> Result<Option<Constant>, SelectorError> {
        let constant = match self.peek()?.kind {
            // 2^63 is its own negation.
            Kind::Exact(value) => Constant::Long((value as i64).wrapping_neg()),
            Kind::Float(value) => Constant::Float(-value),
            Kind::Double(value) => Constant::Double(-value),
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some(constant))
    }

    fn value(&mut self, type_: Type, start: usize, constant: Constant) {
        self.builder.constant(constant);
        self.operands.push(Operand { type_, start });
    }

    /// A literal or an identifier.
    fn atom(&mut self, token: Token<'a>) -> Result<(), SelectorError> {
        let start = token.start;
        match token.kind {
            Kind::Exact(value) => match i64::try_from(value) {
                Ok(value) => self.value(Type::Number, start, Constant::Long(value)),
                Err(_) => return self.error(start, "this number is out of range: whole numbers have 64 bits"),
            },
            Kind::Float(value) => self.value(Type::Number, start, Constant::Float(value)),
            Kind::Double(value) => self.value(Type::Number, start, Constant::Double(value)),
            Kind::Text(text) => {
                self.count_literal(start)?;
                self.value(Type::Text, start, Constant::Text(text.into()));
            }
            Kind::Keyword(Keyword::True) => self.value(Type::Bool, start, Constant::Bool(true)),
            Kind::Keyword(Keyword::False) => self.value(Type::Bool, start, Constant::Bool(false)),
            Kind::Keyword(Keyword::Null) => {
                return self.error(
                    start,
                    "NULL cannot be compared: write 'name IS NULL' or 'name IS NOT NULL'",
                );
            }
            Kind::Identifier(name) => match classify(name, self.scope) {
                Ok(field) => {
                    self.builder.field(name, field);
                    self.operands.push(Operand {
                        type_: Type::Field,
                        start,
                    });
                }
                Err(message) => return self.error(start, message),
            },
            Kind::End if self.normal.is_empty() => return self.error(start, "the selector is empty"),
            _ => return self.error(start, "a name, a literal, NOT, a sign or '(' is expected here"),
        }
        Ok(())
    }

    pub(super) fn count_literal(&mut self, start: usize) -> Result<(), SelectorError> {
        self.literals += 1;
        if self.literals > LITERALS_MAX {
            return self.error(
                start,
                format!("a selector may have at most {LITERALS_MAX} string literals"),
            );
        }
        Ok(())
    }

    /// Takes what follows a value, up to and including the next operator that needs another value (true), or to the
    /// end (false).
    fn operator(&mut self) -> Result<bool, SelectorError> {
        loop {
            let Token { kind, start, .. } = self.next()?;
            match kind {
                Kind::Close => self.close(start)?,
                Kind::Keyword(Keyword::And) => return self.and(start).map(|()| true),
                Kind::Keyword(Keyword::Or) => {
                    self.reduce(precedence::OR)?;
                    self.take_condition()?;
                    let jump = self.builder.jump_if(true);
                    return self.push(Operator::Or(jump), start).map(|()| true);
                }
                Kind::Compare(comparison) => {
                    self.begin_predicate(start)?;
                    self.check_comparable(comparison)?;
                    return self.push(Operator::Compare(comparison), start).map(|()| true);
                }
                Kind::Plus => return self.calculate(Arithmetic::Add, start),
                Kind::Minus => return self.calculate(Arithmetic::Subtract, start),
                Kind::Star => return self.calculate(Arithmetic::Multiply, start),
                Kind::Slash => return self.calculate(Arithmetic::Divide, start),
                Kind::Keyword(Keyword::Is) => self.is_null(start)?,
                Kind::Keyword(Keyword::Not) => {
                    let Token { kind, start, .. } = self.next()?;
                    if self.predicate(&kind, start, true)? {
                        return Ok(true);
                    }
                }
                Kind::Keyword(Keyword::Between | Keyword::In | Keyword::Like) => {
                    if self.predicate(&kind, start, false)? {
                        return Ok(true);
                    }
                }
                Kind::End => return self.end(start).map(|()| false),
                _ => return self.error(start, "an operator, AND, OR or the end is expected here"),
            }
        }
    }

    fn calculate(&mut self, operator: Arithmetic, start: usize) -> Result<bool, SelectorError> {
        self.reduce(Operator::Calculate(operator).precedence())?;
        self.check_number("arithmetic")?;
        self.push(Operator::Calculate(operator), start)?;
        Ok(true)
    }

    /// AND: the middle of a BETWEEN if one waits for it, otherwise the logical operator.
    fn and(&mut self, start: usize) -> Result<(), SelectorError> {
        self.reduce(precedence::SUM)?;
        if let Some(&(Operator::BetweenLow(negated), place)) = self.operators.last() {
            self.check_number("BETWEEN")?;
            self.operators.pop();
            return self.push(Operator::BetweenHigh(negated), place);
        }
        self.reduce(precedence::AND)?;
        self.take_condition()?;
        let jump = self.builder.jump_if(false);
        self.push(Operator::And(jump), start)
    }

    fn close(&mut self, start: usize) -> Result<(), SelectorError> {
        self.reduce(precedence::OR)?;
        let Some((_, opened)) = self.operators.pop() else {
            return self.error(start, "this ')' closes nothing");
        };
        if let Some(operand) = self.operands.last_mut() {
            operand.start = opened;
        }
        Ok(())
    }

    fn end(&mut self, start: usize) -> Result<(), SelectorError> {
        self.reduce(precedence::OR)?;
        if let Some(&(_, opened)) = self.operators.last() {
            return self.error(opened, "this '(' is never closed");
        }
        match self.operands.last() {
            Some(_) => self.take_condition(),
            None => self.error(start, "the selector is empty"),
        }
    }

    /// The operand on top is used as a condition.
    fn take_condition(&mut self) -> Result<(), SelectorError> {
        let Some(operand) = self.operands.last_mut() else {
            return Ok(());
        };
        let start = operand.start;
        match operand.type_ {
            Type::Condition | Type::Bool => {}
            Type::Field => self.builder.step(Step::Condition),
            Type::Number => return self.error(start, "a condition is expected here, but this is a number"),
            Type::Text => return self.error(start, "a condition is expected here, but this is a string"),
        }
        operand.type_ = Type::Condition;
        Ok(())
    }

    /// The operand on top is used as a number by `word`.
    pub(super) fn check_number(&self, word: &str) -> Result<(), SelectorError> {
        match self.operands.last() {
            Some(Operand {
                type_: Type::Number | Type::Field,
                ..
            })
            | None => Ok(()),
            Some(operand) => self.error(operand.start, format!("{word} works on numbers, and this is none")),
        }
    }

    /// The operand on top is compared.
    fn check_comparable(&self, comparison: Comparison) -> Result<(), SelectorError> {
        match self.operands.last() {
            Some(Operand {
                type_: Type::Condition,
                start,
            }) => self.error(*start, "a condition cannot be compared: only values can"),
            Some(Operand {
                type_: Type::Text | Type::Bool,
                start,
            }) if comparison.is_ordering() => {
                self.error(*start, "strings and booleans have no order: only = and <> compare them")
            }
            _ => Ok(()),
        }
    }

    /// Adds all operators to the program that bind at least as tightly as `least`, back to the last parenthesis.
    pub(super) fn reduce(&mut self, least: u8) -> Result<(), SelectorError> {
        while let Some(&(operator, start)) = self.operators.last() {
            if operator.precedence() < least {
                break;
            }
            self.operators.pop();
            self.reduce_one(operator, start)?;
        }
        Ok(())
    }

    fn reduce_one(&mut self, operator: Operator, start: usize) -> Result<(), SelectorError> {
        match operator {
            Operator::Or(jump) | Operator::And(jump) => {
                self.take_condition()?;
                let is_or = matches!(operator, Operator::Or(_));
                self.builder.step(if is_or { Step::Or } else { Step::And });
                self.builder.land(jump);
                self.join(1, Type::Condition);
            }
            Operator::Not => {
                self.take_condition()?;
                self.builder.step(Step::Not);
                self.begin_at(start, Type::Condition);
            }
            Operator::Compare(comparison) => {
                self.check_comparable(comparison)?;
                self.builder.compare(comparison);
                self.join(1, Type::Condition);
            }
            Operator::BetweenLow(_) => return self.error(start, "BETWEEN needs two bounds: BETWEEN … AND …"),
            Operator::BetweenHigh(negated) => {
                self.check_number("BETWEEN")?;
                self.builder.step(Step::Between { negated });
                self.join(2, Type::Condition);
            }
            Operator::Calculate(arithmetic) => {
                self.check_number("arithmetic")?;
                self.builder.step(Step::Calculate(arithmetic));
                self.join(1, Type::Number);
            }
            Operator::Minus | Operator::Plus => {
                self.check_number("a sign")?;
                let is_minus = matches!(operator, Operator::Minus);
                self.builder.step(if is_minus { Step::Negate } else { Step::Plus });
                self.begin_at(start, Type::Number);
            }
            // Its precedence is below every `least`.
            Operator::Open => {}
        }
        Ok(())
    }

    /// An operator with `count` operands to its right has become one operand.
    fn join(&mut self, count: usize, type_: Type) {
        self.operands.truncate(self.operands.len().saturating_sub(count));
        if let Some(operand) = self.operands.last_mut() {
            operand.type_ = type_;
        }
    }

    fn begin_at(&mut self, start: usize, type_: Type) {
        if let Some(operand) = self.operands.last_mut() {
            *operand = Operand { type_, start };
        }
    }
}
