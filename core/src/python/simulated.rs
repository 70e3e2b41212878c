//! Simulations from Python, in builds with the feature `sim`: a disk in memory that outlives the engines on it and forgets
//! by a seed what was not synced, and engines on it whose jobs run when they are told to.
//!
//! No wheel that is shipped has this: `tools/wheels.sh` builds without the feature and looks.

use super::face::{self, Engine};
use super::{errors, json};
use crate::engine::Histogram;
use crate::host::{Chore, ChoreDone, Executor, Host, Threads};
use crate::log::{WriteDone, WriteJob};
use crate::sim::{Faults, SimDisk, Steps, Worker};
use crate::state::{Now, Start};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What runs an engine's jobs.
pub(super) enum Executing {
    /// Threads, as in the product.
    Threads(Threads),
    /// Steps that Python asks for, and what is readable once one was taken.
    Steps(Steps, OwnedFd),
}

impl Executing {
    pub(super) fn start() -> std::io::Result<Self> {
        Threads::start().map(Self::Threads)
    }

    fn steps() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self::Steps(Steps::whole(), wake))
    }

    pub(super) fn fileno(&self) -> RawFd {
        match self {
            Self::Threads(threads) => threads.fileno(),
            Self::Steps(_, wake) => wake.as_raw_fd(),
        }
    }

    fn has_job(&self, worker: Worker) -> bool {
        matches!(self, Self::Steps(steps, _) if steps.has_job(worker))
    }

    fn run(&mut self, worker: Worker) -> bool {
        let Self::Steps(steps, wake) = self else { return false };
        let ran = steps.run(worker);
        if ran {
            signal(wake);
        }
        ran
    }
}

fn signal(wake: &OwnedFd) {
    // It can only fail when it is readable already.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

impl Executor for Executing {
    fn write(&mut self, job: WriteJob) {
        match self {
            Self::Threads(threads) => threads.write(job),
            Self::Steps(steps, _) => steps.write(job),
        }
    }

    fn chore(&mut self, chore: Chore) -> bool {
        match self {
            Self::Threads(threads) => threads.chore(chore),
            Self::Steps(steps, _) => steps.chore(chore),
        }
    }

    fn written(&mut self) -> Option<WriteDone> {
        match self {
            Self::Threads(threads) => threads.written(),
            Self::Steps(steps, _) => steps.written(),
        }
    }

    fn done(&mut self) -> Option<ChoreDone> {
        match self {
            Self::Threads(threads) => threads.done(),
            Self::Steps(steps, _) => steps.done(),
        }
    }

    fn wait_written(&mut self) -> Option<WriteDone> {
        match self {
            Self::Threads(threads) => threads.wait_written(),
            Self::Steps(steps, _) => steps.wait_written(),
        }
    }

    fn commit_times(&self) -> Option<&Histogram> {
        match self {
            Self::Threads(threads) => threads.commit_times(),
            Self::Steps(..) => None,
        }
    }

    fn is_dead(&self) -> bool {
        match self {
            Self::Threads(threads) => threads.is_dead(),
            Self::Steps(steps, _) => steps.is_dead(),
        }
    }

    fn wake(&mut self) {
        match self {
            Self::Threads(threads) => threads.wake(),
            Self::Steps(_, wake) => signal(wake),
        }
    }

    fn rest(&mut self) {
        match self {
            Self::Threads(threads) => threads.rest(),
            Self::Steps(steps, wake) => {
                steps.rest();
                // Nothing to read means that no step was taken.
                let _ = rustix::io::read(&*wake, &mut [0; 8]);
            }
        }
    }

    fn end(&mut self) {
        match self {
            Self::Threads(threads) => threads.end(),
            Self::Steps(steps, _) => steps.end(),
        }
    }
}

/// See the stub.
#[pyclass(frozen, module = "sterna_core._core")]
pub(super) struct SimulatedDisk {
    disk: SimDisk,
}

#[pymethods]
impl SimulatedDisk {
    #[new]
    fn new(seed: u64) -> Self {
        Self {
            disk: SimDisk::new(seed),
        }
    }

    fn crash(&self, power: bool) {
        if power {
            self.disk.power_cycle();
        } else {
            self.disk.kill_process();
        }
        // Whoever wants it as full as it was says so again.
        self.disk.set_faults(Faults::default());
    }

    fn is_down(&self) -> bool {
        self.disk.is_down()
    }

    fn operations(&self) -> u64 {
        self.disk.operations()
    }

    #[pyo3(signature = (*, crash_in = None, fail_sync_in = None, fail_sync_for = 0, short_write_one_in = 0,
        shortage_one_in = 0, room_bytes = None))]
    fn set_faults(
        &self,
        crash_in: Option<u64>,
        fail_sync_in: Option<u64>,
        fail_sync_for: u64,
        short_write_one_in: u64,
        shortage_one_in: u64,
        room_bytes: Option<u64>,
    ) {
        let now = self.disk.operations();
        self.disk.set_faults(Faults {
            crash_at: crash_in.map(|count| now.saturating_add(count.max(1))),
            fail_sync_at: fail_sync_in.map(|count| now.saturating_add(count.max(1))),
            fail_sync_for,
            short_write_one_in,
            shortage_one_in,
            space_bytes: room_bytes.map(|room| self.disk.used_bytes().saturating_add(room)),
            ..Faults::default()
        });
    }

    fn files(&self) -> Vec<String> {
        self.disk.names()
    }

    fn contents<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyBytes>> {
        self.disk.contents(name).map(|bytes| PyBytes::new(py, &bytes))
    }

    fn flip(&self, name: &str, offset: usize, mask: u8) -> bool {
        let mut flipped = false;
        self.disk.edit(name, |bytes| {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= mask;
                flipped = true;
            }
        });
        flipped
    }

    fn make_unreadable(&self, name: &str, offset: u64) {
        self.disk.make_unreadable(name, offset);
    }

    fn fork(&self, seed: u64) -> Self {
        Self {
            disk: self.disk.fork(seed),
        }
    }
}

