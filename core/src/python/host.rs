//! An engine with its threads: one writes the log, one does what else the disk is needed for.
//!
//! All engine calls happen on the caller's thread (the event loop's). Jobs go to the threads, results come back through
//! channels, and an eventfd wakes the loop. The write of a batch starts as soon as the write before it is done and
//! something is there to be written, so group commits form by themselves.

use super::worker::Worker;
use crate::engine::{Engine, Polled};
use crate::log::{WriteDone, WriteJob};
use crate::state::{Now, ReadJob, ReadJobDone, StateError, UpkeepDone, UpkeepJob};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// What the background thread does.
enum Chore {
    Read(ReadJob),
    Maintain(UpkeepJob),
}

enum ChoreDone {
    Read(ReadJobDone),
    Maintain(UpkeepDone),
}

/// Upkeep that is started at most this often when there is little to do, in milliseconds.
const UPKEEP_MS: u64 = 1000;

/// See the module's documentation.
pub(super) struct Host {
    /// What recovery found, as JSON.
    pub(super) recovery: String,
    wake: Arc<OwnedFd>,
    writer: Worker<WriteJob, WriteDone>,
    background: Worker<Chore, ChoreDone>,
    /// Group commits that were written.
    commits: u64,
    maintaining: bool,
    upkeep_at_ms: u64,
    /// Why nothing is written any more.
    failed: Option<String>,
    /// Last, so that the threads have ended when it gives up the store's lock.
    pub(super) engine: Engine,
}

impl Host {
    /// Starts the threads for an engine.
    pub(super) fn start(engine: Engine, recovery: String) -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let writer = Worker::start("sterna-writer", wake.clone(), |job: WriteJob| job.run())?;
        let background = Worker::start("sterna-disk", wake.clone(), |chore: Chore| match chore {
            Chore::Read(request) => ChoreDone::Read(request.run()),
            Chore::Maintain(job) => ChoreDone::Maintain(job.run()),
        })?;
        let mut host = Self {
            engine,
            recovery,
            wake,
            writer,
            background,
            commits: 0,
            maintaining: false,
            upkeep_at_ms: 0,
            failed: None,
        };
        host.submit();
        Ok(host)
    }

    pub(super) fn fileno(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    pub(super) fn tick(&mut self, now: Now) {
        self.engine.tick(now);
    }

    /// What it brings to be written waits for the next poll, so that batches which arrive together share a group commit.
    pub(super) fn handle(&mut self, stream: u64, batch: &[u8]) {
        self.engine.handle(stream, batch);
    }

    /// Takes what the threads have done, lets the engine go on, and hands them what comes next.
    pub(super) fn poll(&mut self) -> Polled {
        let mut count = [0; 8];
        // Nothing to read means that nothing woke us; the results are looked at in any case.
        let _ = rustix::io::read(&*self.wake, &mut count);
        self.collect();
        self.submit();
        let mut polled = self.engine.poll();
        // What was handed out may have to be written (watermarks) or read.
        self.submit();
        if self.engine.state().log().waits_for_host() && self.failed.is_none() {
            // Nobody else may come for a long time: a broker that is not ready is sent no clients.
            let again = self.upkeep_at_ms;
            polled.deadline_ms = Some(polled.deadline_ms.map_or(again, |deadline| deadline.min(again)));
        }
        polled
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// The next output of a stream. What it needs from the disk (payloads that are not cached, a redelivery watermark for
    /// what was handed out meanwhile) is asked for at once: nobody else would before the next poll, and when nothing else
    /// happens there is none.
    pub(super) fn take_output(&mut self, stream: u64, max_bytes: usize) -> Option<Vec<u8>> {
        let output = self.engine.take_output(stream, max_bytes);
        self.submit_write();
        self.submit_reads();
        output
    }

    pub(super) fn failed(&self) -> Option<&str> {
        self.failed.as_deref().or_else(|| self.engine.state().failed())
    }

    fn collect(&mut self) {
        while let Some(done) = self.writer.result() {
            let completed = self.engine.complete_write(done);
            self.commits += u64::from(completed.is_ok());
            self.note(completed);
        }
        while let Some(done) = self.background.result() {
            match done {
                ChoreDone::Read(done) => self.engine.complete_read(done),
                ChoreDone::Maintain(done) => {
                    self.maintaining = false;
                    let completed = self.engine.complete_maintenance(done);
                    self.note(completed);
                }
            }
        }
        if self.failed.is_none() && (self.writer.is_dead() || self.background.is_dead()) {
            self.fail("a thread of the engine has ended".to_owned());
        }
    }

    fn note(&mut self, result: Result<(), StateError>) {
        if let Err(error) = result {
            self.fail(error.to_string());
        }
    }

    /// Whoever waits for the disk has to be told that there is nothing to wait for.
    fn fail(&mut self, why: String) {
        self.engine.fail(&why);
        self.failed.get_or_insert(why);
    }

    fn submit(&mut self) {
        self.submit_write();
        self.submit_reads();
        let now_ms = self.engine.now().monotonic_ms;
        if now_ms >= self.upkeep_at_ms {
            self.upkeep_at_ms = now_ms + UPKEEP_MS;
            self.engine.state_mut().request_watermark_sync();
        }
        if !self.maintaining && self.failed.is_none() {
            match self.engine.maintenance() {
                Ok(Some(job)) => self.maintaining = self.background.submit(Chore::Maintain(job)),
                Ok(None) => {}
                Err(error) => self.note(Err(error)),
            }
        }
    }

    fn submit_reads(&mut self) {
        for request in self.engine.take_reads() {
            self.background.submit(Chore::Read(request));
        }
    }

    fn submit_write(&mut self) {
        match self.engine.next_write() {
            Ok(Some(job)) => {
                self.writer.submit(job);
            }
            Ok(None) => {}
            Err(error) => self.note(Err(error)),
        }
    }

    /// Writes what is pending, marks the log as cleanly closed, and ends the threads.
    pub(super) fn stop(mut self) -> Result<(), StateError> {
        while self.failed.is_none() && self.engine.state().log().write_in_flight() {
            match self.writer.wait() {
                Some(done) => {
                    let completed = self.engine.complete_write(done);
                    self.note(completed);
                }
                None => break,
            }
        }
        self.writer.join();
        self.background.join();
        self.collect_background();
        self.engine.stop()
    }

    /// The last results of the background thread, so that the log does not take its work for unfinished.
    fn collect_background(&mut self) {
        while let Some(done) = self.background.result() {
            match done {
                ChoreDone::Read(done) => self.engine.complete_read(done),
                ChoreDone::Maintain(done) => {
                    // A failure is told by `stop` itself, which needs the same disk.
                    let _ = self.engine.complete_maintenance(done);
                }
            }
        }
    }
}
