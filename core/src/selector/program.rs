//! A selector as a flat program for a stack machine.
//!
//! Operands push values, operators replace theirs by the result. AND and OR are preceded, between their operands, by a
//! jump that leaves out the right one when the left one decides. All jumps go forward, so every program ends.

use super::identifier::{FieldName, HeaderField};
use super::like::Like;
use super::value::{Arithmetic, Comparison, Value};

/// One step. Numbers are indices into the tables of [`Program`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Field(u32),
    Constant(u32),
    Negate,
    Plus,
    Calculate(Arithmetic),
    Compare(Comparison),
    /// The commonest condition in one step: a field against a constant.
    CompareField {
        field: u32,
        comparison: Comparison,
        constant: u32,
    },
    Between {
        negated: bool,
    },
    In {
        field: u32,
        set: u32,
        negated: bool,
    },
    Like {
        field: u32,
        pattern: u32,
        negated: bool,
    },
    IsNull {
        field: u32,
        negated: bool,
    },
    /// Turns the value on top into TRUE, FALSE or UNKNOWN.
    Condition,
    Not,
    And,
    Or,
    /// Goes on at the step named if the condition on top, which stays, has this truth value.
    JumpIf {
        truth: bool,
        target: u32,
    },
}

/// A literal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Bool(bool),
    Long(i64),
    Float(f32),
    Double(f64),
    Text(Box<str>),
}

impl Constant {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Long(value) => Value::Long(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Double(value) => Value::Double(*value),
            Self::Text(value) => Value::Text(value),
        }
    }
}

/// The strings of an IN, sorted: found by bisection, which no choice of strings can slow down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextSet(Box<[Box<str>]>);

impl TextSet {
    pub(super) fn new(mut texts: Vec<Box<str>>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        Self(texts.into())
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.0.binary_search_by(|candidate| (**candidate).cmp(text)).is_ok()
    }
}

/// The steps and what they refer to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) fields: Vec<FieldName>,
    pub(super) constants: Vec<Constant>,
    pub(super) sets: Vec<TextSet>,
    pub(super) patterns: Vec<Like>,
}

impl Program {
    pub(super) fn uses(&self, field: HeaderField) -> bool {
        self.fields.contains(&FieldName::Header(field))
    }

    /// Lets jumps that lead to a jump on the same condition lead to where that one goes, so that a chain of ORs is left
    /// in one step, and gives back spare memory.
    pub(super) fn finish(&mut self) {
        for index in (0..self.steps.len()).rev() {
            let Step::JumpIf { truth, target } = self.steps[index] else {
                continue;
            };
            match self.steps.get(target as usize) {
                Some(&Step::JumpIf { truth: next, target }) if next == truth => {
                    self.steps[index] = Step::JumpIf { truth, target };
                }
                _ => {}
            }
        }
        self.steps.shrink_to_fit();
        self.constants.shrink_to_fit();
    }
}
