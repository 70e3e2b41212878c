//! Which seeds a test runs, which cases a property is put to, and how to see a failure again.
//!
//! Whatever draws follows three variables, in Rust and in Python (`tests/support/seeds.py`):
//!
//! - `SEED`: the first seed; 0 when it is not set. The same `SEED` draws the same, so a red run repeats.
//! - `SEEDS`: how many seeds a test runs, or cases a property; when it is not set, as many as stand at the test.
//! - `STEPS`: how long one seed of a simulation lasts; when it is not set, as long as stands at the test.
//!
//! So `SEED=7 SEEDS=1` is one seed alone. A seed that fails says the command that runs it again; a property says with
//! which `SEED` it was drawn, and shrinks by itself.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use proptest::test_runner::{Config, RngSeed};

/// A long test says how far it is after each so many seeds.
const TOLD_AFTER: usize = 1_000;

/// The number in a variable. What cannot be read is no default: whoever set it meant something.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn first() -> u64 {
    number("SEED").unwrap_or(0)
}

/// The seeds of a test that runs `count` of them unless told otherwise.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    let first = first();
    (0..number("SEEDS").unwrap_or(count))
        .map(|index| first.wrapping_add(index))
        .collect()
}

/// The steps of a simulation that takes `count` of them unless told otherwise.
pub(crate) fn steps(count: u32) -> u32 {
    number("STEPS").map_or(count, |steps| steps.try_into().unwrap_or(u32::MAX))
}

/// The command that runs `test` again as it runs now, with these settings before it.
fn command(settings: &str, test: Option<&str>) -> String {
    let steps = number("STEPS").map_or_else(String::new, |steps| format!("STEPS={steps} "));
    // The thread of a test has its name; with `--test-threads=1` there is but one, and it is named otherwise.
    let test = test.filter(|name| name.contains("::")).unwrap_or("NAME_OF_THE_TEST");
    format!("{settings} {steps}cargo test --manifest-path core/Cargo.toml --lib -- {test}")
}

/// The command that runs one seed of this test alone; to be called in the test's own thread.
pub(crate) fn again(seed: u64) -> String {
    command(&format!("SEED={seed} SEEDS=1"), std::thread::current().name())
}

/// Says how far a test of thousands of seeds is; to be called after each.
pub(crate) fn tell_progress(done: usize, seeds: usize, began: Instant) {
    if done % TOLD_AFTER == 0 {
        let pace = done as f64 / began.elapsed().as_secs_f64();
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        // Not by `eprintln`, which the harness keeps to itself until the test has failed.
        let _ = writeln!(std::io::stderr(), "{test} {done} of {seeds} seeds, {pace:.0} a second");
    }
}

/// Runs `body` for every seed; a failure says how to see it again.
pub(crate) fn each_seed(count: u64, body: impl Fn(u64)) {
    let (seeds, began) = (seeds(count), Instant::now());
    for (index, &seed) in seeds.iter().enumerate() {
        tell_progress(index + 1, seeds.len(), began);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(seed))) {
            eprintln!("run it again with: {}", again(seed));
            resume_unwind(panic);
        }
    }
}

/// How a property is put to `count` cases unless told otherwise.
///
/// All cases are drawn from one seed, one after the other, so that a case comes again only with those before it.
pub(crate) fn cases(count: u32) -> Config {
    let cases = number("SEEDS").map_or(count, |cases| cases.try_into().unwrap_or(u32::MAX));
    let seeds = if cases == count {
        String::new()
    } else {
        format!(" SEEDS={cases}")
    };
    // The harness shows it only if the property fails.
    eprintln!(
        "run it again with: {}",
        command(&format!("SEED={}{seeds}", first()), std::thread::current().name())
    );
    Config {
        cases,
        rng_seed: RngSeed::Fixed(first()),
        ..Config::default()
    }
}

/// Cases of a property that says nothing else.
pub(crate) const CASES: u32 = 256;

mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn a_command_names_the_test_and_what_it_was_drawn_from() {
        let found = command("SEED=5 SEEDS=1", Some("log::tests::crash::name"));
        assert!(found.starts_with("SEED=5 SEEDS=1 "), "{found}");
        assert!(found.ends_with("cargo test --manifest-path core/Cargo.toml --lib -- log::tests::crash::name"));
        assert!(again(5).ends_with("::a_command_names_the_test_and_what_it_was_drawn_from"));
    }

    #[test]
    fn seeds_follow_each_other() {
        let seeds = seeds(3);
        assert!(seeds.windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]));
        assert_eq!(seeds.first(), Some(&first()));
    }

    fn sources(folder: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
            .collect()
    }

    /// A block without a configuration draws from the machine's own randomness: a red run would not repeat.
    #[test]
    fn every_property_is_drawn_from_the_seed() {
        let mut blocks = 0;
        for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for pair in lines.windows(2).filter(|pair| pair[0] == "proptest! {") {
                let is_seeded = pair[1].starts_with("#![proptest_config(cases(");
                assert!(
                    is_seeded,
                    "{}: begin the block with #![proptest_config(cases(CASES))]",
                    path.display()
                );
                blocks += 1;
            }
        }
        assert!(blocks >= 9, "only {blocks} blocks found");
    }
}
