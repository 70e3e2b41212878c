//! Generated selectors against a reference that follows the rules literally: a tree, walked recursively.
//!
//! The reference shares no code with the product. Each generated condition is printed twice, with all parentheses and
//! with as few as the precedence allows, so that the parser's idea of precedence is checked as well.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::selector::{Fields, HeaderField, Selector, Value, Verdict};
use crate::sim::seeds::cases;
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq)]
enum Scalar {
    Null,
    Bad,
    Bool(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Text(String),
}

#[derive(Debug, Clone)]
enum Operand {
    Field(&'static str),
    Literal(Scalar),
    Minus(Box<Operand>),
    Binary(char, Box<Operand>, Box<Operand>),
}

#[derive(Debug, Clone)]
enum Condition {
    Bare(&'static str),
    Constant(bool),
    Compare(&'static str, Operand, Operand),
    Between(bool, Operand, Operand, Operand),
    In(bool, &'static str, Vec<String>),
    Like(bool, &'static str, String),
    IsNull(bool, &'static str),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

// ---- printing

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn not(negated: bool) -> &'static str {
    if negated { " not" } else { "" }
}

fn parenthesised(text: String, wanted: bool) -> String {
    if wanted { format!("({text})") } else { text }
}

impl Operand {
    fn precedence(&self) -> u8 {
        match self {
            Self::Binary('+' | '-', ..) => 5,
            Self::Binary(..) => 6,
            Self::Minus(_) => 7,
            _ => 8,
        }
    }

    fn print(&self, full: bool) -> String {
        let inner = |operand: &Operand, least: u8| {
            let wanted = operand.precedence() < least || (full && operand.precedence() < 8);
            parenthesised(operand.print(full), wanted)
        };
        match self {
            Self::Field(name) => (*name).to_owned(),
            Self::Literal(Scalar::Bool(value)) => value.to_string(),
            Self::Literal(Scalar::Long(value)) => value.to_string(),
            Self::Literal(Scalar::Double(value)) => format!("{value:?}"),
            Self::Literal(Scalar::Text(value)) => quoted(value),
            Self::Literal(other) => panic!("no literal: {other:?}"),
            Self::Minus(operand) => format!("- {}", inner(operand, 7)),
            Self::Binary(operator, left, right) => {
                let own = self.precedence();
                format!("{} {operator} {}", inner(left, own), inner(right, own + 1))
            }
        }
    }
}

impl Condition {
    fn precedence(&self) -> u8 {
        match self {
            Self::Or(..) => 1,
            Self::And(..) => 2,
            Self::Not(_) => 3,
            _ => 4,
        }
    }

    fn print(&self, full: bool) -> String {
        let inner = |condition: &Condition, least: u8| {
            parenthesised(condition.print(full), full || condition.precedence() < least)
        };
        match self {
            Self::Bare(name) => (*name).to_owned(),
            Self::Constant(value) => value.to_string(),
            Self::Compare(operator, left, right) => format!("{} {operator} {}", left.print(full), right.print(full)),
            Self::Between(negated, value, low, high) => {
                let (value, low, high) = (value.print(full), low.print(full), high.print(full));
                format!("{value}{} between {low} AND {high}", not(*negated))
            }
            Self::In(negated, name, texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("{name}{} IN ({})", not(*negated), texts.join(","))
            }
            Self::Like(negated, name, pattern) => format!("{name}{} LIKE {}", not(*negated), quoted(pattern)),
            Self::IsNull(negated, name) => format!("{name} IS{} NULL", not(*negated)),
            Self::Not(condition) => format!("NOT {}", inner(condition, 3)),
            Self::And(left, right) => format!("{} AND {}", inner(left, 2), inner(right, 3)),
            Self::Or(left, right) => format!("{} or {}", inner(left, 1), inner(right, 2)),
        }
    }
}

// ---- the reference

struct DividedByZero;

type Message = HashMap<&'static str, Scalar>;

fn width(scalar: &Scalar) -> Option<u8> {
    match scalar {
        Scalar::Int(_) => Some(1),
        Scalar::Long(_) => Some(2),
        Scalar::Float(_) => Some(3),
        Scalar::Double(_) => Some(4),
        _ => None,
    }
}

fn widened(scalar: &Scalar, width: u8) -> Scalar {
    match (scalar, width) {
        (Scalar::Int(value), 2) => Scalar::Long(i64::from(*value)),
        (Scalar::Int(value), 3) => Scalar::Float(*value as f32),
        (Scalar::Int(value), 4) => Scalar::Double(f64::from(*value)),
        (Scalar::Long(value), 3) => Scalar::Float(*value as f32),
        (Scalar::Long(value), 4) => Scalar::Double(*value as f64),
        (Scalar::Float(value), 4) => Scalar::Double(f64::from(*value)),
        _ => scalar.clone(),
    }
}

fn both_widened(left: &Scalar, right: &Scalar) -> Option<(Scalar, Scalar)> {
    let wider = width(left)?.max(width(right)?);
    Some((widened(left, wider), widened(right, wider)))
}

fn compared(operator: &str, left: &Scalar, right: &Scalar) -> Option<bool> {
    if *left == Scalar::Null || *right == Scalar::Null {
        return None;
    }
    let by_order = |order: Option<Ordering>| match operator {
        "=" => order == Some(Ordering::Equal),
        "<>" => order != Some(Ordering::Equal),
        "<" => order == Some(Ordering::Less),
        ">" => order == Some(Ordering::Greater),
        "<=" => order.is_some_and(Ordering::is_le),
        _ => order.is_some_and(Ordering::is_ge),
    };
    Some(match both_widened(left, right) {
        Some((Scalar::Int(left), Scalar::Int(right))) => by_order(left.partial_cmp(&right)),
        Some((Scalar::Long(left), Scalar::Long(right))) => by_order(left.partial_cmp(&right)),
        Some((Scalar::Float(left), Scalar::Float(right))) => by_order(left.partial_cmp(&right)),
        Some((Scalar::Double(left), Scalar::Double(right))) => by_order(left.partial_cmp(&right)),
        _ => match (left, right) {
            (Scalar::Text(_), Scalar::Text(_)) | (Scalar::Bool(_), Scalar::Bool(_)) => match operator {
                "=" => left == right,
                "<>" => left != right,
                _ => false,
            },
            _ => false,
        },
    })
}

impl Operand {
    fn evaluate(&self, message: &Message) -> Result<Scalar, DividedByZero> {
        match self {
            Self::Field(name) => Ok(message.get(name).cloned().unwrap_or(Scalar::Null)),
            Self::Literal(scalar) => Ok(scalar.clone()),
            Self::Minus(operand) => Ok(match operand.evaluate(message)? {
                Scalar::Null => Scalar::Null,
                Scalar::Int(value) => Scalar::Int(0_i32.wrapping_sub(value)),
                Scalar::Long(value) => Scalar::Long(0_i64.wrapping_sub(value)),
                Scalar::Float(value) => Scalar::Float(-value),
                Scalar::Double(value) => Scalar::Double(-value),
                _ => Scalar::Bad,
            }),
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.evaluate(message)?, right.evaluate(message)?);
                if left == Scalar::Null || right == Scalar::Null {
                    return Ok(Scalar::Null);
                }
                let Some(pair) = both_widened(&left, &right) else {
                    return Ok(Scalar::Bad);
                };
                calculated(*operator, pair)
            }
        }
    }
}

fn calculated(operator: char, pair: (Scalar, Scalar)) -> Result<Scalar, DividedByZero> {
    match (operator, &pair) {
        ('/', (_, Scalar::Int(0) | Scalar::Long(0))) => Err(DividedByZero),
        (_, (Scalar::Int(left), Scalar::Int(right))) => {
            // In 64 bits nothing overflows; the low half is what 32 bits would have kept.
            let (left, right) = (i64::from(*left), i64::from(*right));
            let exact = match operator {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                _ => left / right,
            };
            Ok(Scalar::Int(exact as i32))
        }
        (_, (Scalar::Long(left), Scalar::Long(right))) => {
            let (left, right) = (i128::from(*left), i128::from(*right));
            let exact = match operator {
                '+' => left + right,
                '-' => left - right,
                '*' => left * right,
                _ => left / right,
            };
            Ok(Scalar::Long(exact as i64))
        }
        (_, (Scalar::Float(left), Scalar::Float(right))) => Ok(Scalar::Float(match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            _ => left / right,
        })),
        (_, (Scalar::Double(left), Scalar::Double(right))) => Ok(Scalar::Double(match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            _ => left / right,
        })),
        other => panic!("not widened: {other:?}"),
    }
}

fn like(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|skipped| like(rest, &text[skipped..])),
        Some((first, rest)) => text
            .split_first()
            .is_some_and(|(found, text)| (*first == '_' || first == found) && like(rest, text)),
    }
}

fn asked(message: &Message, name: &str, negated: bool, question: impl Fn(&str) -> bool) -> Option<bool> {
    match message.get(name) {
        None | Some(Scalar::Null) => None,
        Some(Scalar::Text(text)) => Some(question(text) != negated),
        Some(_) => Some(false),
    }
}

fn conjunction(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    if left == Some(false) || right == Some(false) {
        Some(false)
    } else {
        left.and(right)
    }
}

impl Condition {
    fn evaluate(&self, message: &Message) -> Result<Option<bool>, DividedByZero> {
        Ok(match self {
            Self::Constant(value) => Some(*value),
            Self::Bare(name) => match message.get(name) {
                None | Some(Scalar::Null) => None,
                other => Some(other == Some(&Scalar::Bool(true))),
            },
            Self::Compare(operator, left, right) => {
                compared(operator, &left.evaluate(message)?, &right.evaluate(message)?)
            }
            Self::Between(negated, value, low, high) => {
                let (value, low, high) = (
                    value.evaluate(message)?,
                    low.evaluate(message)?,
                    high.evaluate(message)?,
                );
                if *negated {
                    let inside = |truth: Option<bool>| truth.map(|truth| !truth);
                    let outside = (compared("<", &value, &low), compared(">", &value, &high));
                    inside(conjunction(inside(outside.0), inside(outside.1)))
                } else {
                    conjunction(compared(">=", &value, &low), compared("<=", &value, &high))
                }
            }
            Self::In(negated, name, texts) => asked(message, name, *negated, |text| {
                texts.iter().any(|candidate| candidate == text)
            }),
            Self::Like(negated, name, pattern) => {
                let pattern: Vec<char> = pattern.chars().collect();
                asked(message, name, *negated, |text| {
                    like(&pattern, &text.chars().collect::<Vec<_>>())
                })
            }
            Self::IsNull(negated, name) => Some(matches!(message.get(name), None | Some(Scalar::Null)) != *negated),
            Self::Not(condition) => condition.evaluate(message)?.map(|truth| !truth),
            Self::And(left, right) => match left.evaluate(message)? {
                Some(false) => Some(false),
                left => conjunction(left, right.evaluate(message)?),
            },
            Self::Or(left, right) => match left.evaluate(message)? {
                Some(true) => Some(true),
                left => match right.evaluate(message)? {
                    Some(true) => Some(true),
                    right => left.and(right),
                },
            },
        })
    }
}

// ---- generating

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn text() -> impl Strategy<Value = String> {
    "[ab'é]{0,3}"
}

fn number() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        (-3_i64..4).prop_map(Scalar::Long),
        any::<i64>().prop_map(Scalar::Long),
        prop::sample::select(vec![0.0, 0.5, -1.0, 2.0, 1e30]).prop_map(Scalar::Double),
    ]
}

