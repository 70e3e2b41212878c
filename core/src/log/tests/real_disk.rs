//! That the real disk syncs: the calls of a process with a log in a folder are counted, by a library that is loaded before
//! the system's. A mistake here is seen by no simulated disk, and by nobody else before the power fails.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::log::file_disk::FileDisk;

/// Set in the process whose calls are counted: the folder of its log.
const FOLDER: &str = "STERNA_COUNTED_FOLDER";
/// Where the library notes the calls, and the process what it is about to do.
const CALLS: &str = "STERNA_COUNTED_CALLS";

const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int counted(const char *name, int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    int calls = open(getenv("STERNA_COUNTED_CALLS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    dprintf(calls, "%s %.*s\n", name, length < 0 ? 0 : (int)length, path);
    close(calls);
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return next(fd);
}
int fsync(int fd) { return counted("fsync", fd); }
int fdatasync(int fd) { return counted("fdatasync", fd); }
"#;

/// The life of a log: made, written, sealed, compacted or retired, asked for its watermark, closed, opened.
fn live(folder: &Path) {
    use std::io::Write as _;
    let mut calls = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(std::env::var_os(CALLS).unwrap())
        .unwrap();
    let mut now = |what: &str| writeln!(calls, "now {what}").unwrap();
    let open = || Log::open(Arc::new(FileDisk::new(folder).unwrap()), options(), &mut |_| Ok(())).unwrap();
    now("open");
    let (mut log, _) = open();
    now("append");
    log.append(16, b"head", b"payload").unwrap();
    let job = log.next_write().unwrap().unwrap();
    now("write");
    log.complete_write(job.run()).unwrap();
    for _ in 0..20 {
        now("upkeep");
        while let Some(job) = log.maintenance(&KeepAll) {
            log.complete_maintenance(job.run()).unwrap();
        }
        now("append");
        let _ = log.append(16, b"head", &[7; 15_000]);
        if let Some(job) = log.next_write().unwrap() {
            log.complete_write(job.run()).unwrap();
        }
    }
    assert!(log.disk_use().0 > 2);
    let floor = log.durable();
    log.set_floor(floor, Position::ZERO);
    now("retire");
    while let Some(job) = log.maintenance(&KeepAll) {
        log.complete_maintenance(job.run()).unwrap();
    }
    log.request_watermark_sync();
    let job = log.maintenance(&KeepAll).unwrap();
    now("watermark");
    log.complete_maintenance(job.run()).unwrap();
    now("close");
    log.close().unwrap();
    now("end");
}

/// What was synced in each stretch: names without their folder, and numbers as `#`.
fn stretches(calls: &str, folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in calls.lines() {
        let (call, what) = line.split_once(' ').unwrap();
        if call == "now" {
            found.push((what.to_owned(), Vec::new()));
            continue;
        }
        let Ok(name) = Path::new(what).strip_prefix(folder) else {
            continue;
        };
        let name = name.display().to_string();
        let name = match name.split_once('.') {
            Some((_, suffix)) => format!("#.{suffix}"),
            None if name.starts_with("manifest") => "manifest".to_owned(),
            None => name,
        };
        if let Some((_, synced)) = found.last_mut() {
            let mut told = String::new();
            write!(told, "{call} {name}").unwrap();
            synced.push(told.trim_end().to_owned());
        }
    }
    found
}

/// Runs this test's other half with every sync counted; what was synced, by stretches.
fn counted() -> Vec<(String, Vec<String>)> {
    let build = tempfile::tempdir().unwrap();
    let (source, library) = (build.path().join("counted.c"), build.path().join("counted.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    // There is a C compiler wherever Rust links.
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(built.success());
    let folder = build.path().canonicalize().unwrap().join("log");
    let calls = build.path().join("calls");
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "log::tests::real_disk::a_log_in_a_folder_syncs_what_it_reports_durable",
        ])
        .env("LD_PRELOAD", &library)
        .env(FOLDER, &folder)
        .env(CALLS, &calls)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    stretches(&std::fs::read_to_string(&calls).unwrap(), &folder)
}

#[test]
fn a_log_in_a_folder_syncs_what_it_reports_durable() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return live(Path::new(&folder));
    }
    let found = counted();
    let of = |what: &str| -> Vec<&[String]> {
        let stretches = found.iter().filter(|(name, _)| name == what);
        stretches.map(|(_, synced)| synced.as_slice()).collect()
    };
    let has = |synced: &[String], wanted: &[&str]| {
        // In this order, with others between them.
        let mut rest = synced.iter();
        wanted.iter().all(|one| rest.any(|call| call == one))
    };
    let in_order = |what: &str, wanted: &[&str]| {
        let found = of(what);
        assert!(
            found.iter().any(|synced| has(synced, wanted)),
            "{what}, {wanted:?}: {found:?}"
        );
    };
    // The folder itself has an empty name.
    in_order(
        "open",
        &[
            "fdatasync #.segment",
            "fdatasync manifest",
            "fdatasync watermark",
            "fsync",
        ],
    );
    in_order("write", &["fdatasync #.segment"]);
    assert!(
        of("append")
            .iter()
            .skip(1)
            .all(|synced| has(synced, &["fdatasync #.segment"]))
    );
    in_order("upkeep", &["fdatasync #.segment", "fsync", "fdatasync manifest"]);
    in_order(
        "upkeep",
        &[
            "fdatasync #.footer",
            "fsync",
            "fdatasync watermark",
            "fdatasync manifest",
        ],
    );
    in_order("retire", &["fdatasync manifest", "fsync", "fdatasync manifest"]);
    in_order("watermark", &["fdatasync watermark"]);
    in_order("close", &["fdatasync watermark", "fdatasync watermark"]);
}
