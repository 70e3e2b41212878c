//! Runs `selectors.json`: selectors, the fields of a message, and what has to come of it.
//!
//! The Python face runs the same table. An entry names the catalogue row it shows; properties and headers are plain JSON
//! (whole numbers are longs, others doubles) or an object naming the type, as in `{"int": 5}`. `expect` is true, false,
//! "unknown", "failed" (division by zero) or "error", for which `offset` is the place in characters.

use std::collections::BTreeSet;

use crate::selector::{Fields, HeaderField, Scope, Selector, Value, Verdict};
use serde_json::{Map, Value as Json};

struct JsonFields<'a> {
    headers: &'a Map<String, Json>,
    properties: &'a Map<String, Json>,
}

fn typed<'a>(kind: &str, value: &'a Json) -> Value<'a> {
    match kind {
        "byte" | "short" | "int" => Value::Int(value.as_i64().unwrap().try_into().unwrap()),
        "long" => Value::Long(value.as_i64().unwrap()),
        "float" => Value::Float(value.as_f64().unwrap() as f32),
        "double" if value == "NaN" => Value::Double(f64::NAN),
        "double" => Value::Double(value.as_f64().unwrap()),
        "char" => Value::Char(value.as_str().unwrap().chars().next().unwrap()),
        _ => panic!("no such type: {kind}"),
    }
}

fn value(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number
            .as_i64()
            .map_or(Value::Double(number.as_f64().unwrap()), Value::Long),
        Json::String(text) => Value::Text(text),
        Json::Object(object) => object.iter().next().map(|(kind, value)| typed(kind, value)).unwrap(),
        Json::Array(_) => panic!("no such value: {json}"),
    }
}

impl Fields for JsonFields<'_> {
    fn header(&self, field: HeaderField) -> Option<Value<'_>> {
        let name = match field {
            HeaderField::DeliveryMode => "JMSDeliveryMode",
            HeaderField::Priority => "JMSPriority",
            HeaderField::MessageId => "JMSMessageID",
            HeaderField::Timestamp => "JMSTimestamp",
            HeaderField::CorrelationId => "JMSCorrelationID",
            HeaderField::Type => "JMSType",
            HeaderField::Destination => "JMSDestination",
        };
        self.headers.get(name).map(value)
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.properties.get(name).map(value)
    }
}

fn entries() -> Vec<Json> {
    serde_json::from_str(include_str!("selectors.json")).unwrap()
}

fn verdict(expect: &Json) -> Verdict {
    match expect {
        Json::Bool(true) => Verdict::True,
        Json::Bool(false) => Verdict::False,
        Json::String(text) if text == "unknown" => Verdict::Unknown,
        Json::String(text) if text == "failed" => Verdict::Failed,
        other => panic!("no such expectation: {other}"),
    }
}

fn check(entry: &Json, failures: &mut Vec<String>) {
    let text = entry["selector"].as_str().unwrap();
    let scope = if entry["scope"] == "undelivered" {
        Scope::Undelivered
    } else {
        Scope::Ordinary
    };
    let empty = Map::new();
    let fields = JsonFields {
        headers: entry
            .get("headers")
            .map_or(&empty, |headers| headers.as_object().unwrap()),
        properties: entry["properties"].as_object().unwrap(),
    };
    match (Selector::parse_in(text, scope), entry["expect"] == "error") {
        (Ok(selector), false) => {
            let (found, expected) = (selector.evaluate(&fields), verdict(&entry["expect"]));
            if found != expected || selector.matches(&fields) != (expected == Verdict::True) {
                failures.push(format!("{entry}\n  gives {found:?}"));
            }
        }
        (Err(error), true) => {
            if entry
                .get("offset")
                .is_some_and(|offset| offset.as_u64() != Some(error.offset() as u64))
            {
                failures.push(format!("{entry}\n  points at {}:\n{}", error.offset(), error.render()));
            }
        }
        (Ok(_), true) => failures.push(format!("{entry}\n  is accepted")),
        (Err(error), false) => failures.push(format!("{entry}\n  is refused:\n{}", error.render())),
    }
}

/// Runs the entries of one row.
fn row(id: &str) {
    let entries: Vec<Json> = entries().into_iter().filter(|entry| entry["row"] == id).collect();
    assert!(entries.len() >= 5, "too few entries show {id}");
    let mut failures = Vec::new();
    entries.iter().for_each(|entry| check(entry, &mut failures));
    assert!(
        failures.is_empty(),
        "{} of {} fail:\n{}",
        failures.len(),
        entries.len(),
        failures.join("\n")
    );
}

// covers: EMS-CLI-A10
#[test]
fn selects_by_header_fields_and_properties_what_is_true() {
    row("EMS-CLI-A10");
}

// covers: EMS-CLI-A11
#[test]
fn identifiers_are_java_names_and_reserved_words_are_not() {
    row("EMS-CLI-A11");
}

// covers: EMS-CLI-A12
#[test]
fn literals_are_those_of_java_and_sql() {
    row("EMS-CLI-A12");
}

// covers: EMS-CLI-A13
#[test]
fn evaluation_has_three_values_and_javas_promotion() {
    row("EMS-CLI-A13");
}

// covers: EMS-CLI-A14
#[test]
fn operators_compare_and_calculate() {
    row("EMS-CLI-A14");
}

// covers: EMS-CLI-A15
#[test]
fn between_includes_its_ends() {
    row("EMS-CLI-A15");
}

// covers: EMS-CLI-A16
#[test]
fn in_looks_strings_up() {
    row("EMS-CLI-A16");
}

// covers: EMS-CLI-A17
#[test]
fn like_matches_patterns() {
    row("EMS-CLI-A17");
}

// covers: EMS-CLI-A18
#[test]
fn is_null_asks_for_absence() {
    row("EMS-CLI-A18");
}

// covers: EMS-CLI-A19
#[test]
fn white_space_separates_and_nothing_else_does() {
    row("EMS-CLI-A19");
}

// covers: EMS-MSG-A10
#[test]
fn undelivered_messages_are_selected_by_their_original_destination() {
    row("EMS-MSG-A10");
}

#[test]
fn every_entry_belongs_to_a_row_that_a_test_runs() {
    let rows: BTreeSet<String> = entries()
        .iter()
        .map(|entry| entry["row"].as_str().unwrap().to_owned())
        .collect();
    let mut run: BTreeSet<String> = (10..=19).map(|row| format!("EMS-CLI-A{row}")).collect();
    run.insert("EMS-MSG-A10".to_owned());
    assert_eq!(rows, run);
}
