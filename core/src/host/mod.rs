//! An engine with what runs its jobs: one worker writes the log, another does what else the disk is needed for.
//!
//! [`Host`] decides: when a write begins, in which order results are taken, when upkeep is due and what is tried again
//! about once a second, what a failure ends, and how to stop. An [`Executor`] runs the jobs: [`Threads`] in the product;
//! steps that a seed chooses, or Python, in simulations (`sim::Steps`). So the simulator drives what the product runs.
//!
//! All engine calls happen on the caller's thread (the event loop's). Jobs go to the workers, results come back in the
//! order of the jobs of each, and a worker that has a result wakes the loop, which polls. The write of a batch starts as
//! soon as the write before it is done and something is there to be written, so group commits form by themselves.
//!
//! Left out: the clock (`tick` is told the time), tickets, streams (the caller's).

mod threads;
mod worker;

#[cfg(test)]
mod tests;

pub use threads::Threads;

use crate::engine::{Engine, Histogram, Polled};
use crate::log::{WriteDone, WriteJob};
use crate::snapshot::keeper::{Job, JobDone};
use crate::state::{Now, ReadJob, ReadJobDone, StateError, UpkeepDone, UpkeepJob};

/// What the background worker does.
pub enum Chore {
    /// Something to be read.
    Read(ReadJob),
    /// Upkeep of log and spill files; one at a time.
    Maintain(UpkeepJob),
    /// What is kept for audits; one at a time.
    Snapshot(Job),
}

/// The result of a [`Chore`].
pub enum ChoreDone {
    /// What was read.
    Read(ReadJobDone),
    /// How the upkeep went.
    Maintain(UpkeepDone),
    /// What became of it.
    Snapshot(JobDone),
}

impl Chore {
    /// Does it.
    #[must_use]
    pub fn run(self) -> ChoreDone {
        match self {
            Self::Read(request) => ChoreDone::Read(request.run()),
            Self::Maintain(job) => ChoreDone::Maintain(job.run()),
            Self::Snapshot(job) => ChoreDone::Snapshot(job.run()),
        }
    }
}

/// Two workers, each of which runs its jobs one after the other.
///
/// A worker that has a result, or that has ended, wakes whoever polls; how, is the executor's own matter.
pub trait Executor {
    /// Hands the writer a job. One that has ended takes none: [`Executor::is_dead`] tells.
    fn write(&mut self, job: WriteJob);

    /// Hands the background worker a job. Whether it took it.
    fn chore(&mut self, chore: Chore) -> bool;

    /// The writer's next result, if one is there.
    fn written(&mut self) -> Option<WriteDone>;

    /// The background worker's next result, if one is there.
    fn done(&mut self) -> Option<ChoreDone>;

    /// Waits for the writer's next result; `None` if there will be none.
    fn wait_written(&mut self) -> Option<WriteDone>;

    /// Whether a worker has ended although nobody asked it to: a job of it panicked.
    fn is_dead(&self) -> bool;

    /// Forgets that somebody was woken: results that come from now on wake again.
    fn rest(&mut self);

    /// Wakes whoever polls, as a result does. For a host that polls after each of its steps there is nothing to do.
    fn wake(&mut self) {}

    /// Lets both finish what they have, and end. Their last results can be taken afterwards.
    fn end(&mut self);

    /// How long group commits took to be written and synced; none: nobody measures.
    fn commit_times(&self) -> Option<&Histogram> {
        None
    }
}

/// Upkeep that is started at most this often when there is little to do, in milliseconds.
const UPKEEP_MS: u64 = 1000;

/// See the module's documentation. Dropped without [`Host::stop`] it leaves the store as a crash does, once its workers
/// have finished what they have.
pub struct Host<E: Executor> {
    executor: E,
    /// Group commits that were written.
    commits: u64,
    maintaining: bool,
    upkeep_at_ms: u64,
    /// Why nothing is written any more.
    failed: Option<String>,
    /// Last, so that the workers have ended when it gives up the store's lock.
    engine: Engine,
}

