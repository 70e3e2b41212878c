//! Rare data as JSON text: settings, tickets and their answers, lists and statistics.

use crate::engine::{self, Answer, Limits, Question, Refused, Settings, TicketRequest, refuse};
use crate::log::{RecoveryReport, Space};
use crate::name::Pattern;
use crate::proto::{Error, ErrorCode, credentials};
use crate::snapshot::keeper::Bounds;
use crate::state::{
    Destination, DestinationId, Kind, Origin, OverflowPolicy, Properties, SourceId, StateOptions, Subscription,
    Unwanted,
};
use serde_json::{Map, Value, json};

/// What a record holds beside a message: who it is for.
const RECORD_SLACK_BYTES: u64 = 1 << 20;
/// Damaged places that statistics name; the others are counted.
const DAMAGE_TOLD: usize = 16;

/// What `Engine.open` was told.
pub(super) struct Opening {
    pub(super) settings: Settings,
    pub(super) options: StateOptions,
    pub(super) bounds: Bounds,
}

pub(super) fn invalid(subject: &str, message: impl Into<String>) -> Refused {
    refuse(ErrorCode::InvalidArgument, subject, message)
}

pub(super) fn parse(text: &str, what: &str) -> Result<Value, Refused> {
    serde_json::from_str(text).map_err(|error| invalid(what, format!("The JSON cannot be read: {error}.")))
}

/// A whole number of an object; `None` if it is not there or null.
pub(super) fn number(object: &Value, key: &str) -> Result<Option<u64>, Refused> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(key, format!("{key} has to be a whole number, not {value}."))),
        },
    }
}

