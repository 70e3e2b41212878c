//! `sterna_core.Engine`: the class that the broker drives. Meant for one thread at a time; `open` and `stop` take long
//! and release the GIL, so they may be called from another thread than the event loop's.

use super::executing::Executing;
#[cfg(feature = "sim")]
use super::simulated;
use super::{configuration_json, errors, json, snapshots};
use crate::engine::{self, Refused, Settings, refuse};
use crate::host::Host;
use crate::log::FileDisk;
use crate::log::disk::Disk;
use crate::proto::ErrorCode;
use crate::snapshot::keeper::Keeper;
use crate::state::{Kind, Now, Start, State, StateError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module's documentation and the stub.
#[pyclass(frozen, module = "sterna_core._core")]
pub(super) struct Engine {
    /// `None` once it is stopped, or after a panic: then nothing of it can be trusted.
    host: Mutex<Option<Host<Executing>>>,
    /// What recovery found, as JSON.
    recovery: String,
}

impl Engine {
    pub(super) fn over(host: Host<Executing>, recovery: String) -> Self {
        Self {
            host: Mutex::new(Some(host)),
            recovery,
        }
    }

    /// The host, which from now on is the caller's alone; none: it is stopped.
    pub(super) fn take(&self) -> Option<Host<Executing>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Host<Executing>>> {
        // A panic is caught before it can poison the lock.
        self.host.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Runs something with the host. A panic in it is a defect: it becomes an error, and the engine is gone.
    pub(super) fn with<T>(&self, py: Python<'_>, run: impl FnOnce(&mut Host<Executing>) -> T) -> PyResult<T> {
        let mut guard = self.lock();
        let Some(host) = guard.as_mut() else {
            return Err(errors::internal(py, "The engine is stopped."));
        };
        match catch_unwind(AssertUnwindSafe(|| run(host))) {
            Ok(value) => Ok(value),
            Err(_) => {
                // Dropped without a clean stop: what is on disk is what was confirmed, and the next start recovers it.
                let broken = guard.take();
                drop(guard);
                std::mem::forget(broken);
                Err(errors::internal(
                    py,
                    "The engine has met a defect of its own and is stopped.",
                ))
            }
        }
    }
}

/// Random bytes of the system's.
fn random<const BYTES: usize>(py: Python<'_>) -> PyResult<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled == Ok(BYTES) {
        Ok(bytes)
    } else {
        Err(errors::internal(py, "The system gave no random bytes."))
    }
}

/// An engine over the store on a disk, and what recovery found, as JSON.
pub(super) fn opened(
    disk: Arc<dyn Disk>,
    mut opening: json::Opening,
    start: Start,
    secret: [u8; 32],
    now: Now,
) -> Result<(engine::Engine, String), StateError> {
    opening.options.start = start;
    let settings = Settings {
        secret,
        ..opening.settings
    };
    let (mut state, report) = State::open(disk.clone(), opening.options, now)?;
    // Before any upkeep: what it claims may not be rewritten first.
    let keeper = Keeper::open(disk, &mut state, opening.bounds)?;
    let engine = engine::Engine::new(state, settings, now).with_snapshots(keeper);
    Ok((engine, json::recovery(&report)))
}

/// What `poll` returns; see the stub.
type PolledForPython = (Vec<u64>, Vec<String>, Option<u64>, Option<String>);

#[pymethods]
impl Engine {
    #[staticmethod]
    fn open(py: Python<'_>, folder: String, settings: &str, wall_ms: u64, monotonic_ms: u64) -> PyResult<Self> {
        let secret = random(py)?;
        let opening = json::opening(settings).map_err(|error| errors::refused(py, &error))?;
        // 0 would be none.
        let id = u64::from_le_bytes(random(py)?).max(1);
        let start = Start {
            id,
            secret: random(py)?,
        };
        let now = Now { wall_ms, monotonic_ms };
        let engine = py.detach(move || {
            let disk = Arc::new(FileDisk::new(std::path::Path::new(&folder))?);
            opened(disk, opening, start, secret, now)
        });
        let (engine, recovery) = engine.map_err(|error| errors::store(py, &error))?;
        Ok(Self::over(Host::new(engine, Executing::start()?), recovery))
    }

    fn recovery(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |_| self.recovery.clone())
    }

    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |host| host.executor().fileno())
    }

    fn tick(&self, py: Python<'_>, wall_ms: u64, monotonic_ms: u64) -> PyResult<()> {
        self.with(py, |host| host.tick(Now { wall_ms, monotonic_ms }))
    }

    #[pyo3(signature = (stream, peer, internal = false))]
    fn open_stream(&self, py: Python<'_>, stream: u64, peer: &str, internal: bool) -> PyResult<()> {
        self.with(py, |host| host.engine_mut().open_stream(stream, peer, internal))
    }

    fn handle(&self, py: Python<'_>, stream: u64, batch: &[u8]) -> PyResult<()> {
        self.with(py, |host| host.handle(stream, batch))
    }

    fn close_stream(&self, py: Python<'_>, stream: u64) -> PyResult<()> {
        self.with(py, |host| host.engine_mut().close_stream(stream))
    }

    fn poll(&self, py: Python<'_>) -> PyResult<PolledForPython> {
        let (polled, failed) = self.with(py, |host| (host.poll(), host.failed().map(str::to_owned)))?;
        Ok((
            polled.ready,
            polled.tickets.iter().map(json::ticket).collect(),
            polled.deadline_ms,
            failed,
        ))
    }

    fn take_output<'py>(
        &self,
        py: Python<'py>,
        stream: u64,
        max_bytes: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let output = self.with(py, |host| host.take_output(stream, max_bytes))?;
        Ok(output.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn is_closing(&self, py: Python<'_>, stream: u64) -> PyResult<bool> {
        self.with(py, |host| host.engine().is_closing(stream))
    }

    fn ended_for<'py>(&self, py: Python<'py>, stream: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let error = self.with(py, |host| {
            host.engine().ended_for(stream).map(prost::Message::encode_to_vec)
        })?;
        Ok(error.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn answer(&self, py: Python<'_>, ticket: u64, answer: &str) -> PyResult<()> {
        let asked = self.with(py, |host| host.engine().asks_about_destination(ticket))?;
        let answer = json::answer(answer, asked).map_err(|error| errors::refused(py, &error))?;
        self.with(py, |host| host.engine_mut().answer(ticket, answer))
    }

    fn configure(&self, py: Python<'_>, configuration: &str) -> PyResult<String> {
        let parsed = configuration_json::parse(configuration).map_err(|error| errors::refused(py, &error))?;
        self.with(py, |host| {
            configuration_json::outcome(&host.engine_mut().configure(parsed))
        })
    }

    fn reconfigure(&self, py: Python<'_>, changes: &str) -> PyResult<String> {
        let parsed = configuration_json::parse_changes(changes).map_err(|error| errors::refused(py, &error))?;
        self.with(py, |host| {
            configuration_json::outcome(&host.engine_mut().reconfigure(parsed))
        })
    }

    #[pyo3(signature = (kind, name, with_messages, client_id = "", reason = ""))]
    fn delete(
        &self,
        py: Python<'_>,
        kind: &str,
        name: &str,
        with_messages: bool,
        client_id: &str,
        reason: &str,
    ) -> PyResult<u64> {
        let reason = json::reason(reason).map_err(|error| errors::refused(py, &error))?;
        let deleted = self.with(py, |host| match (kind, &reason) {
            ("durable", _) => host.engine_mut().delete_durable(client_id, name, with_messages),
            (kind, None) => kind_of(kind).and_then(|kind| host.engine_mut().delete(kind, name, with_messages)),
            (kind, Some(reason)) => {
                kind_of(kind).and_then(|kind| host.engine_mut().delete_for(kind, name, with_messages, reason))
            }
        })?;
        deleted.map_err(|error| errors::refused(py, &error))
    }

    fn close_to_producers(&self, py: Python<'_>, kind: &str, name: &str, reason: &str) -> PyResult<()> {
        let reason = json::reason(reason).map_err(|error| errors::refused(py, &error))?;
        let closed = self.with(py, |host| {
            kind_of(kind).and_then(|kind| host.engine_mut().close_to_producers(kind, name, reason))
        })?;
        closed.map_err(|error| errors::refused(py, &error))
    }

    fn serve_elsewhere(&self, py: Python<'_>, kind: &str, name: &str, reason: &str) -> PyResult<()> {
        let reason = json::reason(reason).map_err(|error| errors::refused(py, &error))?;
        let told = self.with(py, |host| {
            kind_of(kind).and_then(|kind| host.engine_mut().serve_elsewhere(kind, name, reason))
        })?;
        told.map_err(|error| errors::refused(py, &error))
    }

    fn close_subscribers(&self, py: Python<'_>, topic: &str, reason: &str) -> PyResult<()> {
        let reason = json::reason(reason).map_err(|error| errors::refused(py, &error))?;
        self.with(py, |host| {
            if let Some(reason) = &reason {
                host.engine_mut().close_subscribers(topic, reason);
            }
        })
    }

    #[pyo3(signature = (kind, name, client_id = ""))]
    fn purge(&self, py: Python<'_>, kind: &str, name: &str, client_id: &str) -> PyResult<u64> {
        let purged = self.with(py, |host| match kind {
            "queue" => host.engine_mut().purge_queue(name),
            "topic" => host.engine_mut().purge_topic(name),
            "durable" => host.engine_mut().purge_durable(client_id, name),
            _ => Err(refuse(
                ErrorCode::InvalidArgument,
                "kind",
                "Only a queue, a topic or a durable can be purged.",
            )),
        })?;
        purged.map_err(|error| errors::refused(py, &error))
    }

    #[pyo3(signature = (kind, pattern = "", after = "", limit = 1000))]
    fn list(&self, py: Python<'_>, kind: &str, pattern: &str, after: &str, limit: usize) -> PyResult<String> {
        let rows = self.with(py, |host| json::list(host.engine_mut(), kind, pattern, after, limit))?;
        rows.map_err(|error| errors::refused(py, &error))
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |host| {
            json::statistics(host.engine(), host.commits(), host.commit_times(), host.failed())
        })
    }

    /// Where the log ends, up to where it is durable, and why it will not be any further.
    fn log_progress(&self, py: Python<'_>) -> PyResult<(u64, u64, Option<String>)> {
        self.with(py, |host| {
            let state = host.engine().state();
            (state.end().0, state.committed().0, host.failed().map(str::to_owned))
        })
    }

    fn destroyed(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |host| json::destroyed(host.engine()))
    }

    /// How many damaged places of the log were found since the start.
    fn damaged_places(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |host| host.engine().state().log().damaged_total())
    }

    fn connections(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |host| json::connections(host.engine()))
    }

    fn close_connection(&self, py: Python<'_>, connection: u64, reason: &str) -> PyResult<bool> {
        self.with(py, |host| host.engine_mut().close_connection(connection, reason))
    }

    fn go_away(&self, py: Python<'_>, reason_code: &str, addresses: Vec<String>, grace_ms: u32) -> PyResult<()> {
        let code = ErrorCode::from_str_name(reason_code)
            .ok_or_else(|| errors::internal(py, "There is no error code of this name."))?;
        self.with(py, |host| host.engine_mut().go_away(code, &addresses, grace_ms))
    }

    #[cfg(feature = "sim")]
    #[staticmethod]
    fn open_simulated(
        py: Python<'_>,
        disk: &simulated::SimulatedDisk,
        secret: &[u8],
        settings: &str,
        wall_ms: u64,
        monotonic_ms: u64,
    ) -> PyResult<Self> {
        simulated::open(py, disk, secret, settings, Now { wall_ms, monotonic_ms })
    }

    #[cfg(feature = "sim")]
    fn jobs(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        self.with(py, |host| simulated::jobs(host.executor()))
    }

    #[cfg(feature = "sim")]
    fn run_job(&self, py: Python<'_>, worker: &str) -> PyResult<bool> {
        simulated::run_job(py, self, worker)
    }

    #[cfg(feature = "sim")]
    fn kill(&self) {
        drop(self.take());
    }

    fn begin_cut(&self, py: Python<'_>) -> PyResult<String> {
        let begun = self.with(py, |host| snapshots::begin(host.engine_mut()))?;
        begun.map_err(|error| errors::refused(py, &error))
    }

    fn cut_progress(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |host| snapshots::progress(host.engine_mut()))
    }

    fn confirm_cut(&self, py: Python<'_>, number: u64, manifest: &[u8]) -> PyResult<u64> {
        let confirmed = self.with(py, |host| snapshots::confirm(host.engine_mut(), number, manifest))?;
        confirmed.map_err(|error| errors::refused(py, &error))
    }

    fn open_cut(&self, py: Python<'_>, number: u64) -> PyResult<snapshots::CutReader> {
        let reader = self.with(py, |host| snapshots::open(host.engine_mut(), number))?;
        reader.map_err(|error| errors::refused(py, &error))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(host) = self.take() else { return Ok(()) };
        py.detach(move || host.stop())
            .map_err(|error| errors::store(py, &error))
    }
}

/// A kind of destination by its word.
pub(super) fn kind_of(kind: &str) -> Result<Kind, Refused> {
    match kind {
        "queue" => Ok(Kind::Queue),
        "topic" => Ok(Kind::Topic),
        _ => Err(refuse(
            ErrorCode::InvalidArgument,
            "kind",
            "A destination is a queue or a topic.",
        )),
    }
}
