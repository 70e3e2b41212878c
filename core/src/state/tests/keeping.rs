//! What is kept for audits, over kills and losses of power: each cut is what there was, and its events lead to it from the one
//! before, or say which records they do not tell of.

use std::sync::Arc;

use proptest::prelude::*;

use super::cuts::{Play, Step, step};
use super::*;
use crate::sim::audit::{Events, Found};
use crate::sim::seeds::cases;
use crate::snapshot::keeper::{Bounds, Keeper, KeeperError, Progress};

/// A broker whose cuts are taken and exported.
pub(super) struct Kept {
    pub(super) play: Play,
    pub(super) keeper: Option<Keeper>,
    bounds: Bounds,
    /// What there was when the cut that waits, or is being written, began.
    expected: Option<Found>,
    /// What there was at the last cut that was exported.
    last: Option<Found>,
    pub(super) exported: u64,
    /// What there was at the cut before that.
    before: Option<Found>,
}

/// A broker whose segments are soon full, sealed and rewritten.
pub(super) fn small() -> Bench {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 32 * 1024;
    options.log.commit_bytes_max = 32 * 1024;
    Bench::on(SimDisk::new(1), options)
}

impl Kept {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self::on(Play::on(small(), 2_000), bounds)
    }

    pub(super) fn on(play: Play, bounds: Bounds) -> Self {
        let mut kept = Self {
            play,
            keeper: None,
            bounds,
            expected: None,
            last: None,
            exported: 0,
            before: None,
        };
        kept.open();
        kept
    }

    pub(super) fn open(&mut self) {
        let disk = Arc::new(self.play.bench.disk.clone());
        let bounds = self.bounds;
        self.keeper = Some(Keeper::open(disk, self.play.bench.state(), bounds).unwrap());
    }

    pub(super) fn restart(&mut self, loses_power: bool) {
        // Before the state: what it claims must be claimed again before any upkeep.
        self.keeper = None;
        self.play.bench.state = None;
        if loses_power {
            self.play.bench.disk.power_cycle();
        } else {
            self.play.bench.disk.kill_process();
        }
        let (state, _) = State::open(
            Arc::new(self.play.bench.disk.clone()),
            self.play.bench.options.clone(),
            self.play.bench.now,
        )
        .unwrap();
        self.play.bench.state = Some(state);
        self.open();
        self.play.reconfigure();
        let exported = self.play.bench.state().exported().map_or(0, |exported| exported.number);
        if exported < self.exported {
            // That was not durable yet, so the cut still waits, with its events.
            self.exported -= 1;
            assert_eq!(exported, self.exported);
            (self.expected, self.last) = (self.last.take(), self.before.take());
            let progress = self.progress();
            assert!(matches!(progress, Progress::Ready { .. }), "{progress:?}");
        }
    }

    /// How far the next cut is.
    pub(super) fn progress(&mut self) -> Progress {
        let keeper = self.keeper.as_ref().unwrap();
        keeper.progress(self.play.bench.state())
    }

    /// Runs so many jobs of the keeper; whether one was left.
    pub(super) fn work(&mut self, jobs: usize) -> bool {
        for _ in 0..jobs {
            let now = Found::in_tables(self.play.bench.state());
            let keeper = self.keeper.as_mut().unwrap();
            let was_making = keeper.is_making();
            let job = keeper.next_job(self.play.bench.state());
            if keeper.is_making() && !was_making {
                self.expected = Some(now);
            }
            let Some(job) = job else { return false };
            let done = job.run();
            keeper.complete(self.play.bench.state(), done);
        }
        true
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            self.play.bench.settle();
            if !self.work(1) {
                return;
            }
        }
        panic!("the work for audits does not come to an end");
    }

    pub(super) fn begin(&mut self) {
        let now = Found::in_tables(self.play.bench.state());
        let keeper = self.keeper.as_mut().unwrap();
        let was_making = keeper.is_making();
        keeper.begin(self.play.bench.state()).unwrap();
        if keeper.is_making() && !was_making {
            self.expected = Some(now);
        }
    }

    /// Looks at the cut that waits, if one does, and has it exported.
    pub(super) fn export(&mut self) {
        let progress = self.progress();
        let Progress::Ready { cut, events, gaps, .. } = progress else {
            return;
        };
        assert_eq!(cut.number, self.exported + 1);
        let disk = self.play.bench.disk.clone();
        let found = Found::in_file(&disk, &cut).unwrap();
        assert_eq!(Some(&found), self.expected.as_ref());
        let mut ranges: Vec<_> = events.iter().map(|header| (header.from, header.to)).collect();
        ranges.extend(gaps.iter().map(|gap| (gap.from, gap.to)));
        ranges.sort_unstable();
        let mut at = cut.from;
        for (from, to) in ranges {
            assert_eq!(from, at, "events and gaps adjoin: {events:?} {gaps:?}");
            at = to;
        }
        assert_eq!(at, cut.to, "up to the cut");
        self.before = self.last.take();
        if let Some(last) = self.before.clone().filter(|_| gaps.is_empty()) {
            let mut told = Events::default();
            for header in &events {
                told.add_file(&disk, header).unwrap();
            }
            assert_eq!(told.replay(last), Ok(found.clone()));
        }
        let (state, keeper) = (self.play.bench.state.as_mut().unwrap(), self.keeper.as_mut().unwrap());
        let manifest = [cut.number as u8; 32];
        keeper.confirm(state, cut.number, manifest).unwrap();
        assert!(matches!(
            keeper.confirm(state, cut.number + 1, manifest),
            Err(KeeperError::NoSuchCut(_))
        ));
        (self.last, self.exported, self.expected) = (Some(found), cut.number, None);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Client(Step),
    Work(usize),
    Begin,
    Export,
    Settle,
    /// With a loss of power, or killed.
    Restart(bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        40 => step().prop_map(Act::Client),
        8 => (1..4_usize).prop_map(Act::Work),
        3 => Just(Act::Begin),
        3 => Just(Act::Export),
        4 => Just(Act::Settle),
        2 => any::<bool>().prop_map(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn each_cut_follows_from_the_one_before(acts in proptest::collection::vec(act(), 0..150)) {
        let mut kept = Kept::new(Bounds::default());
        for act in &acts {
            match act {
                Act::Client(step) => kept.play.run(step),
                Act::Work(jobs) => drop(kept.work(*jobs)),
                Act::Begin => kept.begin(),
                Act::Export => kept.export(),
                Act::Settle => kept.settle(),
                Act::Restart(loses_power) => kept.restart(*loses_power),
            }
        }
        kept.settle();
        kept.begin();
        kept.settle();
        kept.export();
        kept.settle();
        kept.begin();
        kept.settle();
        let exported = kept.exported;
        kept.export();
        prop_assert_eq!(kept.exported, exported + 1);
        kept.settle();
        // Of what was exported nothing is left but the first events of the next.
        let names = kept.play.bench.disk.names();
        prop_assert!(!names.iter().any(|name| name.ends_with(".cut")), "{names:?}");
    }
}