pub(super) fn text(object: &Value, key: &str) -> String {
    object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) fn flag(object: &Value, key: &str) -> bool {
    object.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn narrow(key: &str, value: u64) -> Result<u32, Refused> {
    u32::try_from(value).map_err(|_| invalid(key, format!("{key} is larger than {}.", u32::MAX)))
}

/// Reads the settings; what they do not name keeps its default.
pub(super) fn opening(settings: &str) -> Result<Opening, Refused> {
    let object = parse(settings, "settings")?;
    let mut made = Settings::default();
    let broker = text(&object, "broker");
    if !broker.is_empty() {
        made.broker = broker;
    }
    let product = text(&object, "product");
    if !product.is_empty() {
        made.product = product;
    }
    if let Some(limits) = object.get("limits") {
        read_limits(limits, &mut made.limits)?;
    }
    for (key, field) in [
        ("idle_heartbeat_ms", &mut made.heartbeat_ms),
        ("heartbeat_ms_min", &mut made.heartbeat_ms_min),
        ("heartbeat_ms_max", &mut made.heartbeat_ms_max),
        ("dynamic_idle_ms", &mut made.dynamic_idle_ms),
    ] {
        if let Some(value) = number(&object, key)? {
            *field = narrow(key, value)?;
        }
    }
    if let Some(value) = number(&object, "slow_consumer_ms")? {
        made.slow_consumer_ms = value;
    }
    if let Some(value) = number(&object, "hello_ms")? {
        made.hello_ms = value;
    }
    made.flow_control = flag(&object, "flow_control");
    made.cluster = text(&object, "cluster");
    let mut options = options(&object, &made)?;
    let mut bounds = Bounds::default();
    for (key, bound) in [
        ("snapshot_bytes_max", &mut bounds.bytes_max),
        ("snapshot_age_max_ms", &mut bounds.age_max_ms),
    ] {
        if let Some(value) = number(&object, key)? {
            *bound = value;
        }
    }
    // A record holds a message with its uploaded body and lies within one segment.
    let room = (options.log.segment_bytes / 2).max(64 << 10);
    made.limits.message_bytes = made.limits.message_bytes.min(u64::from(room));
    let record_bytes = made.limits.message_bytes.saturating_add(RECORD_SLACK_BYTES);
    options.log.record_bytes_max = u32::try_from(record_bytes)
        .unwrap_or(u32::MAX)
        .min(options.log.segment_bytes / 4 * 3);
    Ok(Opening {
        settings: made,
        options,
        bounds,
    })
}

fn options(object: &Value, settings: &Settings) -> Result<StateOptions, Refused> {
    let mut options = StateOptions {
        broker: settings.broker.clone(),
        ..StateOptions::default()
    };
    if let Some(value) = number(object, "segment_bytes")? {
        options.log.segment_bytes = narrow("segment_bytes", value)?;
    }
    if let Some(value) = number(object, "cache_bytes")? {
        options.log.cache_bytes = usize::try_from(value).unwrap_or(usize::MAX);
    }
    if let Some(value) = number(object, "volatile_bytes")? {
        options.volatile_bytes = value;
    }
    options.log.force_start = flag(object, "force_start");
    let store_id = text(object, "store_id");
    if !store_id.is_empty() {
        options.log.store_id = store_id_of(&store_id)?;
    }
    Ok(options)
}

fn store_id_of(text: &str) -> Result<[u8; 16], Refused> {
    let plain = text.replace('-', "");
    let wrong = || invalid("store_id", "A store's identity is 32 hexadecimal digits.");
    if plain.len() != 32 {
        return Err(wrong());
    }
    u128::from_str_radix(&plain, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| wrong())
}

fn read_limits(object: &Value, limits: &mut Limits) -> Result<(), Refused> {
    for (key, field) in [
        ("frame_bytes", &mut limits.frame_bytes),
        ("sessions", &mut limits.sessions),
        ("producers", &mut limits.producers),
        ("consumers", &mut limits.consumers),
        ("unacknowledged_messages", &mut limits.unacknowledged_messages),
        ("transaction_messages", &mut limits.transaction_messages),
        ("transactions", &mut limits.transactions),
        ("transaction_ms", &mut limits.transaction_ms),
        ("selector_bytes", &mut limits.selector_bytes),
        ("temporaries", &mut limits.temporaries),
    ] {
        if let Some(value) = number(object, key)? {
            *field = narrow(key, value)?;
        }
    }
    for (key, field) in [
        ("message_bytes", &mut limits.message_bytes),
        ("inflight_bytes", &mut limits.inflight_bytes),
        ("upload_bytes", &mut limits.upload_bytes),
    ] {
        if let Some(value) = number(object, key)? {
            *field = value;
        }
    }
    Ok(())
}

/// The recovery report. How long recovery took is measured by who asked for it.
pub(super) fn recovery(report: &RecoveryReport) -> String {
    let log = report;
    let dropped: Vec<Value> = log
        .dropped
        .iter()
        .map(|dropped| {
            json!({
                "file": dropped.file, "offset": dropped.offset, "position": dropped.position.0,
                "bytes": dropped.bytes, "records": dropped.records, "why": dropped.why,
            })
        })
        .collect();
    let renamed = log
        .renamed
        .iter()
        .map(|renamed| json!({"name": renamed.name, "messages": renamed.messages}));
    let renamed: Vec<Value> = renamed.collect();
    json!({
        "created": log.created, "clean": log.clean, "segments": log.segments, "records": log.records,
        "bytes": log.bytes, "torn_bytes": log.torn_bytes_cut, "dropped": dropped, "renamed": renamed, "manifest_computed": log.manifest_computed, "epoch": log.epoch,
        "end": log.end.0,
    })
    .to_string()
}

/// A ticket for the host.
pub(super) fn ticket(request: &TicketRequest) -> String {
    match &request.question {
        Question::Hello { hello, peer, internal } => {
            let method = hello
                .credentials
                .as_ref()
                .and_then(|credentials| credentials.method.as_ref());
            let credentials = match method {
                None => Value::Null,
                Some(credentials::Method::Password(password)) => {
                    json!({"user": password.user, "password": password.password})
                }
                Some(credentials::Method::Token(token)) => json!({"token": token}),
            };
            json!({
                "ticket": request.ticket, "kind": "hello", "stream": request.stream, "client_id": hello.client_id,
                "credentials": credentials, "product": hello.product, "host": hello.host, "peer": peer,
                "internal": internal,
            })
        }
        Question::Destination {
            kind,
            name,
            purpose,
            user,
        } => json!({
            "ticket": request.ticket, "kind": "destination", "stream": request.stream,
            "destination": kind.to_string(), "name": name.as_str(), "purpose": purpose.as_str(), "user": user,
        }),
        Question::Properties { kind, name } => json!({
            "ticket": request.ticket, "kind": "properties", "stream": request.stream,
            "destination": kind.to_string(), "name": name.as_str(),
        }),
        Question::Pattern { pattern, user } => json!({
            "ticket": request.ticket, "kind": "pattern", "stream": request.stream, "pattern": pattern, "user": user,
        }),
    }
    .to_string()
}

/// The host's answer to a ticket, which was about a destination or about a greeting.
pub(super) fn answer(text: &str, about_destination: bool) -> Result<Answer, Refused> {
    let object = parse(text, "answer")?;
    if let Some(error) = object.get("error") {
        return Ok(Answer::Refused(refusal(error)));
    }
    let ok = object
        .get("ok")
        .ok_or_else(|| invalid("answer", "An answer is either ok or an error."))?;
    if about_destination {
        properties(ok).map(Answer::Create)
    } else {
        Ok(Answer::Admitted {
            user: self::text(ok, "user"),
        })
    }
}

/// A refusal that the host has written, as text; empty: none.
pub(super) fn reason(text: &str) -> Result<Option<Refused>, Refused> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text, "reason").map(|error| Some(refusal(&error)))
}

