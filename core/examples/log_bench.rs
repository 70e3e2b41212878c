//! The log alone on a real disk: appends and group commits, restart, cold reads. Bounded, and cleans up after itself.
//!
//! `cargo run --release --example log_bench [FOLDER]`

use std::sync::Arc;
use std::time::Instant;

use sterna_core::log::{FileDisk, KeepAll, Log, Options, Position, Read, ReadDone};

const RECORDS: usize = 1_000_000;
const BATCH: usize = 64;

fn rate(seconds: f64) -> f64 {
    RECORDS as f64 / seconds
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let folder = parent.join(format!("sterna-log-bench-{}", std::process::id()));
    let outcome = run(&folder);
    std::fs::remove_dir_all(&folder)?;
    outcome
}

fn open(folder: &std::path::Path, records: &mut Vec<Position>) -> Result<Log, Box<dyn std::error::Error>> {
    let disk = Arc::new(FileDisk::new(folder)?);
    let (log, report) = Log::open(disk, Options::default(), &mut |record| {
        records.push(record.position);
        Ok(())
    })?;
    if report.records > 0 {
        println!(
            "recovered {} records, {} footers read",
            report.records, report.footers_read
        );
    }
    Ok(log)
}

fn maintain(log: &mut Log) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(job) = log.maintenance(&KeepAll) {
        log.complete_maintenance(job.run())?;
    }
    Ok(())
}

fn run(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let (head, payload) = ([7; 40], [9; 1024]);
    let mut log = open(folder, &mut Vec::new())?;
    maintain(&mut log)?;
    let (mut appending, mut committing, mut upkeep) = (0.0, 0.0, 0.0);
    let mut commits = 0;
    for _ in 0..RECORDS / BATCH {
        let start = Instant::now();
        for _ in 0..BATCH {
            log.append(16, &head, &payload)?;
        }
        appending += start.elapsed().as_secs_f64();
        // A sync takes the time of a few thousand appends, so that is what a busy group commit holds.
        if log.pending_bytes() > 1024 * 1024 {
            let start = Instant::now();
            if let Some(job) = log.next_write()? {
                log.complete_write(job.run())?;
                commits += 1;
            }
            committing += start.elapsed().as_secs_f64();
            let start = Instant::now();
            maintain(&mut log)?;
            upkeep += start.elapsed().as_secs_f64();
        }
    }
    println!("append: {:.0} records/s", rate(appending));
    println!(
        "append and commit with sync: {:.0} records/s, {commits} syncs",
        rate(appending + committing)
    );
    println!(
        "upkeep (zero-fill, sealing) took {upkeep:.2} s beside {:.2} s",
        appending + committing
    );
    log.close()?;
    read_back(folder)
}

fn read_back(folder: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut positions = Vec::new();
    let start = Instant::now();
    let mut log = open(folder, &mut positions)?;
    println!(
        "restart: {:.3} s for {} records",
        start.elapsed().as_secs_f64(),
        positions.len()
    );

    let start = Instant::now();
    let mut bytes = 0;
    for position in &positions {
        loop {
            match log.read(*position)? {
                Read::Cached(record) => break bytes += record.payload.len(),
                Read::Miss(request) => {
                    let done: ReadDone = request.run();
                    log.complete_read(done);
                }
                Read::Pending | Read::Later => return Err("the system lacks descriptors or memory".into()),
            }
        }
    }
    println!(
        "read in order: {:.0} records/s ({} MB)",
        rate(start.elapsed().as_secs_f64()),
        bytes / 1_000_000
    );

    let start = Instant::now();
    for position in &positions {
        log.hold(*position);
    }
    for position in &positions {
        log.release(*position);
    }
    println!(
        "hold and release: {:.1} ns",
        start.elapsed().as_secs_f64() * 1e9 / positions.len() as f64
    );

    one_by_one(log)
}

/// What a single waiting sender sees, without its network.
fn one_by_one(mut log: Log) -> Result<(), Box<dyn std::error::Error>> {
    let mut latencies: Vec<f64> = Vec::new();
    for _ in 0..2000 {
        log.append(16, &[7; 40], &[9; 1024])?;
        let start = Instant::now();
        if let Some(job) = log.next_write()? {
            log.complete_write(job.run())?;
        }
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
        maintain(&mut log)?;
    }
    latencies.sort_by(f64::total_cmp);
    println!(
        "one record a commit: p50 {:.0} us, p99 {:.0} us",
        latencies[1000], latencies[1980]
    );
    log.close()?;
    Ok(())
}
