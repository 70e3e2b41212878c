//! The product's executor: two threads, and an eventfd that wakes the event loop.

use super::worker::Worker;
use super::{Chore, ChoreDone, Executor};
use crate::engine::Histogram;
use crate::log::{WriteDone, WriteJob};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub struct Threads {
    wake: Arc<OwnedFd>,
    writer: Worker<WriteJob, (WriteDone, Duration)>,
    background: Worker<Chore, ChoreDone>,
    commit_times: Histogram,
}

/// From a fast disk's sync to what is no commit any more but an outage.
const COMMIT_BOUNDS_US: &[u64] = &[
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000, 10_000_000,
];

fn timed(job: WriteJob) -> (WriteDone, Duration) {
    let began = Instant::now();
    (job.run(), began.elapsed())
}

impl Threads {
    /// Starts both threads.
    ///
    /// # Errors
    /// The system has no descriptor or no thread for them.
    pub fn start() -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self {
            writer: Worker::start("sterna-writer", wake.clone(), timed)?,
            background: Worker::start("sterna-disk", wake.clone(), Chore::run)?,
            wake,
            commit_times: Histogram::new(COMMIT_BOUNDS_US),
        })
    }

    fn note(&mut self, (done, took): (WriteDone, Duration)) -> WriteDone {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commit_times.add(took_us, 1);
        done
    }

    /// A descriptor that is readable when a poll may have something new.
    pub fn fileno(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

impl Executor for Threads {
    fn write(&mut self, job: WriteJob) {
        self.writer.submit(job);
    }

    fn chore(&mut self, chore: Chore) -> bool {
        self.background.submit(chore)
    }

    fn written(&mut self) -> Option<WriteDone> {
        self.writer.result().map(|result| self.note(result))
    }

    fn done(&mut self) -> Option<ChoreDone> {
        self.background.result()
    }

    fn wait_written(&mut self) -> Option<WriteDone> {
        self.writer.wait().map(|result| self.note(result))
    }

    fn is_dead(&self) -> bool {
        self.writer.is_dead() || self.background.is_dead()
    }

    fn rest(&mut self) {
        let mut count = [0; 8];
        // Nothing to read means that nothing woke us.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }

    fn wake(&mut self) {
        super::worker::signal(&self.wake);
    }

    fn end(&mut self) {
        self.writer.join();
        self.background.join();
    }

    fn commit_times(&self) -> Option<&Histogram> {
        Some(&self.commit_times)
    }
}
