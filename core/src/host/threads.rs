//! The product's executor: two threads, and an eventfd that wakes the event loop.

use super::worker::Worker;
use super::{Chore, ChoreDone, Executor};
use crate::log::{WriteDone, WriteJob};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// See the module's documentation.
pub struct Threads {
    wake: Arc<OwnedFd>,
    writer: Worker<WriteJob, WriteDone>,
    background: Worker<Chore, ChoreDone>,
}

impl Threads {
    /// Starts both threads.
    ///
    /// # Errors
    /// The system has no descriptor or no thread for them.
    pub fn start() -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self {
            writer: Worker::start("sterna-writer", wake.clone(), |job: WriteJob| job.run())?,
            background: Worker::start("sterna-disk", wake.clone(), Chore::run)?,
            wake,
        })
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
        self.writer.result()
    }

    fn done(&mut self) -> Option<ChoreDone> {
        self.background.result()
    }

    fn wait_written(&mut self) -> Option<WriteDone> {
        self.writer.wait()
    }

    fn is_dead(&self) -> bool {
        self.writer.is_dead() || self.background.is_dead()
    }

    fn rest(&mut self) {
        let mut count = [0; 8];
        // Nothing to read means that nothing woke us.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }

    fn end(&mut self) {
        self.writer.join();
        self.background.join();
    }
}
