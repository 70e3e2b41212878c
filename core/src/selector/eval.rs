//! Runs a program against the fields of a message.

use smallvec::SmallVec;

use super::Fields;
use super::identifier::FieldName;
use super::program::{Program, Step};
use super::value::{Comparison, Value};

pub(super) use super::value::DivisionByZero;

/// How many fields and intermediate values an evaluation holds without allocating.
const INLINE: usize = 8;

/// The program's verdict; `None` is UNKNOWN.
pub(super) fn run(program: &Program, fields: &impl Fields) -> Result<Option<bool>, DivisionByZero> {
    let mut machine = Machine {
        program,
        fields,
        known: SmallVec::from_elem(None, program.fields.len()),
        stack: SmallVec::new(),
    };
    let mut index = 0;
    while let Some(step) = program.steps.get(index) {
        index = machine.step(*step)?.unwrap_or(index + 1);
    }
    Ok(machine.pop().truth())
}

struct Machine<'a, F> {
    program: &'a Program,
    fields: &'a F,
    // Values already looked up: a selector often asks for the same one again.
    known: SmallVec<[Option<Value<'a>>; INLINE]>,
    stack: SmallVec<[Value<'a>; INLINE]>,
}

fn condition(truth: Option<bool>) -> Value<'static> {
    truth.map_or(Value::Null, Value::Bool)
}

/// AND: false wins, then UNKNOWN.
fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// OR: true wins, then UNKNOWN.
fn or(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// BETWEEN, both ends included; NOT BETWEEN is strictly outside, so that what is no number is in neither.
fn between(value: Value<'_>, low: Value<'_>, high: Value<'_>, negated: bool) -> Option<bool> {
    if negated {
        or(
            value.compare(Comparison::Less, low),
            value.compare(Comparison::Greater, high),
        )
    } else {
        and(
            value.compare(Comparison::GreaterOrEqual, low),
            value.compare(Comparison::LessOrEqual, high),
        )
    }
}

/// A question asked of a string: UNKNOWN for NULL, false for what is no string, negated or not.
fn ask(value: Value<'_>, negated: bool, question: impl FnOnce(&str) -> bool) -> Option<bool> {
    if value == Value::Null {
        return None;
    }
    Some(value.text(&mut [0; 4]).is_some_and(|text| question(text) != negated))
}

impl<'a, F: Fields> Machine<'a, F> {
    // The parser makes no program that pops more than it pushed; NULL selects nothing.
    fn pop(&mut self) -> Value<'a> {
        self.stack.pop().unwrap_or(Value::Null)
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(value);
    }

    fn push_truth(&mut self, truth: Option<bool>) {
        self.stack.push(condition(truth));
    }

    fn field(&mut self, index: u32) -> Value<'a> {
        let index = index as usize;
        if let Some(value) = self.known[index] {
            return value;
        }
        let value = match &self.program.fields[index] {
            FieldName::Header(header) => self.fields.header(*header),
            FieldName::Property(name) => self.fields.property(name),
        };
        let value = value.unwrap_or(Value::Null);
        self.known[index] = Some(value);
        value
    }

    fn constant(&self, index: u32) -> Value<'a> {
        self.program.constants[index as usize].value()
    }

    /// Does one step; returns where to go on if that is not the next one.
    fn step(&mut self, step: Step) -> Result<Option<usize>, DivisionByZero> {
        match step {
            Step::Field(index) => {
                let value = self.field(index);
                self.push(value);
            }
            Step::Constant(index) => self.push(self.constant(index)),
            Step::CompareField {
                field,
                comparison,
                constant,
            } => {
                let truth = self.field(field).compare(comparison, self.constant(constant));
                self.push_truth(truth);
            }
            Step::In { field, set, negated } => {
                let set = &self.program.sets[set as usize];
                let truth = ask(self.field(field), negated, |text| set.contains(text));
                self.push_truth(truth);
            }
            Step::Like {
                field,
                pattern,
                negated,
            } => {
                let pattern = &self.program.patterns[pattern as usize];
                let truth = ask(self.field(field), negated, |text| pattern.matches(text));
                self.push_truth(truth);
            }
            Step::IsNull { field, negated } => {
                let is_null = self.field(field) == Value::Null;
                self.push(Value::Bool(is_null != negated));
            }
            Step::JumpIf { truth, target } => {
                if self.stack.last() == Some(&Value::Bool(truth)) {
                    return Ok(Some(target as usize));
                }
            }
            _ => self.operate(step)?,
        }
        Ok(None)
    }

    /// The steps that only look at the stack.
    fn operate(&mut self, step: Step) -> Result<(), DivisionByZero> {
        let top = self.pop();
        match step {
            Step::Negate => self.push(top.negate()),
            Step::Plus => self.push(top.plus()),
            Step::Condition => self.push_truth(top.truth()),
            Step::Not => self.push_truth(top.truth().map(|truth| !truth)),
            Step::Calculate(operator) => {
                let value = self.pop().calculate(operator, top)?;
                self.push(value);
            }
            Step::Compare(comparison) => {
                let truth = self.pop().compare(comparison, top);
                self.push_truth(truth);
            }
            Step::Between { negated } => {
                let low = self.pop();
                let truth = between(self.pop(), low, top, negated);
                self.push_truth(truth);
            }
            Step::And => {
                let truth = and(self.pop().truth(), top.truth());
                self.push_truth(truth);
            }
            Step::Or => {
                let truth = or(self.pop().truth(), top.truth());
                self.push_truth(truth);
            }
            // All others are done in `step`.
            _ => self.push(top),
        }
        Ok(())
    }
}