fn field_value() -> impl Strategy<Value = Scalar> {
    prop_oneof![
        Just(Scalar::Null),
        any::<bool>().prop_map(Scalar::Bool),
        (-3_i32..4).prop_map(Scalar::Int),
        any::<i32>().prop_map(Scalar::Int),
        number(),
        prop::sample::select(vec![0.0_f32, 0.5, 2.0, f32::NAN]).prop_map(Scalar::Float),
        text().prop_map(Scalar::Text),
    ]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&NAMES[..])
}

fn arithmetic() -> impl Strategy<Value = Operand> {
    let leaf = prop_oneof![name().prop_map(Operand::Field), number().prop_map(Operand::Literal)];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|operand| Operand::Minus(operand.into())),
            (prop::sample::select(vec!['+', '-', '*', '/']), inner.clone(), inner)
                .prop_map(|(operator, left, right)| Operand::Binary(operator, left.into(), right.into())),
        ]
    })
}

fn any_operand() -> impl Strategy<Value = Operand> {
    let literal = prop_oneof![text().prop_map(Scalar::Text), any::<bool>().prop_map(Scalar::Bool)];
    prop_oneof![3 => arithmetic(), 1 => literal.prop_map(Operand::Literal)]
}

fn predicate() -> impl Strategy<Value = Condition> {
    let orderings = prop::sample::select(vec!["<", ">", "<=", ">="]);
    let equalities = prop::sample::select(vec!["=", "<>"]);
    prop_oneof![
        name().prop_map(Condition::Bare),
        any::<bool>().prop_map(Condition::Constant),
        (orderings, arithmetic(), arithmetic()).prop_map(|(o, l, r)| Condition::Compare(o, l, r)),
        (equalities, any_operand(), any_operand()).prop_map(|(o, l, r)| Condition::Compare(o, l, r)),
        (any::<bool>(), arithmetic(), arithmetic(), arithmetic())
            .prop_map(|(negated, value, low, high)| Condition::Between(negated, value, low, high)),
        (any::<bool>(), name(), prop::collection::vec(text(), 1..4))
            .prop_map(|(negated, name, texts)| Condition::In(negated, name, texts)),
        (any::<bool>(), name(), "[ab%_'é]{0,4}")
            .prop_map(|(negated, name, pattern)| Condition::Like(negated, name, pattern)),
        (any::<bool>(), name()).prop_map(|(negated, name)| Condition::IsNull(negated, name)),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    predicate().prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|condition| Condition::Not(condition.into())),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Condition::And(left.into(), right.into())),
            (inner.clone(), inner).prop_map(|(left, right)| Condition::Or(left.into(), right.into())),
        ]
    })
}

