//! Cuts for audits, as Python drives them: begin, wait, read piece by piece, confirm.

use super::errors;
use super::json::invalid;
use crate::engine::{Engine, Refused, of_state, refuse};
use crate::log::Position;
use crate::log::disk::Disk;
use crate::proto::ErrorCode;
use crate::snapshot::gaps::Gap;
use crate::snapshot::keeper::{KeeperError, Progress};
use crate::snapshot::pieces::{Header, Piece, Reader};
use crate::snapshot::tables;
use crate::state::MANIFEST_HASH_BYTES;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

fn refused(error: &KeeperError) -> Refused {
    let text = format!("{error}.");
    match error {
        KeeperError::State(error) => of_state(error),
        KeeperError::Disk(_) => refuse(ErrorCode::StoreFailed, "snapshot", text),
        KeeperError::NoSpace => refuse(ErrorCode::StoreFull, "snapshot", text),
        KeeperError::NoSuchCut(_) => refuse(ErrorCode::InvalidArgument, "number", text),
    }
}

fn none() -> Refused {
    refuse(ErrorCode::Internal, "snapshot", "This engine keeps nothing for audits.")
}

/// See the stub.
pub(super) fn begin(engine: &mut Engine) -> Result<String, Refused> {
    let (keeper, state) = engine.snapshots().ok_or_else(none)?;
    keeper.begin(state).map_err(|error| refused(&error))?;
    Ok(progress(engine))
}

/// See the stub.
pub(super) fn progress(engine: &mut Engine) -> String {
    let Some((keeper, state)) = engine.snapshots() else {
        return json!({"progress": "none"}).to_string();
    };
    let (bytes, since) = keeper.kept();
    let exported = state.exported();
    let mut told = match keeper.progress(state) {
        Progress::None => json!({"progress": "none"}),
        Progress::Making { number } => json!({"progress": "making", "number": number}),
        Progress::Failed(why) => json!({"progress": "failed", "why": why}),
        Progress::Ready {
            cut,
            previous,
            events,
            gaps,
        } => ready(&cut, previous, &events, &gaps),
    };
    told["kept_bytes"] = bytes.into();
    told["kept_gaps"] = keeper.gaps().into();
    told["kept_since_ms"] = since.into();
    told["half_full"] = keeper.is_half_full(state.now().wall_ms).into();
    told["exported"] = exported.map(|exported| exported.number).into();
    told.to_string()
}

fn ready(cut: &Header, previous: Option<[u8; MANIFEST_HASH_BYTES]>, events: &[Header], gaps: &[Gap]) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let ranges: Vec<Value> = events.iter().map(|one| json!([one.from.0, one.to.0])).collect();
    let gaps: Vec<Value> = gaps
        .iter()
        .map(|gap| json!({"from": gap.from.0, "to": gap.to.0, "reason": gap.why}))
        .collect();
    json!({
        "progress": "ready",
        "number": cut.number,
        "position": cut.to.0,
        "previous_position": cut.from.0,
        "epoch": cut.epoch,
        "time_ms": cut.time_ms,
        "store": hex(&cut.store_id),
        "schema": tables::SCHEMA_VERSION,
        "previous": previous.map(|hash| hex(&hash)),
        "rows": cut.rows + events.iter().map(|one| one.rows).sum::<u64>(),
        "bytes": cut.bytes + events.iter().map(|one| one.bytes).sum::<u64>(),
        "events": ranges,
        "gaps": gaps,
    })
}

/// See the stub.
pub(super) fn confirm(engine: &mut Engine, number: u64, manifest: &[u8]) -> Result<u64, Refused> {
    let wrong = |_| {
        invalid(
            "manifest",
            format!("A manifest's hash has {MANIFEST_HASH_BYTES} bytes."),
        )
    };
    let manifest = manifest.try_into().map_err(wrong)?;
    let (keeper, state) = engine.snapshots().ok_or_else(none)?;
    let Position(record) = keeper
        .confirm(state, number, manifest)
        .map_err(|error| refused(&error))?;
    Ok(record)
}

/// See the stub.
pub(super) fn open(engine: &mut Engine, number: u64) -> Result<CutReader, Refused> {
    let (keeper, state) = engine.snapshots().ok_or_else(none)?;
    match keeper.progress(state) {
        Progress::Ready { cut, events, .. } if cut.number == number => Ok(CutReader {
            disk: keeper.disk(),
            reading: Mutex::new(Reading {
                left: std::iter::once(cut).chain(events).collect(),
                reader: None,
            }),
        }),
        _ => Err(refused(&KeeperError::NoSuchCut(number))),
    }
}

/// See the stub.
#[pyfunction]
pub(super) fn cut_tables() -> String {
    let column = |(name, of, nullable): &tables::Column| json!([name, of.name(), nullable]);
    let told = |spec: &&tables::Spec| {
        let columns: Vec<Value> = spec.columns.iter().map(column).collect();
        json!({"folder": spec.folder, "name": spec.name, "columns": columns, "row_bytes": spec.row_bytes()})
    };
    Value::Array(tables::TABLES.iter().map(told).collect()).to_string()
}

struct Reading {
    left: VecDeque<Header>,
    reader: Option<Reader>,
}

/// See the stub.
#[pyclass(frozen, module = "sterna_core._core")]
pub(super) struct CutReader {
    disk: Arc<dyn Disk>,
    reading: Mutex<Reading>,
}

impl CutReader {
    fn next_piece(&self) -> Result<Option<Piece>, String> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(reader) = &mut reading.reader {
                match reader.next_piece() {
                    Ok(Some(piece)) => return Ok(Some(piece)),
                    Ok(None) => reading.reader = None,
                    Err(error) => return Err(error.to_string()),
                }
                continue;
            }
            let Some(header) = reading.left.pop_front() else {
                return Ok(None);
            };
            let opened = Reader::of(self.disk.as_ref(), &header).map_err(|error| error.to_string())?;
            // It was given up for space, or exported by somebody else, between the question and now.
            let gone = || format!("{} is not there any more", header.file_name());
            reading.reader = Some(opened.ok_or_else(gone)?);
        }
    }
}

/// What Python gets of a piece.
type Told<'py> = (&'static str, &'static str, u32, Bound<'py, PyBytes>);

#[pymethods]
impl CutReader {
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Told<'py>>> {
        let found = py.detach(|| self.next_piece());
        let piece =
            found.map_err(|why| errors::refused(py, &refuse(ErrorCode::StoreFailed, "snapshot", format!("{why}."))))?;
        let Some(piece) = piece else { return Ok(None) };
        let Some(spec) = tables::table(piece.table) else {
            return Err(errors::internal(py, "A piece is of no table that there is."));
        };
        Ok(Some((
            spec.folder,
            spec.name,
            piece.rows,
            PyBytes::new(py, &piece.stream),
        )))
    }
}
