//! Figures of the state layer alone: memory of a queued message, and messages a second through publish, deliver and
//! acknowledge, each with and without the time that the writes take. Run it with
//! `cargo run --release --features sim --example state_bench [MESSAGES]`.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use sterna_core::log::{FileDisk, Options};
use sterna_core::message::MessageView;
use sterna_core::name::DestinationName;
use sterna_core::state::{Cursor, Incoming, Kind, Next, Now, Origin, Properties, State, StateOptions};
use sterna_core::wire::{put_bytes_field, put_varint_field};

const BATCH: u64 = 64;

fn message(text_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for name in ["origin", "carrier", "delay"] {
        let mut value = Vec::new();
        put_bytes_field(&mut value, 8, b"JFK");
        let mut property = Vec::new();
        put_bytes_field(&mut property, 1, name.as_bytes());
        put_bytes_field(&mut property, 2, &value);
        put_bytes_field(&mut out, 8, &property);
    }
    put_varint_field(&mut out, 16, 0);
    put_bytes_field(&mut out, 10, &vec![b'x'; text_bytes]);
    out
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

/// Writes what is pending and does the upkeep; says how long that took.
fn write(state: &mut State) -> Duration {
    let start = Instant::now();
    while let Some(job) = state.next_write().unwrap() {
        let done = job.run();
        state.complete_write(done).unwrap();
    }
    while let Some(job) = state.maintenance().unwrap() {
        let done = job.run();
        state.complete_maintenance(done).unwrap();
    }
    start.elapsed()
}

fn report(what: &str, messages: u64, all: Duration, disk: Duration) {
    let rate = |time: Duration| messages as f64 / time.as_secs_f64() / 1e6;
    println!(
        "{what}: {:.2} M/s without the disk, {:.2} M/s with it",
        rate(all - disk),
        rate(all)
    );
}

#[expect(clippy::too_many_lines, reason = "a script, from begin to end")]
fn main() {
    let messages: u64 = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1_000_000);
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FileDisk::new(folder.path()).unwrap());
    let options = StateOptions {
        log: Options::default(),
        ..StateOptions::default()
    };
    let (mut state, _) = State::open(
        disk,
        options,
        Now {
            wall_ms: 1_700_000_000_000,
            monotonic_ms: 1,
        },
    )
    .unwrap();
    write(&mut state);
    for number in 0..10_000 {
        let name = DestinationName::parse(&format!("other.{number}")).unwrap();
        state
            .ensure_destination(Kind::Queue, &name, Origin::Dynamic, Properties::default())
            .unwrap();
    }
    let name = DestinationName::parse("bench").unwrap();
    let queue = state
        .ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default())
        .unwrap();
    write(&mut state);

    let bytes = message(1024);
    let producer = state.next_incarnation().unwrap();
    let before = resident_bytes();
    let (start, mut on_disk) = (Instant::now(), Duration::ZERO);
    for sequence in 1..=messages {
        let view = MessageView::parse(&bytes).unwrap();
        let incoming = Incoming {
            view: &view,
            uploaded: &[],
            incarnation: producer,
            sequence,
            connection: 1,
            client_id: "",
            user: "",
            transaction: None,
            may_be_again: false,
        };
        state.publish(queue, &incoming).unwrap();
        if sequence % (BATCH * 16) == 0 {
            on_disk += write(&mut state);
        }
    }
    on_disk += write(&mut state);
    report("publish", messages, start.elapsed(), on_disk);
    println!(
        "memory: {:.1} B a queued message in entries; resident {:.1} B a message with a cache of 64 MiB",
        state.memory_bytes() as f64 / messages as f64,
        resident_bytes().saturating_sub(before) as f64 / messages as f64,
    );

    state.attach(queue.source(), false);
    write(&mut state);
    let (start, mut on_disk) = (Instant::now(), Duration::ZERO);
    let (mut cursor, mut done, mut first) = (Cursor::default(), 0, None);
    while done < messages {
        match state.next_ready(queue.source(), &mut cursor, None) {
            Next::Ready { sequence, priority, .. } => {
                state.deliver(queue.source(), priority, sequence, 1).unwrap();
                let from = *first.get_or_insert(sequence);
                done += 1;
                if sequence - from + 1 >= BATCH || done == messages {
                    state
                        .acknowledge(queue.source(), &[(from, sequence)], |holder| holder == 1, None)
                        .unwrap();
                    first = None;
                }
                if done % (BATCH * 16) == 0 {
                    on_disk += write(&mut state);
                }
            }
            _ => on_disk += write(&mut state),
        }
    }
    on_disk += write(&mut state);
    report(
        "deliver and acknowledge (without payloads)",
        messages,
        start.elapsed(),
        on_disk,
    );
    println!("left: {} messages", state.held_messages(queue));
}
