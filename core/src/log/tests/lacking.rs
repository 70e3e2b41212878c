//! A disk that refuses one kind of call, and a disk that is full: what is done all the same, and what waits.

use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::upkeep::{Growing, Shedding};
use super::*;
use crate::log::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile};
use crate::log::reserve::SPARE_FILE;
use crate::sim::Faults;

/// Which calls fail, and with what.
#[derive(Clone, Copy, Default)]
struct Refused {
    open: Option<Errno>,
    rename: Option<Errno>,
}

/// A disk that refuses some calls.
#[derive(Clone)]
struct Refusing {
    inner: SimDisk,
    refused: Arc<Mutex<Refused>>,
}

impl Refusing {
    fn set(&self, refused: Refused) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    fn now(&self) -> Refused {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Refusing {
    fn open(&self, name: &str, how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError> {
        match self.now().open {
            Some(error) => Err(DiskError::new("open", name, error.into())),
            None => self.inner.open(name, how),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        match self.now().rename {
            Some(error) => Err(DiskError::new("rename", from, error.into())),
            None => self.inner.rename(from, to),
        }
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.inner.remove(name)
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        self.inner.sync_directory()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.inner.lock(name)
    }
}

/// A log of several segments on such a disk.
fn sealed() -> (Host, Refusing) {
    let host = filled(3, 200, 2000);
    let Host {
        disk,
        log,
        appended,
        durable,
        ..
    } = host;
    drop(log);
    let refusing = Refusing {
        inner: disk.clone(),
        refused: Arc::default(),
    };
    let (log, report) = Log::open(Arc::new(refusing.clone()), options(), &mut |_| Ok(())).unwrap();
    let mut host = Host {
        disk,
        log,
        report,
        recovered: Vec::new(),
        appended,
        durable,
    };
    host.maintain(&KeepAll).unwrap();
    (host, refusing)
}

/// A log whose first segment is about to be retired, and its file to be used again.
fn retiring() -> (Host, Refusing) {
    let (mut host, refusing) = sealed();
    let floor = host.log.durable();
    host.log.set_floor(floor, Position::ZERO);
    (host, refusing)
}

fn step(host: &mut Host) -> Result<(), LogError> {
    let job = host.log.maintenance(&KeepAll).expect("there is upkeep");
    host.log.complete_maintenance(job.run())
}

#[test]
fn a_file_that_is_used_again_is_listed_by_a_manifest_of_its_own() {
    let (mut host, _) = retiring();
    let (start, ahead, version) = (host.log.start(), host.log.ahead.len(), host.log.manifest.version);
    step(&mut host).unwrap();
    assert!(host.log.start() > start && host.log.ahead.len() == ahead + 1);
    assert_eq!(host.log.manifest.version, version + 2);
}

#[test]
fn a_segment_is_retired_whatever_is_lacking_to_use_its_file_again() {
    for refused in [
        Refused {
            open: Some(Errno::MFILE),
            rename: None,
        },
        Refused {
            open: None,
            rename: Some(Errno::NOMEM),
        },
    ] {
        let (mut host, disk) = retiring();
        let (start, ahead, version) = (host.log.start(), host.log.ahead.len(), host.log.manifest.version);
        disk.set(refused);
        step(&mut host).unwrap();
        assert!(host.log.start() > start);
        assert_eq!((host.log.ahead.len(), host.log.manifest.version), (ahead, version + 1));
        disk.set(Refused::default());
        Host::open(&host.disk.fork(1), options()).unwrap();
    }
}

#[test]
fn an_error_of_the_disk_on_the_way_is_final() {
    for refused in [
        Refused {
            open: Some(Errno::IO),
            rename: None,
        },
        Refused {
            open: None,
            rename: Some(Errno::IO),
        },
    ] {
        let (mut host, disk) = retiring();
        disk.set(refused);
        assert!(matches!(step(&mut host), Err(LogError::Failed(_))));
        assert!(host.log.failed().is_some());
    }
}

#[test]
fn what_lacks_descriptors_waits_for_the_host_and_so_does_all_other_upkeep() {
    let (mut host, disk) = sealed();
    host.log.ahead.truncate(2);
    host.log.request_watermark_sync();
    assert!(!host.log.waits_for_host() && host.log.shortage().is_none());
    assert_eq!(host.log.space(), Space::Preparing);
    disk.set(Refused {
        open: Some(Errno::MFILE),
        rename: None,
    });
    step(&mut host).unwrap();
    assert!(host.log.maintenance(&KeepAll).is_none());
    assert!(host.log.waits_for_host());
    assert!(host.log.shortage().is_some());
    assert_eq!(host.log.space(), Space::Full);
    disk.set(Refused::default());
    host.log.request_watermark_sync();
    assert!(!host.log.waits_for_host() && host.log.shortage().is_none());
    step(&mut host).unwrap();
    assert_eq!(host.log.ahead.len(), 3);
}

#[test]
fn a_full_disk_is_told_for_as_long_as_it_is_not_asked_again() {
    let mut host = filled(3, 20, 1000);
    host.maintain(&KeepAll).unwrap();
    host.log.ahead.truncate(2);
    host.disk.set_faults(Faults {
        space_bytes: Some(host.disk.used_bytes()),
        ..Faults::default()
    });
    step(&mut host).unwrap();
    assert!(host.log.waits_for_host() && host.log.shortage().is_some());
    assert_eq!(host.log.space(), Space::Full);
    host.log.request_watermark_sync();
    assert!(!host.log.waits_for_host());
    assert_eq!(host.log.space(), Space::Full, "it has still to be drained");
}

#[test]
fn a_full_disk_is_drained_until_spare_and_segment_are_there() {
    let mut host = filled(3, 20, 1000);
    host.maintain(&KeepAll).unwrap();
    assert!(host.log.ahead.len() == 3 && host.log.reserve.has_spare);
    let is_drained = |host: &mut Host, ahead: usize, has_spare: bool| {
        host.log.ahead.truncate(ahead);
        (host.log.reserve.drains, host.log.reserve.has_spare) = (true, has_spare);
        host.log.drains()
    };
    assert!(is_drained(&mut host, 3, false));
    assert!(!is_drained(&mut host, 3, true));
    assert!(!host.log.drains());
    assert!(is_drained(&mut host, 2, true));
}

#[test]
fn what_comes_free_on_a_full_disk_is_left_to_the_spare() {
    let (mut host, _) = retiring();
    host.log.ahead.truncate(2);
    (host.log.reserve.drains, host.log.reserve.has_spare) = (true, false);
    let start = host.log.start();
    step(&mut host).unwrap();
    assert!(host.log.start() > start);
    assert_eq!(host.log.ahead.len(), 2);
}

#[test]
fn the_spare_is_known_at_a_start_and_spent_once() {
    let mut host = filled(3, 20, 1000);
    host.maintain(&KeepAll).unwrap();
    assert!(host.disk.contents(SPARE_FILE).is_some());
    let mut host = host.reopen(options()).unwrap();
    assert!(host.log.reserve.has_spare && host.disk.contents(SPARE_FILE).is_some());
    let larger = Options {
        segment_bytes: 128 * 1024,
        ..options()
    };
    let copy = host.disk.fork(1);
    copy.kill_process();
    let other = Host::open(&copy, larger).unwrap();
    assert!(!other.log.reserve.has_spare && copy.contents(SPARE_FILE).is_none());
    assert!(host.log.spend_spare_now().unwrap());
    assert!(host.disk.contents(SPARE_FILE).is_none());
    assert!(!host.log.spend_spare_now().unwrap());
}

#[test]
fn the_end_of_the_last_segment_has_room_for_two_checkpoints() {
    let large = Options {
        segment_bytes: 1024 * 1024,
        ..options()
    };
    let mut host = Host::open(&SimDisk::new(1), large).unwrap();
    host.log.ahead.clear();
    host.log.keep_for_checkpoint(20 * BLOCK_BYTES - 1);
    while host.log.append_reserved(40, b"ends one", &[7; 3000]).is_ok() {
        host.commit().unwrap();
    }
    let left = host.log.room_left();
    let kept = (16 + 2 * 20) * BLOCK_BYTES;
    assert!((kept..kept + 2 * BLOCK_BYTES).contains(&left), "{left} of {kept}");
    let segment = host.log.segments.last().unwrap();
    assert_eq!(left, segment.limit().get() - segment.end.get());
}

#[test]
fn room_is_not_promised_where_a_commit_more_does_not_fit() {
    let small = Options {
        commit_bytes_max: 4096,
        ..options()
    };
    let mut host = Host::open(&SimDisk::new(1), small).unwrap();
    host.log.ahead.truncate(2);
    loop {
        let room = host.log.room_left() / BLOCK_BYTES * BLOCK_BYTES;
        if room < 4 * BLOCK_BYTES {
            break;
        }
        assert!(host.log.has_room(room - 2 * BLOCK_BYTES), "{room}");
        // One that takes two blocks, and one that takes the rest and a block more.
        let bytes = [4_056, room - 2 * BLOCK_BYTES - 64];
        let lengths = bytes.map(|bytes| bytes - HEADER_BYTES as u64);
        if bytes[1] < 20 * 1024 {
            assert!(host.log.check_room(&lengths, Purpose::Fill).is_err());
            assert!(!host.log.has_room(bytes.iter().sum()), "{room}");
        }
        host.log.append(20, b"", b"").unwrap();
        host.commit().unwrap();
    }
}

#[test]
fn what_waits_for_the_disk_is_joined_by_what_drains_alone_and_then_written_whole() {
    let mut host = Host::open(&SimDisk::new(1), options()).unwrap();
    host.maintain(&KeepAll).unwrap();
    let mut random = Random::new(1);
    // The second segment's first commit is among what waits.
    while host.log.segments.len() < 2 {
        host.append(&mut random, 3000).unwrap();
    }
    host.disk.set_faults(Faults {
        shortage_one_in: 1,
        ..Faults::default()
    });
    host.commit().unwrap();
    assert!(host.log.waits_for_host());
    assert_eq!(host.log.append(20, b"", b"one more"), Err(AppendError::NoSpace));
    let (kind, head, payload) = (40, b"ends one".to_vec(), Vec::new());
    let position = host.log.append_reserved(kind, &head, &payload).unwrap();
    host.appended.insert(position, Known { kind, head, payload });
    host.disk.set_faults(Faults::default());
    host.log.request_watermark_sync();
    host.commit().unwrap();
    host.commit().unwrap();
    assert!(host.durable > position);
    host.append(&mut random, 3000).unwrap();
    host.commit().unwrap();
    host.disk.kill_process();
    let mut host = host.reopen(options()).unwrap();
    host.check_recovered();
}

#[test]
fn a_full_disk_makes_no_spare_while_a_rewrite_needs_the_space() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let kept: Vec<Position> = host.appended.keys().copied().step_by(19).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    (host.log.reserve.drains, host.log.reserve.has_spare) = (true, false);
    // The rewrite comes into force when this is durable.
    host.log.append_reserved(16, b"ends others", b"").unwrap();
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(!host.log.has_rewritten());
    assert!(!host.log.reserve.has_spare);
    host.commit().unwrap();
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(host.log.has_rewritten() && host.log.reserve.has_spare);
}

#[test]
fn what_depends_anew_on_a_segment_whose_rewrite_is_given_up_depends_on_it_once() {
    let mut host = filled(8, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let (target, holder) = (positions[0], positions[150]);
    for position in positions.iter().step_by(10) {
        host.log.hold(*position);
    }
    host.log.depend(holder, target);
    let mut most = 0;
    while let Some(job) = host.log.maintenance(&Growing) {
        host.log.complete_maintenance(job.run()).unwrap();
        host.log.depend(holder, target);
        most = most.max(host.log.segments.find(holder).unwrap().liveness.blockers);
    }
    assert_eq!(most, 2, "it was never rewritten");
    assert_eq!(host.log.segments.find(holder).unwrap().liveness.blockers, 1);
}

#[test]
fn a_segment_of_three_blocks_is_too_small() {
    let small = |segment_bytes| Options {
        segment_bytes,
        record_bytes_max: 4000,
        ..options()
    };
    assert!(small(16 * 1024).check().is_ok());
    assert!(small(12 * 1024).check().is_err());
    assert!(small(12 * 1024 - 4096).check().is_err());
}
