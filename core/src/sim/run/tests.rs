//! Hundreds of runs of the whole engine, each from one seed, over everything that can go wrong with clients, wires, clocks
//! and disks; every run's history is checked against the broker's promises.
//!
//! `SEEDS=n` runs another number of them (`sim::seeds`). A failing seed prints the command that runs it alone, with all
//! that happened (`TELL=1`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Figures, run};
use crate::sim::seeds::{again, seeds, steps, tell_progress};

/// Seeds of an ordinary test run; chosen so that it takes seconds.
const SEEDS: u64 = 300;
/// Steps of one run before everything is repaired and drained.
const STEPS: u32 = 700;

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
            tell_progress(index + 1, seeds.len(), began);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    let mut figures = Figures::default();
    let mut failures = Vec::new();
    // Named as the test is, for what they say of themselves.
    let test = std::thread::current().name().unwrap_or("sim").to_owned();
    std::thread::scope(|scope| {
        let start = || std::thread::Builder::new().name(test.clone()).spawn_scoped(scope, work);
        let workers: Vec<_> = (0..threads).map(|_| start().expect("a thread starts")).collect();
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
                "seed {seed}: {} things are wrong, among them:\n  {}\n  TELL=1 {}",
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
    // By one and the same generator: what it does not reach any more shows nothing.
    let many = seeds.len() as u64 >= SEEDS && steps(STEPS) >= STEPS;
    assert!(!many || figures.full_starts > 0, "no broker started on a full disk");
}
