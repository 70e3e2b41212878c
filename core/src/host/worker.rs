//! A thread that runs jobs in order and says by an eventfd that one is done.
//!
//! It takes no lock of its caller's (Python's GIL among them): jobs and results pass through channels, and the event loop
//! fetches results when the eventfd has become readable. It ends when its sender is dropped, after the jobs that were
//! handed over before.

use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The thread, as seen from the event loop.
pub(super) struct Worker<Job, Done> {
    jobs: Option<Sender<Job>>,
    results: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    ended: Arc<AtomicBool>,
}

impl<Job: Send + 'static, Done: Send + 'static> Worker<Job, Done> {
    /// Starts a thread of this name that turns jobs into results with `run`.
    pub(super) fn start(name: &str, wake: Arc<OwnedFd>, run: fn(Job) -> Done) -> std::io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, results) = channel::<Done>();
        let ended = Arc::new(AtomicBool::new(false));
        let end = End {
            told: ended.clone(),
            wake: wake.clone(),
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _end = end;
            while let Ok(job) = inbox.recv() {
                if outbox.send(run(job)).is_err() {
                    return;
                }
                signal(&wake);
            }
        })?;
        Ok(Self {
            jobs: Some(jobs),
            results,
            thread: Some(thread),
            ended,
        })
    }

    /// Hands a job over. `false` if the thread has ended, which it does only when a job panicked.
    pub(super) fn submit(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// The next result, if one is there.
    pub(super) fn result(&self) -> Option<Done> {
        self.results.try_recv().ok()
    }

    /// Waits for the next result; `None` if there will be none.
    pub(super) fn wait(&self) -> Option<Done> {
        self.results.recv().ok()
    }

    /// Whether the thread has ended although nobody asked it to.
    pub(super) fn is_dead(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl<Job, Done> Worker<Job, Done> {
    /// Lets the thread finish what it has, and waits for its end.
    pub(super) fn join(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a job has been told by `is_dead`; there is nothing more to learn from it here.
            let _ = thread.join();
        }
    }
}

/// A thread that outlived the store's lock could write into what another engine has opened.
impl<Job, Done> Drop for Worker<Job, Done> {
    fn drop(&mut self) {
        self.join();
    }
}

/// Says that a thread ends, also when a job panics, and wakes the event loop: what waits for a result would wait for ever.
struct End {
    told: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.told.store(true, Ordering::Release);
        signal(&self.wake);
    }
}

/// Makes the eventfd readable.
pub(super) fn signal(wake: &OwnedFd) {
    // It can only fail when the counter is full, and then it is readable already.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

    fn woken(wake: &OwnedFd) -> bool {
        let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut fds = [PollFd::new(wake, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).unwrap();
        let mut count = [0; 8];
        rustix::io::read(wake, &mut count).is_ok()
    }

    #[test]
    fn results_come_in_order_and_wake_the_loop() {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let mut worker = Worker::start("test", wake.clone(), |job: u32| job + 1).unwrap();
        assert!(worker.submit(1) && worker.submit(2));
        assert!(woken(&wake));
        assert_eq!((worker.wait(), worker.wait()), (Some(2), Some(3)));
        assert!(worker.result().is_none() && !worker.is_dead());
        worker.join();
        assert!(worker.is_dead());
    }

    #[test]
    fn a_panic_in_a_job_wakes_the_loop_and_is_told() {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let worker = Worker::start("test", wake.clone(), |job: u32| {
            assert!(job > 0, "a defect, on purpose")
        })
        .unwrap();
        assert!(worker.submit(0));
        assert!(woken(&wake), "nobody would look otherwise");
        assert!(worker.is_dead());
        assert!(worker.wait().is_none());
    }
}
