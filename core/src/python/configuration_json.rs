//! The compiled configuration as JSON, and what became of it.

use super::face::kind_of;
use super::json::{error, flag, invalid, number, parse as parse_json, properties, text};
use crate::engine::{Change, Changes, Configuration, Configured, DurableDefinition, Refused};
use crate::name::{DestinationName, Pattern};
use crate::selector::{Scope, Selector};
use crate::state::{Bridge, BridgeTarget, Kind, StoreDefinition};
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads a whole configuration; the first thing wrong with it refuses all of it.
pub(super) fn parse(configuration: &str) -> Result<Configuration, Refused> {
    let object = parse_json(configuration, "configuration")?;
    let mut parsed = Configuration::default();
    for (key, kind) in [("queues", Kind::Queue), ("topics", Kind::Topic)] {
        for row in rows(&object, key) {
            let name = text(row, "name");
            let name = DestinationName::parse(&name).map_err(|error| invalid(&name, format!("{error}.")))?;
            parsed.destinations.push((kind, name, properties(row)?));
        }
    }
    for row in rows(&object, "temporaries") {
        parsed
            .temporaries
            .push((kind_of(&text(row, "kind"))?, properties(row)?));
    }
    for row in rows(&object, "bridges") {
        parsed.bridges.push(bridge(row)?);
    }
    for row in rows(&object, "durables") {
        parsed.durables.push(durable(row)?);
    }
    for row in rows(&object, "stores") {
        parsed.stores.push(StoreDefinition {
            name: text(row, "name"),
            sync: text(row, "mode") != "async",
            quota_bytes: number(row, "quota_bytes")?.unwrap_or(0),
        });
    }
    Ok(parsed)
}

/// Reads what is different from the configuration before; the first thing wrong with it refuses all of it.
pub(super) fn parse_changes(changes: &str) -> Result<Changes, Refused> {
    let object = parse_json(changes, "changes")?;
    let Configuration {
        destinations,
        temporaries,
        bridges,
        durables,
        stores,
    } = parse(changes)?;
    let mut parsed = Changes {
        destinations,
        temporaries,
        bridges: object.get("bridges").is_some().then_some(bridges),
        durables,
        stores,
        inherited: flag(&object, "inherited"),
        ..Changes::default()
    };
    let removed = object.get("removed").unwrap_or(&Value::Null);
    for (key, kind) in [("queues", Kind::Queue), ("topics", Kind::Topic)] {
        for row in rows(removed, key) {
            let name = text(row, "name");
            let name = DestinationName::parse(&name).map_err(|error| invalid(&name, format!("{error}.")))?;
            parsed.removed_destinations.push((kind, name));
        }
    }
    for row in rows(removed, "durables") {
        parsed
            .removed_durables
            .push((text(row, "client_id"), text(row, "name")));
    }
    Ok(parsed)
}

fn durable(row: &Value) -> Result<DurableDefinition, Refused> {
    let topic = text(row, "topic");
    Ok(DurableDefinition {
        name: text(row, "name"),
        client_id: text(row, "client_id"),
        pattern: Pattern::parse(&topic).map_err(|error| invalid(&topic, format!("{error}.")))?,
        selector: selector(&text(row, "name"), &text(row, "selector"))?,
        no_local: flag(row, "no_local"),
        shared: flag(row, "shared"),
    })
}

fn rows<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn selector(subject: &str, text: &str) -> Result<Option<Arc<Selector>>, Refused> {
    Selector::parse_optional(text, Scope::Ordinary)
        .map(|selector| selector.map(Arc::new))
        .map_err(|error| invalid(subject, format!("The selector cannot be read: {error}.")))
}

fn bridge(row: &Value) -> Result<Bridge, Refused> {
    let name = text(row, "name");
    let source = row.get("source").unwrap_or(&Value::Null);
    let pattern = text(source, "name");
    let mut targets = Vec::new();
    for target in rows(row, "targets") {
        let target_name = text(target, "name");
        targets.push(BridgeTarget {
            kind: kind_of(&text(target, "kind"))?,
            name: DestinationName::parse(&target_name).map_err(|error| invalid(&target_name, format!("{error}.")))?,
            selector: selector(&name, &text(target, "selector"))?,
        });
    }
    Ok(Bridge {
        kind: kind_of(&text(source, "kind"))?,
        source: Pattern::parse(&pattern).map_err(|error| invalid(&pattern, format!("{error}.")))?,
        name,
        targets,
    })
}

/// What became of a configuration.
pub(super) fn outcome(configured: &Configured) -> String {
    let changes: Vec<Value> = configured
        .changes
        .iter()
        .map(|(kind, name, change)| {
            let change = match change {
                Change::Created => "created",
                Change::Changed => "changed",
                Change::Deleted => "deleted",
            };
            json!({"kind": kind, "name": name, "change": change})
        })
        .collect();
    let refused: Vec<Value> = configured
        .refused
        .iter()
        .map(|(kind, name, refused)| json!({"kind": kind, "name": name, "error": error(refused)}))
        .collect();
    json!({"changes": changes, "refused": refused}).to_string()
}