/// A refusal that the host has written.
pub(super) fn refusal(error: &Value) -> Refused {
    let code = ErrorCode::from_str_name(&text(error, "code")).unwrap_or(ErrorCode::Internal);
    let mut refused = refuse(code, text(error, "subject"), text(error, "message"));
    let remedy = text(error, "remedy");
    if !remedy.is_empty() {
        refused.remedy = remedy;
    }
    if let Some(retryable) = error.get("retryable").and_then(Value::as_bool) {
        refused.retryable = retryable;
    }
    if let Some(addresses) = error.get("addresses").and_then(Value::as_array) {
        refused.addresses = addresses.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    refused
}

/// Effective properties of a destination, as manifests name them.
pub(super) fn properties(object: &Value) -> Result<Properties, Refused> {
    let overflow = match text(object, "overflowPolicy").as_str() {
        "" | "default" => OverflowPolicy::Default,
        "discardOld" => OverflowPolicy::DiscardOld,
        "rejectIncoming" => OverflowPolicy::RejectIncoming,
        other => {
            return Err(invalid(
                "overflowPolicy",
                format!("There is no overflow policy {other}."),
            ));
        }
    };
    let redelivery = number(object, "maxRedelivery")?.unwrap_or(0);
    let redelivery_max = u8::try_from(redelivery)
        .ok()
        .filter(|&value| value != 1)
        .ok_or_else(|| {
            invalid(
                "maxRedelivery",
                format!("maxRedelivery is 0 or from 2 to 255, not {redelivery}."),
            )
        })?;
    Ok(Properties {
        expiration_ms: number(object, "expirationMs")?,
        messages_max: number(object, "maxMessages")?.unwrap_or(0),
        bytes_max: number(object, "maxBytes")?.unwrap_or(0),
        overflow,
        flow_control_bytes: number(object, "flowControlBytes")?.unwrap_or(0),
        prefetch: narrow("prefetch", number(object, "prefetch")?.unwrap_or(0))?,
        redelivery_max,
        redelivery_delay_ms: number(object, "redeliveryDelayMs")?.unwrap_or(0),
        dead_letter: text(object, "deadLetterQueue"),
        exclusive: flag(object, "exclusive"),
        sender_name: flag(object, "senderName"),
        sender_name_enforced: flag(object, "senderNameEnforced"),
        store: text(object, "store"),
        shown: object.to_string(),
    })
}

const fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Static => "static",
        Origin::Dynamic => "dynamic",
        Origin::Temporary => "temporary",
        Origin::System => "system",
    }
}

fn shown(properties: &Properties) -> Value {
    let mut object = serde_json::from_str(&properties.shown).unwrap_or_else(|_| Value::Object(Map::new()));
    let overflow = match properties.overflow {
        OverflowPolicy::Default => "default",
        OverflowPolicy::DiscardOld => "discardOld",
        OverflowPolicy::RejectIncoming => "rejectIncoming",
    };
    if let Some(object) = object.as_object_mut() {
        object.insert("expirationMs".into(), json!(properties.expiration_ms));
        object.insert("maxMessages".into(), json!(properties.messages_max));
        object.insert("maxBytes".into(), json!(properties.bytes_max));
        object.insert("overflowPolicy".into(), json!(overflow));
        object.insert("flowControlBytes".into(), json!(properties.flow_control_bytes));
        object.insert("prefetch".into(), json!(properties.prefetch));
        object.insert("maxRedelivery".into(), json!(properties.redelivery_max));
        object.insert("redeliveryDelayMs".into(), json!(properties.redelivery_delay_ms));
        object.insert("deadLetterQueue".into(), json!(properties.dead_letter));
        object.insert("exclusive".into(), json!(properties.exclusive));
        object.insert("senderName".into(), json!(properties.sender_name));
        object.insert("senderNameEnforced".into(), json!(properties.sender_name_enforced));
        let store = if properties.store.is_empty() {
            "$sys.failsafe"
        } else {
            &properties.store
        };
        object.insert("store".into(), json!(store));
    }
    object
}

