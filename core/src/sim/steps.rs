//! An executor whose workers take a step when they are told to: nothing runs by itself, so a seed chooses the order.
//!
//! As with threads each worker does its jobs in the order in which they came, and what it has done lies there until
//! the host looks. Dropped, it forgets what was not run, as a killed process does.

use std::collections::VecDeque;

use super::disk::SimDisk;
use crate::host::{Chore, ChoreDone, Executor};
use crate::log::{WriteDone, WriteJob};

/// One of the two workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worker {
    /// It writes the log.
    Writer,
    /// It reads, and keeps log and spill files in order.
    Background,
}

struct Line<Job, Done> {
    jobs: VecDeque<Job>,
    results: VecDeque<Done>,
    ended: bool,
}

impl<Job, Done> Line<Job, Done> {
    fn new() -> Self {
        Self {
            jobs: VecDeque::new(),
            results: VecDeque::new(),
            ended: false,
        }
    }

    fn submit(&mut self, job: Job) -> bool {
        if !self.ended {
            self.jobs.push_back(job);
        }
        !self.ended
    }

    fn step(&mut self, run: impl FnOnce(Job) -> Done) -> bool {
        let Some(job) = self.jobs.pop_front() else { return false };
        self.results.push_back(run(job));
        true
    }

    /// A job panics: neither it nor what is behind it ever has a result.
    fn break_off(&mut self) {
        self.ended = true;
        self.jobs.clear();
    }
}

/// See the module's documentation.
pub struct Steps {
    writer: Line<WriteJob, WriteDone>,
    background: Line<Chore, ChoreDone>,
    /// Where the operations of two jobs may be interleaved; none: each job runs whole.
    disk: Option<SimDisk>,
    woken: bool,
}

impl Steps {
    /// Workers whose jobs run whole.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            writer: Line::new(),
            background: Line::new(),
            disk: None,
            woken: false,
        }
    }

    /// Workers whose jobs run at once, operation by operation, where [`Steps::run_both`] is called or the host stops.
    #[must_use]
    pub fn interleaved(disk: &SimDisk) -> Self {
        Self {
            disk: Some(disk.clone()),
            ..Self::whole()
        }
    }

    /// Whether a worker has something to do.
    #[must_use]
    pub fn has_job(&self, worker: Worker) -> bool {
        match worker {
            Worker::Writer => !self.writer.jobs.is_empty(),
            Worker::Background => !self.background.jobs.is_empty(),
        }
    }

    /// Whether something happened that the host has not looked at.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.woken
    }

    /// A worker does its next job. Whether there was one.
    pub fn run(&mut self, worker: Worker) -> bool {
        let ran = match worker {
            Worker::Writer => self.writer.step(|job| job.run()),
            Worker::Background => self.background.step(Chore::run),
        };
        self.woken |= ran;
        ran
    }

    /// Both do their next jobs at once, in an order of their disk operations that the disk draws. Whether they could.
    pub fn run_both(&mut self) -> bool {
        let Some(disk) = &self.disk else { return false };
        if self.writer.jobs.is_empty() || self.background.jobs.is_empty() {
            return false;
        }
        let (writer, background) = (&mut self.writer, &mut self.background);
        disk.interleave(|| writer.step(|job| job.run()), || background.step(Chore::run));
        self.woken = true;
        true
    }

    /// A job of this worker panics, and the worker is no more.
    pub fn break_worker(&mut self, worker: Worker) {
        match worker {
            Worker::Writer => self.writer.break_off(),
            Worker::Background => self.background.break_off(),
        }
        self.woken = true;
    }

    fn run_one(&mut self) -> bool {
        self.run_both() || self.run(Worker::Writer) || self.run(Worker::Background)
    }
}

impl Executor for Steps {
    fn write(&mut self, job: WriteJob) {
        self.writer.submit(job);
    }

    fn chore(&mut self, chore: Chore) -> bool {
        self.background.submit(chore)
    }

    fn written(&mut self) -> Option<WriteDone> {
        self.writer.results.pop_front()
    }

    fn done(&mut self) -> Option<ChoreDone> {
        self.background.results.pop_front()
    }

    fn wait_written(&mut self) -> Option<WriteDone> {
        while self.writer.results.is_empty() && self.has_job(Worker::Writer) {
            self.run_one();
        }
        self.written()
    }

    fn is_dead(&self) -> bool {
        self.writer.ended || self.background.ended
    }

    fn rest(&mut self) {
        self.woken = false;
    }

    fn end(&mut self) {
        while self.run_one() {}
        self.writer.ended = true;
        self.background.ended = true;
    }
}
