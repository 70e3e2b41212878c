//! Values while a selector is evaluated: Java's numeric promotion, its arithmetic and its comparisons.

use std::cmp::Ordering;

/// A value of a header field, a property, or an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Absent, or present and null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Java's `byte`, `short` and `int`, which all count as `int` in expressions.
    Int(i32),
    /// Java's `long`, and whole numbers in the selector's text.
    Long(i64),
    /// Java's `float`.
    Float(f32),
    /// Java's `double`.
    Double(f64),
    /// One character, which reads as a string.
    Char(char),
    /// Text.
    Text(&'a str),
    /// The result of arithmetic on something that is no number: compares with nothing.
    Mismatch,
}

/// The six comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether it asks for more than being equal or not.
    pub(super) fn is_ordering(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }

    /// `None` as an ordering is what NaN gives: nothing holds but "not equal".
    fn holds(self, ordering: Option<Ordering>) -> bool {
        match self {
            Self::Equal => ordering == Some(Ordering::Equal),
            Self::NotEqual => ordering != Some(Ordering::Equal),
            Self::Less => ordering == Some(Ordering::Less),
            Self::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
            Self::Greater => ordering == Some(Ordering::Greater),
            Self::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// The four binary operators of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// An integer was divided by zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DivisionByZero;

/// Two numbers of one type, after Java's binary numeric promotion.
enum Pair {
    Int(i32, i32),
    Long(i64, i64),
    Float(f32, f32),
    Double(f64, f64),
}

impl<'a> Value<'a> {
    /// The text of a string; `buffer` gives a lone character a place to be a string in.
    pub(super) fn text<'b>(self, buffer: &'b mut [u8; 4]) -> Option<&'b str>
    where
        'a: 'b,
    {
        match self {
            Self::Text(text) => Some(text),
            Self::Char(character) => Some(character.encode_utf8(buffer)),
            _ => None,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Int(_) | Self::Long(_) | Self::Float(_) | Self::Double(_))
    }

    // The casts are Java's: rounding to the nearest on the way to a floating type.
    fn to_double(self) -> f64 {
        match self {
            Self::Int(value) => f64::from(value),
            Self::Long(value) => value as f64,
            Self::Float(value) => f64::from(value),
            Self::Double(value) => value,
            _ => f64::NAN,
        }
    }

    fn to_float(self) -> f32 {
        match self {
            Self::Int(value) => value as f32,
            Self::Long(value) => value as f32,
            Self::Float(value) => value,
            _ => f32::NAN,
        }
    }

    fn to_long(self) -> i64 {
        match self {
            Self::Int(value) => i64::from(value),
            Self::Long(value) => value,
            _ => 0,
        }
    }

    /// Both values in the wider of their types, if both are numbers.
    fn promote(self, other: Self) -> Option<Pair> {
        if !self.is_number() || !other.is_number() {
            return None;
        }
        Some(match (self, other) {
            (Self::Double(_), _) | (_, Self::Double(_)) => Pair::Double(self.to_double(), other.to_double()),
            (Self::Float(_), _) | (_, Self::Float(_)) => Pair::Float(self.to_float(), other.to_float()),
            (Self::Int(left), Self::Int(right)) => Pair::Int(left, right),
            _ => Pair::Long(self.to_long(), other.to_long()),
        })
    }

    /// The comparison's three-valued result; `None` is UNKNOWN.
    pub(super) fn compare(self, comparison: Comparison, other: Self) -> Option<bool> {
        if matches!(self, Self::Null) || matches!(other, Self::Null) {
            return None;
        }
        Some(match self.promote(other) {
            Some(Pair::Int(left, right)) => comparison.holds(Some(left.cmp(&right))),
            Some(Pair::Long(left, right)) => comparison.holds(Some(left.cmp(&right))),
            Some(Pair::Float(left, right)) => comparison.holds(left.partial_cmp(&right)),
            Some(Pair::Double(left, right)) => comparison.holds(left.partial_cmp(&right)),
            None => self.compare_others(comparison, other),
        })
    }

    /// Strings and booleans: equal or not; whatever does not compare: false.
    fn compare_others(self, comparison: Comparison, other: Self) -> bool {
        if comparison.is_ordering() {
            return false;
        }
        let wanted = comparison == Comparison::Equal;
        if let (Self::Bool(left), Self::Bool(right)) = (self, other) {
            return (left == right) == wanted;
        }
        match (self.text(&mut [0; 4]), other.text(&mut [0; 4])) {
            (Some(left), Some(right)) => (left == right) == wanted,
            _ => false,
        }
    }

    /// `self operator other`; NULL if either is NULL.
    pub(super) fn calculate(self, operator: Arithmetic, other: Self) -> Result<Value<'static>, DivisionByZero> {
        if matches!(self, Self::Null) || matches!(other, Self::Null) {
            return Ok(Value::Null);
        }
        Ok(match self.promote(other) {
            None => Value::Mismatch,
            Some(Pair::Int(left, right)) => Value::Int(match operator {
                Arithmetic::Add => left.wrapping_add(right),
                Arithmetic::Subtract => left.wrapping_sub(right),
                Arithmetic::Multiply => left.wrapping_mul(right),
                Arithmetic::Divide if right == 0 => return Err(DivisionByZero),
                Arithmetic::Divide => left.wrapping_div(right),
            }),
            Some(Pair::Long(left, right)) => Value::Long(match operator {
                Arithmetic::Add => left.wrapping_add(right),
                Arithmetic::Subtract => left.wrapping_sub(right),
                Arithmetic::Multiply => left.wrapping_mul(right),
                Arithmetic::Divide if right == 0 => return Err(DivisionByZero),
                Arithmetic::Divide => left.wrapping_div(right),
            }),
            Some(Pair::Float(left, right)) => Value::Float(match operator {
                Arithmetic::Add => left + right,
                Arithmetic::Subtract => left - right,
                Arithmetic::Multiply => left * right,
                Arithmetic::Divide => left / right,
            }),
            Some(Pair::Double(left, right)) => Value::Double(match operator {
                Arithmetic::Add => left + right,
                Arithmetic::Subtract => left - right,
                Arithmetic::Multiply => left * right,
                Arithmetic::Divide => left / right,
            }),
        })
    }

    /// Unary minus.
    pub(super) fn negate(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Int(value) => Value::Int(value.wrapping_neg()),
            Self::Long(value) => Value::Long(value.wrapping_neg()),
            Self::Float(value) => Value::Float(-value),
            Self::Double(value) => Value::Double(-value),
            _ => Value::Mismatch,
        }
    }

    /// Unary plus: numbers stay what they are.
    pub(super) fn plus(self) -> Self {
        if self.is_number() || matches!(self, Self::Null) {
            self
        } else {
            Self::Mismatch
        }
    }

    /// The value as a condition: what is neither a boolean nor NULL is false.
    pub(super) fn truth(self) -> Option<bool> {
        match self {
            Self::Null => None,
            Self::Bool(value) => Some(value),
            _ => Some(false),
        }
    }
}
