//! A thread that runs jobs in order and says by an eventfd that one is done.
//!
//! It never takes the GIL: jobs and results pass through channels, and the event loop fetches results when the eventfd
//! has become readable. It ends when its sender is dropped, after the jobs that were handed over before.

use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The thread, as seen from the event loop.
pub(super) struct Worker<Job, Done> {
    jobs: Option<Sender<Job>>,
    results: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

impl<Job: Send + 'static, Done: Send + 'static> Worker<Job, Done> {
    /// Starts a thread of this name that turns jobs into results with `run`.
    pub(super) fn start(name: &str, wake: Arc<OwnedFd>, run: fn(Job) -> Done) -> std::io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, results) = channel::<Done>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
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
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
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

/// Makes the eventfd readable.
fn signal(wake: &OwnedFd) {
    // It can only fail when the counter is full, and then it is readable already.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}