/// Bytes that a secret stands for, under a name.
fn drawn(secret: &[u8], what: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(what.as_bytes());
    hash.update([0]);
    hash.update(secret);
    hash.finalize().into()
}

fn worker(py: Python<'_>, name: &str) -> PyResult<Worker> {
    match name {
        "writer" => Ok(Worker::Writer),
        "background" => Ok(Worker::Background),
        _ => Err(errors::internal(py, "A worker is \"writer\" or \"background\".")),
    }
}

/// `Engine.open_simulated`: everything random follows from `secret`.
pub(super) fn open(py: Python<'_>, disk: &SimulatedDisk, secret: &[u8], settings: &str, now: Now) -> PyResult<Engine> {
    let id = drawn(secret, "start id");
    let start = Start {
        // 0 would be none.
        id: u64::from_le_bytes([id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]]).max(1),
        secret: drawn(secret, "store"),
    };
    let opening = json::opening(settings).map_err(|error| errors::refused(py, &error))?;
    let (engine, recovery) = face::opened(
        Arc::new(disk.disk.clone()),
        opening,
        start,
        drawn(secret, "engine"),
        now,
    )
    .map_err(|error| errors::store(py, &error))?;
    Ok(Engine::over(Host::new(engine, Executing::steps()?), recovery))
}

/// `Engine.jobs`: the workers that have something to do.
pub(super) fn jobs(executing: &Executing) -> Vec<&'static str> {
    let all = [("writer", Worker::Writer), ("background", Worker::Background)];
    all.into_iter()
        .filter_map(|(name, worker)| executing.has_job(worker).then_some(name))
        .collect()
}

/// `Engine.run_job`.
pub(super) fn run_job(py: Python<'_>, engine: &Engine, name: &str) -> PyResult<bool> {
    let worker = worker(py, name)?;
    engine.with(py, |host| host.executor_mut().run(worker))
}
