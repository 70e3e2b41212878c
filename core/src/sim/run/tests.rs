//! Hundreds of runs of the whole engine, each from one seed, over everything that can go wrong with clients, wires, clocks
//! and disks; every run's history is checked against the broker's promises.
//!
//! `STERNA_SEEDS=n` runs more of them. A failing seed prints the command that runs it alone, with all that happened.

use super::{Figures, run};

/// Seeds of an ordinary test run; chosen so that it takes seconds.
const SEEDS: u64 = 300;
/// Steps of one run before everything is repaired and drained.
const STEPS: u32 = 700;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

fn run_one(seed: u64) -> (Figures, Vec<String>) {
    let outcome = run(seed, number("STERNA_STEPS", u64::from(STEPS)) as u32);
    for line in &outcome.told {
        println!("{line}");
    }
    let mut wrong: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    wrong.extend(outcome.complaints);
    (outcome.figures, wrong)
}

/// Runs the seeds from `first` on and gathers what is wrong with them.
fn run_many(first: u64, count: u64) -> (Figures, Vec<String>) {
    let threads = std::thread::available_parallelism()
        .map_or(1, |threads| threads.get() as u64)
        .min(4);
    let parts: Vec<_> = (0..threads)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut figures = Figures::default();
                let mut failures = Vec::new();
                for seed in (first..first + count).filter(|seed| seed % threads == thread) {
                    let (some, wrong) = match std::panic::catch_unwind(|| run_one(seed)) {
                        Ok(result) => result,
                        Err(_) => (Figures::default(), vec!["it panicked".to_owned()]),
                    };
                    figures += some;
                    if !wrong.is_empty() {
                        failures.push(format!(
                            "seed {seed}: {} things are wrong, among them:\n  {}\n  STERNA_SEED={seed} STERNA_TELL=1 \
                             cargo test --manifest-path core/Cargo.toml --lib -- sim_one --ignored --nocapture",
                            wrong.len(),
                            wrong.iter().take(4).cloned().collect::<Vec<_>>().join("\n  ")
                        ));
                    }
                }
                (figures, failures)
            })
        })
        .collect();
    let mut figures = Figures::default();
    let mut failures = Vec::new();
    for part in parts {
        let (some, wrong) = part.join().expect("a thread of runs ends");
        figures += some;
        failures.extend(wrong);
    }
    (figures, failures)
}

#[test]
fn no_promise_is_broken_whatever_goes_wrong() {
    let count = number("STERNA_SEEDS", SEEDS);
    let (figures, failures) = run_many(number("STERNA_FIRST_SEED", 0), count);
    println!("{count} runs: {figures:?}");
    assert!(
        failures.is_empty(),
        "{} of {count} runs failed\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Runs the seed of `STERNA_SEED` alone.
#[test]
#[ignore = "for one seed, by hand"]
fn sim_one() {
    let seed = number("STERNA_SEED", 0);
    let (figures, wrong) = run_one(seed);
    assert!(wrong.is_empty(), "seed {seed}, {figures:?}:\n  {}", wrong.join("\n  "));
}
