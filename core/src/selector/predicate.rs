//! The parser's part for predicates: BETWEEN, IN, LIKE and IS NULL.

use super::error::SelectorError;
use super::lexer::{Keyword, Kind};
use super::like::Like;
use super::parser::{Operand, Operator, Parser, Type, precedence};
use super::program::Step;

impl<'a> Parser<'a> {
    /// BETWEEN, IN or LIKE; true if another value has to follow.
    pub(super) fn predicate(&mut self, kind: &Kind<'a>, start: usize, negated: bool) -> Result<bool, SelectorError> {
        match kind {
            Kind::Keyword(Keyword::Between) => {
                self.begin_predicate(start)?;
                self.check_number("BETWEEN")?;
                self.push(Operator::BetweenLow(negated), start)?;
                return Ok(true);
            }
            Kind::Keyword(Keyword::In) => self.one_of(start, negated)?,
            Kind::Keyword(Keyword::Like) => self.like(start, negated)?,
            _ => return self.error(start, "BETWEEN, IN or LIKE is expected after NOT"),
        }
        Ok(false)
    }

    /// Finishes the left side of a predicate.
    pub(super) fn begin_predicate(&mut self, start: usize) -> Result<(), SelectorError> {
        self.reduce(precedence::SUM)?;
        match self.operators.last() {
            Some((Operator::BetweenLow(_), place)) => self.error(*place, "BETWEEN needs two bounds: BETWEEN … AND …"),
            Some((Operator::Compare(_) | Operator::BetweenHigh(_), _)) => {
                self.error(start, "comparisons cannot follow one another: join them by AND or OR")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_null(&mut self, start: usize) -> Result<(), SelectorError> {
        let (field, operand) = self.take_field(start, "IS NULL")?;
        let mut token = self.next()?;
        let negated = token.kind == Kind::Keyword(Keyword::Not);
        if negated {
            token = self.next()?;
        }
        if token.kind != Kind::Keyword(Keyword::Null) {
            return self.error(token.start, "NULL or NOT NULL is expected after IS");
        }
        self.builder.step(Step::IsNull { field, negated });
        self.operands.push(Operand {
            type_: Type::Condition,
            start: operand.start,
        });
        Ok(())
    }

    fn one_of(&mut self, start: usize, negated: bool) -> Result<(), SelectorError> {
        let (field, operand) = self.take_field(start, "IN")?;
        let open = self.next()?;
        if open.kind != Kind::Open {
            return self.error(open.start, "'(' is expected after IN");
        }
        let mut texts = Vec::new();
        loop {
            let (text, _) = self.literal("IN")?;
            texts.push(text);
            let token = self.next()?;
            match token.kind {
                Kind::Comma => {}
                Kind::Close => break,
                _ => return self.error(token.start, "',' or ')' is expected here"),
            }
        }
        self.builder.one_of(field, texts, negated);
        self.operands.push(Operand {
            type_: Type::Condition,
            start: operand.start,
        });
        Ok(())
    }

    fn like(&mut self, start: usize, negated: bool) -> Result<(), SelectorError> {
        let (field, operand) = self.take_field(start, "LIKE")?;
        let (pattern, place) = self.literal("LIKE")?;
        let mut escape = None;
        if self.peek()?.kind == Kind::Keyword(Keyword::Escape) {
            self.next()?;
            let (text, place) = self.literal("ESCAPE")?;
            let mut characters = text.chars();
            escape = characters.next();
            if escape.is_none() || characters.next().is_some() {
                return self.error(place, "ESCAPE needs a string of exactly one character");
            }
        }
        match Like::compile(&pattern, escape) {
            Ok(pattern) => self.builder.like(field, pattern, negated),
            Err(message) => return self.error(place, message),
        }
        self.operands.push(Operand {
            type_: Type::Condition,
            start: operand.start,
        });
        Ok(())
    }

    /// The string literal that `word` needs, and its place.
    fn literal(&mut self, word: &str) -> Result<(Box<str>, usize), SelectorError> {
        let token = self.next()?;
        let Kind::Text(text) = token.kind else {
            return self.error(token.start, format!("{word} needs a string in single quotes here"));
        };
        self.count_literal(token.start)?;
        Ok((text.into(), token.start))
    }

    /// Takes the operand on top, which must be a bare field, for a predicate about strings or NULL.
    fn take_field(&mut self, start: usize, word: &str) -> Result<(u32, Operand), SelectorError> {
        self.begin_predicate(start)?;
        let operand = self.operands.pop();
        match (
            operand,
            operand
                .filter(|operand| operand.type_ == Type::Field)
                .and(self.builder.take_field()),
        ) {
            (Some(operand), Some(field)) => Ok((field, operand)),
            (operand, _) => {
                let place = operand.map_or(start, |operand| operand.start);
                self.error(
                    place,
                    format!("{word} needs the name of a property or header field on its left"),
                )
            }
        }
    }
}
