//! Puts a program together while the parser finds out what it has to do.

use std::collections::HashMap;

use super::identifier::FieldName;
use super::like::Like;
use super::program::{Constant, Program, Step, TextSet};
use super::value::Comparison;

/// A jump whose target is not known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingJump(usize);

/// A program under construction. Tables grow with the text, which is bounded, so that indices fit 32 bits.
#[derive(Debug, Default)]
pub(super) struct Builder<'a> {
    program: Program,
    fields: HashMap<&'a str, u32>,
}

impl<'a> Builder<'a> {
    pub(super) fn step(&mut self, step: Step) {
        self.program.steps.push(step);
    }

    /// Pushes the value of a field; `name` is what `field` was made of.
    pub(super) fn field(&mut self, name: &'a str, field: FieldName) {
        let fields = &mut self.program.fields;
        let index = *self.fields.entry(name).or_insert_with(|| {
            fields.push(field);
            (fields.len() - 1) as u32
        });
        self.step(Step::Field(index));
    }

    pub(super) fn constant(&mut self, constant: Constant) {
        self.program.constants.push(constant);
        self.step(Step::Constant((self.program.constants.len() - 1) as u32));
    }

    /// Compares the two values pushed last.
    pub(super) fn compare(&mut self, comparison: Comparison) {
        let steps = &mut self.program.steps;
        if let [.., Step::Field(field), Step::Constant(constant)] = **steps {
            steps.truncate(steps.len() - 2);
            steps.push(Step::CompareField {
                field,
                comparison,
                constant,
            });
        } else {
            steps.push(Step::Compare(comparison));
        }
    }

    /// Takes back the field pushed last, for a step that names its field itself. `None` if something else was.
    pub(super) fn take_field(&mut self) -> Option<u32> {
        match self.program.steps.last() {
            Some(&Step::Field(index)) => {
                self.program.steps.pop();
                Some(index)
            }
            _ => None,
        }
    }

    pub(super) fn one_of(&mut self, field: u32, texts: Vec<Box<str>>, negated: bool) {
        self.program.sets.push(TextSet::new(texts));
        let set = (self.program.sets.len() - 1) as u32;
        self.step(Step::In { field, set, negated });
    }

    pub(super) fn like(&mut self, field: u32, pattern: Like, negated: bool) {
        self.program.patterns.push(pattern);
        let pattern = (self.program.patterns.len() - 1) as u32;
        self.step(Step::Like {
            field,
            pattern,
            negated,
        });
    }

    /// A jump taken if the condition on top has this truth value, to a place that [`Builder::land`] names.
    pub(super) fn jump_if(&mut self, truth: bool) -> PendingJump {
        self.step(Step::JumpIf { truth, target: 0 });
        PendingJump(self.program.steps.len() - 1)
    }

    /// The jump leads to the next step.
    pub(super) fn land(&mut self, jump: PendingJump) {
        let next = self.program.steps.len() as u32;
        if let Some(Step::JumpIf { target, .. }) = self.program.steps.get_mut(jump.0) {
            *target = next;
        }
    }

    pub(super) fn finish(mut self) -> Program {
        self.program.finish();
        self.program
    }
}
