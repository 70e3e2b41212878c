//! The log on a simulated disk. Here: a host that runs jobs inline and remembers what it was promised.

mod computed;
mod crash;
mod damage;
mod flaky;
mod forced;
mod formats;
mod headless;
mod lacking;
mod opening;
mod opening_by_force;
mod pieces;
mod reading;
mod real_disk;
mod refusing;
mod room;
mod shipping;
mod syncs;
mod told;
mod upkeep;
mod verifying;
mod young;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::sim::seeds::each_seed;
use crate::sim::{Random, SimDisk};

/// What a record was, to be compared byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub kind: u8,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
}

pub(super) fn options() -> Options {
    Options {
        segment_bytes: 64 * 1024,
        record_bytes_max: 20 * 1024,
        commit_bytes_max: 16 * 1024,
        cache_bytes: 64 * 1024,
        compact_below_percent: 0,
        store_id: [9; 16],
        ..Options::default()
    }
}

pub(super) fn compacting() -> Options {
    Options {
        compact_below_percent: 25,
        ..options()
    }
}

/// A log, its disk, and what was appended to it.
pub(super) struct Host {
    pub disk: SimDisk,
    pub log: Log,
    pub report: RecoveryReport,
    /// What the visitor was shown at open.
    pub recovered: Vec<(Position, u64, u8, Vec<u8>, u32)>,
    pub appended: BTreeMap<Position, Known>,
    pub durable: Position,
}

impl Host {
    pub fn open(disk: &SimDisk, options: Options) -> Result<Self, LogError> {
        let mut recovered = Vec::new();
        let mut visitor = |record: Recovered<'_>| {
            let Recovered {
                position,
                epoch,
                kind,
                head,
                payload_length,
            } = record;
            recovered.push((position, epoch, kind, head.to_vec(), payload_length));
            Ok(())
        };
        let (log, report) = Log::open(Arc::new(disk.clone()), options, &mut visitor)?;
        let durable = log.durable();
        Ok(Self {
            disk: disk.clone(),
            log,
            report,
            recovered,
            appended: BTreeMap::new(),
            durable,
        })
    }

    /// Opens again and takes over what is known.
    pub fn reopen(self, options: Options) -> Result<Self, LogError> {
        let Self {
            disk,
            log,
            appended,
            durable,
            ..
        } = self;
        drop(log);
        let mut host = Self::open(&disk, options)?;
        (host.appended, host.durable) = (appended, durable);
        Ok(host)
    }

    pub fn append(&mut self, random: &mut Random, payload_max: u64) -> Result<Position, AppendError> {
        let kind = 16 + random.below(4) as u8;
        let (head_length, payload_length) = (random.below(60) as usize, random.below(payload_max + 1) as usize);
        let (head, payload) = (random.bytes(head_length), random.bytes(payload_length));
        let position = self.log.append(kind, &head, &payload)?;
        self.appended.insert(position, Known { kind, head, payload });
        Ok(position)
    }

    /// One group commit, as far as the disk lets it.
    pub fn commit(&mut self) -> Result<(), LogError> {
        if let Some(job) = self.log.next_write()? {
            self.durable = self.log.complete_write(job.run())?;
        }
        Ok(())
    }

    /// All upkeep there is, bounded.
    pub fn maintain(&mut self, rewriter: &dyn Rewriter) -> Result<usize, LogError> {
        let mut count = 0;
        while let Some(job) = self.log.maintenance(rewriter) {
            self.log.complete_maintenance(job.run())?;
            count += 1;
            assert!(count < 10_000, "upkeep never ends");
        }
        Ok(count)
    }

    pub fn read(&mut self, position: Position) -> Result<Record, LogError> {
        for _ in 0..100 {
            match self.log.read(position)? {
                Read::Cached(record) => return Ok(record),
                Read::Miss(request) => self.log.complete_read(request.run()),
                // Whoever asked before dropped its request.
                Read::Pending => self.log.reading.clear(),
                Read::Later => self.log.request_watermark_sync(),
            }
        }
        panic!("a read at {position} misses after it was completed");
    }

    /// Checks one record against what was appended.
    pub fn check(&mut self, position: Position) {
        let record = self
            .read(position)
            .unwrap_or_else(|error| panic!("record at {position}: {error}"));
        let known = &self.appended[&position];
        let found = (record.kind, &record.head[..], &record.payload[..]);
        let same = found == (known.kind, &known.head[..], &known.payload[..]);
        assert!(same, "record at {position} came back as another");
    }

    /// After an open: everything durable is there, in order, byte for byte; nothing was invented; the rest is forgotten.
    pub fn check_recovered(&mut self) {
        let mut last = Position::ZERO;
        for (position, _, kind, head, payload_length) in &self.recovered {
            assert!(*position > last, "records out of order");
            last = *position;
            let known = self
                .appended
                .get(position)
                .unwrap_or_else(|| panic!("record at {position} was never appended"));
            assert_eq!(
                (*kind, head, *payload_length as usize),
                (known.kind, &known.head, known.payload.len())
            );
        }
        let found: std::collections::BTreeSet<Position> = self.recovered.iter().map(|record| record.0).collect();
        for position in self.appended.keys().filter(|position| **position < self.durable) {
            assert!(
                found.contains(position),
                "durable record at {position} of {} is lost",
                self.durable
            );
        }
        self.appended.retain(|position, _| found.contains(position));
        for position in found {
            self.check(position);
        }
        self.durable = self.log.durable();
    }
}

/// A new log with `count` records, committed in groups of random size, upkeep done.
pub(super) fn filled(seed: u64, count: usize, payload_max: u64) -> Host {
    filled_as(seed, count, payload_max, options())
}

pub(super) fn filled_as(seed: u64, count: usize, payload_max: u64, options: Options) -> Host {
    let mut random = Random::new(seed);
    let mut host = Host::open(&SimDisk::new(seed), options).unwrap();
    for _ in 0..count {
        while host.append(&mut random, payload_max).is_err() {
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
        if random.one_in(5) {
            host.commit().unwrap();
        }
    }
    host.commit().unwrap();
    host
}