/// Rows of one kind, by name, behind `after`.
pub(super) fn list(
    engine: &mut engine::Engine,
    kind: &str,
    pattern: &str,
    after: &str,
    limit: usize,
) -> Result<String, Refused> {
    let pattern = match pattern {
        "" => None,
        pattern => Some(Pattern::parse(pattern).map_err(|error| invalid("pattern", format!("{error}.")))?),
    };
    let wanted = |name: &str| name > after && pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
    let catalogue = engine.state().catalogue();
    // Names first, rows of those that are wanted afterwards: a page costs little beside a hundred thousand names.
    let mut keys: Vec<(String, Row)> = match kind {
        "queue" | "topic" => {
            let kind = if kind == "queue" { Kind::Queue } else { Kind::Topic };
            let all = catalogue
                .destinations()
                .filter(|found| found.kind == kind && wanted(found.name.as_str()));
            all.map(|found| (found.name.as_str().to_owned(), Row::Destination(found.id)))
                .collect()
        }
        "durable" => {
            let durables = catalogue.subscriptions().filter(|found| found.durable);
            let keyed = durables.map(|found| (format!("{}/{}", found.client_id, found.name), found));
            let kept = keyed.filter(|(key, found)| {
                key.as_str() > after && pattern.as_ref().is_none_or(|pattern| pattern.matches(&found.name))
            });
            kept.map(|(key, found)| (key, Row::Source(found.id))).collect()
        }
        // Those that last as long as their consumers have no name of their own: they are told apart by their numbers.
        "subscription" => {
            let keyed = catalogue
                .subscriptions()
                .map(|found| (format!("{:020}", found.id.0), found));
            let kept = keyed.filter(|(key, found)| {
                key.as_str() > after && pattern.as_ref().is_none_or(|pattern| pattern.matches(&found.name))
            });
            kept.map(|(key, found)| (key, Row::Source(found.id))).collect()
        }
        _ => {
            return Err(invalid(
                "kind",
                "Queues, topics, durables and subscriptions can be listed.",
            ));
        }
    };
    keys.sort_unstable_by(|left, right| left.0.cmp(&right.0));
    keys.truncate(limit);
    let rows = keys.into_iter().filter_map(|(_, id)| {
        let (mut row, totals) = match id {
            Row::Destination(id) => {
                let row = engine.state().destination_by_id(id).map(destination_row)?;
                (row, engine.destination_totals(id))
            }
            Row::Source(id) => {
                let row = engine.state().catalogue().subscription(id).map(subscription_row)?;
                (row, engine.source_totals(id))
            }
        };
        row["statistics"] = totals_json(&totals);
        Some(row)
    });
    Ok(Value::Array(rows.collect()).to_string())
}

enum Row {
    Destination(DestinationId),
    Source(SourceId),
}

fn destination_row(found: &Destination) -> Value {
    json!({
        "name": found.name.as_str(), "kind": found.kind.to_string(), "id": found.id.0,
        "generation": found.generation, "origin": origin(found.origin),
        "static": matches!(found.origin, Origin::Static | Origin::System),
        "properties": shown(&found.properties),
    })
}

fn subscription_row(found: &Subscription) -> Value {
    json!({
        "name": found.name, "client_id": found.client_id, "topic": found.pattern.as_str(),
        "selector": found.selector_text, "no_local": found.unwanted != Unwanted::Nobody,
        "shared": found.shared, "static": found.is_static, "source": found.id.0,
        "origin": if found.is_static { "static" } else { "dynamic" },
    })
}

fn totals_json(totals: &engine::Totals) -> Value {
    json!({
        "messages": totals.messages, "bytes": totals.bytes, "delivered_messages": totals.delivered_messages,
        "delayed_messages": totals.delayed_messages, "pending_messages": totals.pending_messages,
        "redelivery_delayed_messages": totals.redelivery_delayed_messages,
        "durable_messages": totals.durable_messages, "durable_pending_messages": totals.durable_pending_messages,
        "flow_controlled_sessions": totals.flow_controlled_sessions,
        "producers": totals.producers, "consumers": totals.consumers,
        "subscriptions": totals.subscriptions, "published_total": totals.published_total,
        "published_bytes_total": totals.published_bytes_total, "delivered_total": totals.delivered_total,
        "acknowledged_total": totals.acknowledged_total, "redelivered_total": totals.redelivered_total,
        "expired_total": totals.expired_total, "discarded_total": totals.discarded_total,
        "undelivered_total": totals.undelivered_total, "oldest_ms": totals.oldest_ms,
    })
}

/// How many took at most each bound, those below included, and what all took together.
fn histogram(times: &engine::Histogram) -> Value {
    let mut below = 0;
    let buckets = times.counts().map(|(bound_us, count)| {
        below += count;
        json!([bound_us, below])
    });
    json!({"buckets": buckets.collect::<Vec<_>>(), "sum_us": times.sum_us()})
}

