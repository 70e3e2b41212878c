//! How long a cut keeps the engine's thread: messages wait in queues, some are in hand, and traffic goes on while a cut is
//! taken. Times are those of the calls on the engine's thread; jobs run where the host would run them, beside it.
//!
//! `cargo run --release --example cut_bench -- [messages] [in flight] [queues]`

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sterna_core::log::FileDisk;
use sterna_core::log::disk::Disk;
use sterna_core::message::MessageView;
use sterna_core::name::DestinationName;
use sterna_core::snapshot::keeper::{Bounds, Job, JobDone, Keeper, Progress};
use sterna_core::state::{
    Cursor, DestinationId, Incoming, Kind, Next, Now, Origin, Properties, SourceId, State, StateOptions,
};

type Fault = Box<dyn std::error::Error>;

/// Encoded: a body of 64 bytes.
const MESSAGE: [u8; 66] = {
    let mut bytes = [b'x'; 66];
    bytes[0] = 10 << 3 | 2;
    bytes[1] = 64;
    bytes
};

struct Bench {
    state: State,
    keeper: Keeper,
    queues: Vec<DestinationId>,
    incarnation: u64,
    sent: u64,
    taken: usize,
    cursors: Vec<Cursor>,
}

impl Bench {
    fn send(&mut self) -> Result<(), Fault> {
        let to = self.queues[self.sent as usize % self.queues.len()];
        self.sent += 1;
        let view = MessageView::parse(&MESSAGE)?;
        let incoming = Incoming {
            view: &view,
            uploaded: &[],
            incarnation: self.incarnation,
            sequence: self.sent,
            connection: 1,
            client_id: "bench",
            user: "",
            transaction: None,
            may_be_again: false,
        };
        self.state.publish(to, &incoming)?;
        Ok(())
    }

    /// Takes one message into hand; says which, if one was ready.
    fn take(&mut self) -> Result<Option<(SourceId, u64)>, Fault> {
        let index = self.taken % self.queues.len();
        self.taken += 1;
        let source = self.queues[index].source();
        match self.state.next_ready(source, &mut self.cursors[index], None) {
            Next::Ready { sequence, priority, .. } => {
                self.state.deliver(source, priority, sequence, 1);
                Ok(Some((source, sequence)))
            }
            _ => Ok(None),
        }
    }

    fn settle(&mut self) -> Result<(), Fault> {
        loop {
            let mut idle = true;
            if let Some(job) = self.state.next_write()? {
                self.state.complete_write(job.run())?;
                idle = false;
            }
            for job in self.state.take_reads() {
                self.state.complete_read(job.run());
                idle = false;
            }
            if let Some(job) = self.state.maintenance()? {
                self.state.complete_maintenance(job.run())?;
                idle = false;
            }
            if idle {
                return Ok(());
            }
        }
    }
}

/// The background worker: what it is given, what it answers, and its end.
fn worker() -> (Sender<Job>, Receiver<JobDone>, JoinHandle<()>) {
    let (give, jobs) = channel::<Job>();
    let (done, results) = channel();
    let thread = std::thread::spawn(move || {
        for job in jobs {
            if done.send(job.run()).is_err() {
                return;
            }
        }
    });
    (give, results, thread)
}

fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next = |default: u64| arguments.next().unwrap_or(Ok(default));
    let (messages, in_flight, queues) = (next(5_000_000)?, next(100_000)?, next(100)?);
    let folder = std::env::temp_dir().join(format!("sterna-cut-bench-{}", std::process::id()));
    let result = run(&folder, messages, in_flight, queues);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn run(folder: &std::path::Path, messages: u64, in_flight: u64, queues: u64) -> Result<(), Fault> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(folder)?);
    let now = Now {
        wall_ms: 1_700_000_000_000,
        monotonic_ms: 1_000,
    };
    let (mut state, _) = State::open(disk.clone(), StateOptions::default(), now)?;
    let bounds = Bounds {
        bytes_max: 16 << 30,
        ..Bounds::default()
    };
    let keeper = Keeper::open(disk, &mut state, bounds)?;
    let mut made = Vec::new();
    for number in 0..queues {
        let name = DestinationName::parse(&format!("queue.{number}"))?;
        made.push(state.ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default())?);
    }
    let incarnation = state.next_incarnation()?;
    let cursors = vec![Cursor::default(); made.len()];
    let mut bench = Bench {
        state,
        keeper,
        queues: made,
        incarnation,
        sent: 0,
        taken: 0,
        cursors,
    };
    for number in 0..messages {
        bench.send()?;
        if number % 20_000 == 0 {
            bench.settle()?;
        }
    }
    bench.settle()?;
    let mut held = Vec::new();
    while (held.len() as u64) < in_flight {
        match bench.take()? {
            Some(one) => held.push(one),
            None => bench.settle()?,
        }
    }
    println!(
        "{messages} messages wait in {queues} queues, {} of them in hand",
        held.len()
    );
    measure(&mut bench)
}

fn measure(bench: &mut Bench) -> Result<(), Fault> {
    let (give, results, thread) = worker();
    let mut longest: Vec<(&str, Duration)> = Vec::new();
    let mut note = |what, since: Instant| longest.push((what, since.elapsed()));
    let began = Instant::now();
    let at = Instant::now();
    bench.keeper.begin(&mut bench.state)?;
    note("begin", at);
    let (mut out, mut traffic) = (false, 0_u64);
    let cut = loop {
        // What clients do meanwhile: as many go as come.
        for _ in 0..500 {
            bench.send()?;
            if let Some((source, sequence)) = bench.take()? {
                bench
                    .state
                    .acknowledge(source, &[(sequence, sequence)], |_| true, None)?;
            }
            traffic += 1;
        }
        bench.settle()?;
        if let Ok(done) = results.try_recv() {
            out = false;
            let at = Instant::now();
            bench.keeper.complete(&mut bench.state, done);
            note("complete", at);
        }
        if !out {
            let at = Instant::now();
            let job = bench.keeper.next_job(&mut bench.state);
            note("next", at);
            if let Some(job) = job {
                give.send(job)?;
                out = true;
            }
        }
        match bench.keeper.progress(&bench.state) {
            Progress::Ready { cut, .. } => break cut,
            Progress::Failed(why) => return Err(why.into()),
            _ => {}
        }
    };
    let took = began.elapsed();
    drop(give);
    thread.join().map_err(|_| "the worker has panicked")?;
    println!(
        "the cut has {} rows and {} bytes; it took {took:?}, while {traffic} messages came and went",
        cut.rows, cut.bytes
    );
    for what in ["begin", "next", "complete"] {
        let times = || longest.iter().filter(|(name, _)| *name == what).map(|(_, time)| *time);
        let total: Duration = times().sum();
        println!(
            "{what}: {} calls, the longest {:?}, {total:?} in all",
            times().count(),
            times().max().unwrap_or_default()
        );
    }
    Ok(())
}
