//! Hundreds of runs of the whole engine, each from one seed, over everything that can go wrong with clients, wires, clocks
//! and disks; every run's history is checked against the broker's promises.
//!
//! `SEEDS=n` runs another number of them (`sim::seeds`). A failing seed prints the command that runs it alone, with all
//! that happened (`TELL=1`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Figures, run};
use crate::sim::seeds::{again, seeds, steps};

/// Seeds of an ordinary test run; chosen so that it takes seconds.
const SEEDS: u64 = 300;
/// Steps of one run before everything is repaired and drained.
const STEPS: u32 = 700;
/// A long run says how far it is after each so many seeds (seen with `--nocapture`).
const TOLD_AFTER: usize = 1_000;

fn run_one(seed: u64) -> (Figures, Vec<String>) {
    let outcome = run(seed, steps(STEPS));
    for line in &outcome.told {
        println!("{line}");
    }
    let mut wrong: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    wrong.extend(outcome.complaints);
    (outcome.figures, wrong)
}

/// Runs the seeds, and gathers what is wrong with each that failed.
fn run_many(seeds: &[u64]) -> (Figures, Vec<(u64, Vec<String>)>) {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut figures = Figures::default();
        let mut failures = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(index) else {
                return (figures, failures);
            };
            let (some, wrong) = std::panic::catch_unwind(|| run_one(seed))
                .unwrap_or_else(|_| (Figures::default(), vec!["it panicked".to_owned()]));
            figures += some;
            if !wrong.is_empty() {
                failures.push((seed, wrong));
            }
            if (index + 1) % TOLD_AFTER == 0 {
                let pace = (index + 1) as f64 / began.elapsed().as_secs_f64();
                println!("{} of {} runs, {pace:.0} a second", index + 1, seeds.len());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    let mut figures = Figures::default();
    let mut failures = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (some, wrong) = worker.join().expect("a thread of runs ends");
            figures += some;
            failures.extend(wrong);
        }
    });
    failures.sort();
    (figures, failures)
}

#[test]
fn no_promise_is_broken_whatever_goes_wrong() {
    let seeds = seeds(SEEDS);
    let (figures, failures) = run_many(&seeds);
    println!("{} runs: {figures:?}", seeds.len());
    let told: Vec<String> = failures
        .iter()
        .map(|(seed, wrong)| {
            format!(
                "seed {seed}: {} things are wrong, among them:\n  {}\n  TELL=1 {} --nocapture",
                wrong.len(),
                wrong.iter().take(4).cloned().collect::<Vec<_>>().join("\n  "),
                again(*seed)
            )
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} runs failed\n{}",
        failures.len(),
        seeds.len(),
        told.join("\n")
    );
}
