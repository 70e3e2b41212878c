//! Looks for a seed on which a defect shows, tells it by as few steps as it takes, and runs such a run again.
//!
//! Driven by `tools/defects.py`, a process for each defect, by the variables below; one line says what came of it.
//!
//! - `HUNT`: `find` looks through `SEEDS` seeds from `SEED` on, `STEPS` steps each; `run` runs `SEED` with `KEPT` alone.
//! - `KEPT`: steps, as `3,7-9`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::run_steps;
use crate::sim::seeds::{seeds, steps};
use crate::sim::switches;

/// Runs that reducing one may take, and for how long it may.
const REDUCING_RUNS: u32 = 4_000;
const REDUCING_TIME: Duration = Duration::from_secs(90);

/// What is wrong with a run, in one line; none: nothing.
fn wrong(seed: u64, kept: &[u32]) -> Option<String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let outcome = run_steps(seed, kept.iter().copied());
        for line in &outcome.told {
            println!("{line}");
        }
        let first = outcome.violations.first().map(ToString::to_string);
        first.or_else(|| outcome.complaints.first().cloned())
    }));
    match ran {
        Ok(wrong) => wrong,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Some(format!("it panicked: {}", text.unwrap_or("somehow")))
        }
    }
}

/// Whether a run fails for the defect's sake: without it, it passes.
fn shows(seed: u64, kept: &[u32]) -> bool {
    let is_there = (1..10_000).any(switches::on);
    wrong(seed, kept).is_some() && (!is_there || switches::without(|| wrong(seed, kept)).is_none())
}

/// The first of the seeds from this one on that fails, with how many were run.
fn find(seeds: &[u64], from: u64, all: &[u32]) -> (Option<u64>, u64) {
    let (next, found) = (AtomicU64::new(from), AtomicBool::new(false));
    let work = || {
        while !found.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed) as usize;
            let seed = *seeds.get(index)?;
            if wrong(seed, all).is_some() {
                found.store(true, Ordering::Relaxed);
                return Some(index);
            }
        }
        None
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(4));
    let first = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok().flatten()).min()
    });
    match first {
        Some(index) => (seeds.get(index).copied(), index as u64 + 1),
        None => (None, seeds.len() as u64),
    }
}

/// Leaves out whatever the failure does not need: large parts first, then smaller ones, then single steps.
fn reduce(seed: u64, mut kept: Vec<u32>) -> Vec<u32> {
    let (began, mut runs) = (Instant::now(), 0);
    let mut part = kept.len() / 2;
    while part > 0 {
        let (mut at, mut gone) = (kept.len(), false);
        while at > 0 {
            if runs >= REDUCING_RUNS || began.elapsed() > REDUCING_TIME {
                return kept;
            }
            runs += 1;
            let from = at.saturating_sub(part);
            let fewer: Vec<u32> = kept[..from].iter().chain(&kept[at..]).copied().collect();
            if shows(seed, &fewer) {
                (kept, gone) = (fewer, true);
            }
            at = from;
        }
        // Single steps until none can go.
        part = if part == 1 && gone { 1 } else { part / 2 };
    }
    kept
}

/// Steps in words: `3,7-9`.
fn told(kept: &[u32]) -> String {
    let runs = kept.chunk_by(|a, b| a + 1 == *b);
    let words = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    words.collect::<Vec<_>>().join(",")
}

/// And back.
fn understood(text: &str) -> Vec<u32> {
    let number = |text: &str| text.parse::<u32>().expect("a step");
    let runs = text.split(',').filter(|run| !run.is_empty()).map(|run| match run.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(run)..=number(run),
    });
    runs.flatten().collect()
}

#[test]
fn hunt() {
    let how = std::env::var("HUNT").unwrap_or_default();
    if how == "run" {
        let kept = understood(&std::env::var("KEPT").expect("the steps"));
        let seed = *seeds(1).first().expect("a seed");
        match wrong(seed, &kept) {
            Some(wrong) => println!("HUNT fails {}", wrong.replace('\n', " ")),
            None => println!("HUNT passes"),
        }
    } else if how == "find" {
        let (seeds, steps) = (seeds(20_000), steps(700));
        let all: Vec<u32> = (0..steps).collect();
        let (mut found, mut ran) = find(&seeds, 0, &all);
        while let Some(seed) = found.filter(|seed| !shows(*seed, &all)) {
            println!("SEED={seed} fails without any defect");
            (found, ran) = find(&seeds, ran, &all);
        }
        let Some(seed) = found else {
            println!("HUNT nothing ran={ran}");
            return;
        };
        let kept = reduce(seed, all);
        let why = wrong(seed, &kept).unwrap_or_default().replace('\n', " ");
        println!("HUNT found ran={ran} seed={seed} kept={} {why}", told(&kept));
    }
}