struct MessageFields<'a>(&'a Message);

impl Fields for MessageFields<'_> {
    fn header(&self, _: HeaderField) -> Option<Value<'_>> {
        None
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        Some(match self.0.get(name)? {
            Scalar::Null => Value::Null,
            Scalar::Bad => Value::Mismatch,
            Scalar::Bool(value) => Value::Bool(*value),
            Scalar::Int(value) => Value::Int(*value),
            Scalar::Long(value) => Value::Long(*value),
            Scalar::Float(value) => Value::Float(*value),
            Scalar::Double(value) => Value::Double(*value),
            Scalar::Text(value) => Value::Text(value),
        })
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    // covers: EMS-CLI-A13, EMS-CLI-A14
    #[test]
    fn agrees_with_the_reference(
        condition in condition(),
        messages in prop::collection::vec(prop::collection::vec(prop::option::of(field_value()), 4), 4),
    ) {
        let (few, full) = (condition.print(false), condition.print(true));
        let selectors = [&few, &full].map(|text| Selector::parse(text).map_err(|error| error.render()));
        for values in messages {
            let values = NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
            let message: Message = values.collect();
            let expected = match condition.evaluate(&message) {
                Ok(Some(true)) => Verdict::True,
                Ok(Some(false)) => Verdict::False,
                Ok(None) => Verdict::Unknown,
                Err(DividedByZero) => Verdict::Failed,
            };
            for (text, selector) in [&few, &full].into_iter().zip(&selectors) {
                let found = selector.as_ref().map(|selector| selector.evaluate(&MessageFields(&message)));
                prop_assert_eq!(found, Ok(expected), "{} on {:?}", text, message);
            }
        }
    }

    #[test]
    fn the_normal_form_means_the_same_and_is_stable(condition in condition()) {
        let selector = Selector::parse(&condition.print(true)).unwrap();
        let again = Selector::parse(selector.normal_text()).unwrap();
        prop_assert_eq!(again.normal_text(), selector.normal_text());
        prop_assert!(again == selector);
    }
}