impl<E: Executor> Host<E> {
    /// Begins: what the engine has to write goes to the executor at once.
    pub fn new(engine: Engine, executor: E) -> Self {
        let mut host = Self {
            executor,
            commits: 0,
            maintaining: false,
            upkeep_at_ms: 0,
            failed: None,
            engine,
        };
        host.submit();
        host
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, for calls that need nothing of the host: what they bring to be written waits for the next poll.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// What runs the jobs.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// What runs the jobs, for whoever has it take a step.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// Tells the time.
    pub fn tick(&mut self, now: Now) {
        self.engine.tick(now);
    }

    /// What it brings to be written waits for the next poll, so that batches which arrive together share a group commit.
    pub fn handle(&mut self, stream: u64, batch: &[u8]) {
        self.engine.handle(stream, batch);
    }

    /// Takes what the workers have done, lets the engine go on, and hands them what comes next.
    pub fn poll(&mut self) -> Polled {
        // Before the results are looked at, which they are in any case: what comes meanwhile wakes again.
        self.executor.rest();
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
        if let Some(again) = self.engine.snapshot_retry_ms().filter(|_| self.failed.is_none()) {
            polled.deadline_ms = Some(polled.deadline_ms.map_or(again, |deadline| deadline.min(again)));
        }
        polled
    }

    /// How many group commits were written.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// How long they took; none: nobody measures.
    pub fn commit_times(&self) -> Option<&Histogram> {
        self.executor.commit_times()
    }

    /// The next output of a stream. What it needs from the disk (payloads that are not cached, a redelivery watermark for
    /// what was handed out meanwhile) is asked for at once: nobody else would before the next poll, and when nothing else
    /// happens there is none.
    pub fn take_output(&mut self, stream: u64, max_bytes: usize) -> Option<Vec<u8>> {
        let output = self.engine.take_output(stream, max_bytes);
        self.submit_write();
        self.submit_reads();
        if self.engine.takes_made_room() {
            // What is not logged goes without a write, whose end would bring a poll.
            self.executor.wake();
        }
        output
    }

    /// Why nothing will be written any more; none: the store is well.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref().or_else(|| self.engine.state().failed())
    }

    fn collect(&mut self) {
        while let Some(done) = self.executor.written() {
            let completed = self.engine.complete_write(done);
            self.commits += u64::from(completed.is_ok());
            self.note(completed);
        }
        while let Some(done) = self.executor.done() {
            match done {
                ChoreDone::Read(done) => self.engine.complete_read(done),
                ChoreDone::Maintain(done) => {
                    self.maintaining = false;
                    let completed = self.engine.complete_maintenance(done);
                    self.note(completed);
                }
                ChoreDone::Snapshot(done) => self.engine.complete_snapshot(done),
            }
        }
        if self.failed.is_none() && self.executor.is_dead() {
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
                Ok(Some(job)) => self.maintaining = self.executor.chore(Chore::Maintain(job)),
                Ok(None) => {}
                Err(error) => self.note(Err(error)),
            }
        }
        // Behind the upkeep: the log's own needs come first.
        if self.failed.is_none()
            && let Some(job) = self.engine.snapshot_job()
        {
            self.executor.chore(Chore::Snapshot(job));
        }
    }

    fn submit_reads(&mut self) {
        for request in self.engine.take_reads() {
            self.executor.chore(Chore::Read(request));
        }
    }

    fn submit_write(&mut self) {
        match self.engine.next_write() {
            Ok(Some(job)) => self.executor.write(job),
            Ok(None) => {}
            Err(error) => self.note(Err(error)),
        }
    }

    /// Writes what is pending, marks the log as cleanly closed, and ends the workers.
    ///
    /// # Errors
    /// Something could not be written: the store is as after a crash.
    pub fn stop(mut self) -> Result<(), StateError> {
        while self.failed.is_none() && self.engine.state().log().write_in_flight() {
            match self.executor.wait_written() {
                Some(done) => {
                    let completed = self.engine.complete_write(done);
                    self.note(completed);
                }
                None => break,
            }
        }
        self.executor.end();
        self.collect_background();
        self.engine.stop()
    }

    /// The last results of the background worker, so that the log does not take its work for unfinished.
    fn collect_background(&mut self) {
        while let Some(done) = self.executor.done() {
            match done {
                ChoreDone::Read(done) => self.engine.complete_read(done),
                ChoreDone::Maintain(done) => {
                    // A failure is told by `stop` itself, which needs the same disk.
                    let _ = self.engine.complete_maintenance(done);
                }
                ChoreDone::Snapshot(done) => self.engine.complete_snapshot(done),
            }
        }
    }
}