/// What the broker as a whole is and does.
pub(super) fn statistics(
    engine: &engine::Engine,
    commits: u64,
    commit_times: Option<&engine::Histogram>,
    failed: Option<&str>,
) -> String {
    let figures = engine.figures();
    let state = engine.state();
    let counts = engine.counts();
    let broker = engine.broker_totals();
    let log = state.log();
    let (segments, disk_bytes) = log.disk_use();
    let (needed_bytes, wanted_bytes) = log.to_set_aside();
    let (scrubbed, rounds) = log.scrubbed_total();
    let damage: Vec<Value> = log
        .damaged_places()
        .iter()
        .take(DAMAGE_TOLD)
        .map(
            |place| json!({"file": place.file, "offset": place.offset, "position": place.position.0, "why": place.why}),
        )
        .collect();
    let stores: Vec<Value> = state
        .stores()
        .all()
        .iter()
        .map(|store| {
            json!({
                "name": store.name, "mode": if store.sync { "sync" } else { "async" }, "messages": store.messages,
                "bytes": store.bytes, "quota_bytes": store.quota_bytes,
            })
        })
        .collect();
    json!({
        "broker": engine.settings().broker, "started_ms": engine.started().wall_ms, "epoch": state.epoch(),
        "store_id": engine::hexadecimal(&state.store_id()), "failed": failed,
        "out_of_space": log.space() == Space::Full, "log": {
            "commits_total": commits, "commit_records_total": log.records_written(),
            "start_position": log.start().0, "end_position": state.end().0, "durable_position": state.committed().0,
            "damaged_places": log.damaged_total(), "damage": damage, "shortage": log.shortage(),
            "scrubbed_records_total": scrubbed, "scrub_rounds_total": rounds,
            "segments": segments, "disk_bytes": disk_bytes, "needed_bytes": needed_bytes, "wanted_bytes": wanted_bytes,
            "rolling_hash": format!("{:016x}", log.rolling_hash().value),
        },
        "commit_times": commit_times.map(histogram), "confirm_times": histogram(&figures.confirms),
        "refused": figures.refused, "cut": figures.cut,
        "uploaded_bytes_total": figures.uploaded_bytes, "uploads_resumed_total": figures.uploads_resumed,
        "uploads_kept_bytes": engine.kept_upload_bytes(),
        "stores": stores, "connections": counts.connections, "sessions": counts.sessions,
        "producers": counts.producers, "consumers": counts.consumers, "queues": broker.queues,
        "topics": broker.topics, "subscriptions": broker.subscriptions, "messages": broker.totals.messages + broker.totals.redelivery_delayed_messages,
        "pending_messages": broker.totals.pending_messages, "bytes": broker.totals.bytes,
        "published_total": broker.totals.published_total,
        "delivered_total": broker.totals.delivered_total, "acknowledged_total": broker.totals.acknowledged_total,
    })
    .to_string()
}

/// What went without being taken, since the start: by reason, and by place of as many as are kept.
pub(super) fn destroyed(engine: &engine::Engine) -> String {
    let destroyed = engine.state().destroyed();
    let totals: Map<String, Value> = destroyed
        .totals()
        .map(|(reason, messages)| (reason.to_owned(), json!(messages)))
        .collect();
    let places: Vec<Value> = destroyed
        .places()
        .map(|lost| json!({"name": lost.name, "reason": lost.reason, "messages": lost.messages}))
        .collect();
    json!({"totals": totals, "places": places, "elsewhere": destroyed.elsewhere()}).to_string()
}

/// Who is connected.
pub(super) fn connections(engine: &engine::Engine) -> String {
    let rows: Vec<Value> = engine
        .connections()
        .into_iter()
        .map(|row| {
            json!({
                "id": row.id, "client_id": row.client_id, "user": row.user, "product": row.product, "host": row.host,
                "peer": row.peer, "connected_ms": row.connected_ms, "streams": row.streams, "sessions": row.sessions,
                "producers": row.producers, "consumers": row.consumers,
                "unacknowledged_messages": row.unacknowledged_messages,
                "uncommitted_messages": row.uncommitted.messages, "uncommitted_bytes": row.uncommitted.bytes,
                "published_total": row.published_total,
                "delivered_total": row.delivered_total,
            })
        })
        .collect();
    Value::Array(rows).to_string()
}

/// An error as answers carry it.
pub(super) fn error(error: &Error) -> Value {
    json!({
        "code": error.code().as_str_name(), "subject": error.subject, "message": error.message,
        "remedy": error.remedy, "retryable": error.retryable,
    })
}
