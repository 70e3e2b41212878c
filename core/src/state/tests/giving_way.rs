//! What is kept for audits when something is in its way: it goes, what is missing is said, and the next cut goes on.

use crate::log::Position;
use crate::log::disk::{Disk as _, OpenFile, write_all};
use crate::sim::Faults;
use crate::sim::audit::pieces;
use crate::snapshot::keeper::{Bounds, Keeper, Progress};
use crate::snapshot::pieces::{Header, Kind as FileKind, Writer};

use std::io::IoSlice;

use super::cuts::{Play, Step};
use super::keeping::{Kept, small};
use super::*;

const SEND: Step = Step::Send {
    to: 0,
    priority: 4,
    delayed: false,
    expires: false,
};

/// A broker that has exported a cut, and with it what it wrote since.
fn exported_once(bytes: usize, bounds: Bounds) -> Kept {
    let mut kept = Kept::on(Play::on(small(), bytes), bounds);
    whole(&mut kept);
    kept
}

fn whole(kept: &mut Kept) {
    let exported = kept.exported;
    kept.begin();
    kept.settle();
    kept.export();
    kept.settle();
    assert_eq!(kept.exported, exported + 1);
}

fn send(kept: &mut Kept, count: usize) {
    for _ in 0..count {
        kept.play.run(&SEND);
        kept.play.bench.settle();
    }
}

fn gaps(kept: &mut Kept) -> Vec<(Position, Position, String)> {
    match kept.progress() {
        Progress::Ready { gaps, .. } => gaps.into_iter().map(|gap| (gap.from, gap.to, gap.why)).collect(),
        other => panic!("{other:?}"),
    }
}

fn files_of_events(kept: &Kept) -> usize {
    let names = kept.play.bench.disk.names();
    names.iter().filter(|name| name.ends_with(".events")).count()
}

#[test]
fn a_gap_that_reaches_over_a_cut_is_told_in_parts() {
    let bounds = Bounds {
        bytes_max: 200_000,
        ..Bounds::default()
    };
    let mut kept = exported_once(2_000, bounds);
    send(&mut kept, 10);
    kept.begin();
    assert!(kept.keeper.as_ref().unwrap().is_making());
    // While it is written so much comes that the claim on the log is lost: up to somewhere behind the cut nobody tells.
    send(&mut kept, 200);
    kept.work(1);
    send(&mut kept, 200);
    kept.settle();
    assert_eq!(gaps(&mut kept).len(), 1, "{:?}", kept.progress());
    // Whoever exports sees to it that events and gaps adjoin from cut to cut.
    kept.export();
    kept.settle();
    send(&mut kept, 10);
    kept.begin();
    kept.settle();
    assert!(!gaps(&mut kept).is_empty(), "it began before this cut");
    kept.export();
    assert_eq!(kept.exported, 3);
}

#[test]
fn what_is_still_written_is_kept_for_nobody_and_no_reason_to_give_events_up() {
    // Less than a segment, as on a small volume; what is told of it takes far less.
    let bounds = Bounds {
        bytes_max: 56_000,
        ..Bounds::default()
    };
    let mut kept = exported_once(2_000, bounds);
    for _ in 0..12 {
        send(&mut kept, 5);
        kept.settle();
    }
    assert!(files_of_events(&kept) > 0, "a segment was sealed");
    kept.begin();
    kept.settle();
    assert_eq!(gaps(&mut kept), []);
    kept.export();
}

#[test]
fn events_that_were_lost_are_made_again_and_end_with_the_cut_that_waits() {
    let mut kept = exported_once(2_000, Bounds::default());
    send(&mut kept, 10);
    kept.begin();
    kept.settle();
    let Progress::Ready { cut, events, .. } = kept.progress() else {
        panic!("it is not whole");
    };
    // The file does not verify any more; more comes, in the same segment, and it is sealed.
    let name = events.last().unwrap().file_name();
    kept.play.bench.disk.edit(&name, |bytes| bytes[20] ^= 1);
    kept.restart(false);
    assert!(
        matches!(kept.progress(), Progress::Making { number: 2 }),
        "it is not whole before its events are"
    );
    let (state, keeper) = (kept.play.bench.state.as_mut().unwrap(), kept.keeper.as_mut().unwrap());
    assert!(keeper.confirm(state, 2, [2; 32]).is_err());
    send(&mut kept, 100);
    kept.settle();
    match kept.progress() {
        Progress::Ready { cut: again, gaps, .. } => assert_eq!((again, gaps), (cut, vec![])),
        other => panic!("{other:?}"),
    }
    kept.export();
    kept.settle();
    whole(&mut kept);
}

#[test]
fn a_file_that_cannot_be_read_is_no_reason_not_to_start() {
    let mut kept = exported_once(2_000, Bounds::default());
    send(&mut kept, 100);
    kept.settle();
    let names = kept.play.bench.disk.names();
    let name = names.iter().find(|name| name.ends_with(".events")).unwrap().clone();
    kept.play.bench.disk.make_unreadable(&name, 0);
    kept.restart(false);
    whole(&mut kept);
}

#[test]
fn what_was_half_made_goes_when_the_disk_is_full_and_a_cut_that_waits_says_so() {
    let mut kept = exported_once(1, Bounds::default());
    kept.begin();
    kept.settle();
    assert!(matches!(kept.progress(), Progress::Ready { .. }));
    let known = |kept: &Kept| kept.keeper.as_ref().unwrap().kept().0;
    let before = (files_of_events(&kept), known(&kept));
    // A segment of many records is told of in several parts.
    for _ in 0..100 {
        (0..100).for_each(|_| kept.play.run(&SEND));
        kept.play.bench.settle();
        kept.work(1);
        if files_of_events(&kept) > before.0 {
            break;
        }
    }
    let now = (files_of_events(&kept), known(&kept));
    assert_eq!(now, (before.0 + 1, before.1), "one is half made");
    let space_bytes = Some(kept.play.bench.disk.used_bytes());
    kept.play.bench.disk.set_faults(Faults {
        space_bytes,
        ..Faults::default()
    });
    let queue = kept.play.bench.state().destination(Kind::Queue, "plain").unwrap().id;
    for _ in 0..10_000 {
        if kept
            .play
            .bench
            .try_send(queue, &Message::text("x".repeat(8_000)))
            .is_err()
        {
            break;
        }
        kept.play.bench.settle();
    }
    assert_eq!(kept.play.bench.state().log().space(), crate::log::Space::Full);
    while kept.work(1) {}
    match kept.progress() {
        Progress::Failed(why) => assert_eq!(why, "the disk was full"),
        other => panic!("{other:?}"),
    }
    let names = kept.play.bench.disk.names();
    assert!(
        !names
            .iter()
            .any(|name| name.ends_with(".events") || name.ends_with(".cut")),
        "{names:?}"
    );
    kept.play.bench.disk.set_faults(Faults::default());
    for _ in 0..5 {
        kept.play.bench.state().request_watermark_sync();
        kept.settle();
    }
    whole(&mut kept);
}

#[test]
fn a_file_that_cannot_be_removed_is_in_nobodys_way() {
    let mut kept = exported_once(2_000, Bounds::default());
    kept.play.bench.disk.set_faults(Faults {
        keeps_files: true,
        ..Faults::default()
    });
    for _ in 0..3 {
        // A second passes between any two pieces of work, so that removing is due each time.
        send(&mut kept, 10);
        let exported = kept.exported;
        kept.begin();
        for _ in 0..50 {
            kept.play.bench.advance(1_000);
            kept.play.bench.settle();
            kept.work(2);
        }
        kept.export();
        assert_eq!(kept.exported, exported + 1);
    }
    assert!(files_of_events(&kept) > 1, "nothing could be removed");
    kept.play.bench.disk.set_faults(Faults::default());
    kept.play.bench.advance(1_000);
    kept.settle();
    kept.play.bench.advance(1_000);
    kept.settle();
    assert!(files_of_events(&kept) <= 1, "{:?}", kept.play.bench.disk.names());
}

#[test]
fn what_the_disk_lacked_for_a_moment_is_not_told_as_a_failure_afterwards() {
    let mut kept = exported_once(2_000, Bounds::default());
    send(&mut kept, 10);
    kept.begin();
    for _ in 0..1_000 {
        kept.play.bench.settle();
        kept.play.bench.disk.set_faults(Faults {
            shortage_one_in: 1,
            ..Faults::default()
        });
        let works = kept.work(1);
        kept.play.bench.disk.set_faults(Faults::default());
        if !works {
            break;
        }
    }
    kept.play.bench.advance(10_000);
    kept.begin();
    kept.settle();
    kept.export();
    kept.settle();
    assert_eq!((kept.progress(), kept.exported), (Progress::None, 2));
}

#[test]
fn what_a_forced_start_has_lost_is_a_gap_and_the_chain_goes_on() {
    let mut kept = exported_once(2_000, Bounds::default());
    // Nothing of it is told of yet.
    send(&mut kept, 200);
    kept.keeper = None;
    kept.play.bench.state = None;
    let disk = kept.play.bench.disk.clone();
    disk.kill_process();
    let segments: Vec<String> = disk
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".segment"))
        .collect();
    disk.edit(&segments[2], |bytes| bytes.fill(0));
    let report = kept.play.bench.force();
    assert!(!report.dropped.is_empty());
    kept.restart(false);
    kept.begin();
    kept.settle();
    let told = gaps(&mut kept);
    assert!(!told.is_empty());
    kept.export();
    kept.settle();
    whole(&mut kept);
}

#[test]
fn a_follower_begins_no_cut_and_claims_nothing_for_it() {
    let mut bench = Bench::on(SimDisk::new(3), follower_options());
    let (disk, state) = (Arc::new(bench.disk.clone()), bench.state());
    let mut keeper = Keeper::open(disk, state, Bounds::default()).unwrap();
    keeper.begin(state).unwrap();
    assert!(matches!(keeper.progress(state), Progress::Failed(_)));
    assert!(keeper.next_job(state).is_none());
    assert!(!state.has_reader("$sys.cut") && !state.has_reader("$sys.events"));
    assert!(!bench.disk.names().iter().any(|name| name.ends_with(".cut")));
}

#[test]
fn a_cut_whose_sync_failed_is_none_at_the_next_start() {
    let mut failed = 0;
    for operation in 1..40 {
        let mut kept = exported_once(2_000, Bounds::default());
        send(&mut kept, 10);
        kept.begin();
        kept.play.bench.settle();
        let fail_sync_at = Some(kept.play.bench.disk.operations() + operation);
        kept.play.bench.disk.set_faults(Faults {
            fail_sync_at,
            ..Faults::default()
        });
        while matches!(kept.progress(), Progress::Making { .. }) && kept.work(1) {}
        failed += usize::from(matches!(kept.progress(), Progress::Failed(_)));
        // The process ends before it could do anything about it, and then the power goes, too.
        let mut waits = |loses_power| {
            kept.restart(loses_power);
            kept.keeper.as_ref().unwrap().waiting()
        };
        assert_eq!(waits(false), waits(true), "operation {operation}");
        whole(&mut kept);
    }
    assert!(failed > 1, "{failed}");
}

#[test]
fn what_a_start_finds_whole_is_there_after_a_loss_of_power_too() {
    let mut kept = exported_once(2_000, Bounds::default());
    send(&mut kept, 10);
    kept.begin();
    kept.settle();
    let waits = |kept: &Kept| kept.keeper.as_ref().unwrap().waiting().unwrap();
    let cut = waits(&kept);
    for turn in 0..10 {
        // Written, and the process ends before the sync.
        let disk = kept.play.bench.disk.clone();
        let ours = |name: &String| name.ends_with(".events") || name.ends_with(".cut");
        for name in disk.names().into_iter().filter(ours) {
            let bytes = disk.contents(&name).unwrap();
            let file = disk.open(&name, OpenFile::Fresh).unwrap();
            write_all(file.as_ref(), 0, &mut [IoSlice::new(&bytes)]).unwrap();
        }
        kept.restart(false);
        assert_eq!(waits(&kept), cut);
        kept.restart(true);
        assert_eq!((waits(&kept), gaps(&mut kept)), (cut, vec![]), "turn {turn}");
    }
    kept.export();
    kept.settle();
    whole(&mut kept);
}

#[test]
fn a_cut_of_what_the_log_does_not_have_is_none() {
    let mut kept = Kept::new(Bounds::default());
    let store_id = kept.play.bench.state().store_id();
    let header = Header {
        kind: FileKind::Cut,
        store_id,
        number: 1,
        from: Position(1 << 40),
        to: Position(1 << 40),
        epoch: 1,
        bytes: 0,
        rows: 0,
        time_ms: 0,
    };
    let disk = kept.play.bench.disk.clone();
    let writer = Writer::create(&disk, FileKind::Cut, 1).unwrap();
    writer.finish(&disk, header).unwrap();
    kept.restart(false);
    assert_eq!(kept.progress(), Progress::None);
    whole(&mut kept);
}

#[test]
fn a_piece_is_no_longer_than_whoever_reads_it_can_take_however_long_its_texts_are() {
    let mut options = small_options();
    options.log.segment_bytes = 32 << 20;
    let mut kept = Kept::on(Play::on(Bench::on(SimDisk::new(1), options), 1), Bounds::default());
    let mut random = crate::sim::Random::new(1);
    for number in 0..400 {
        let letters: String = random
            .bytes(28_000)
            .iter()
            .map(|byte| (b'a' + byte % 26) as char)
            .collect();
        let text = format!("color = '{letters}'");
        kept.play
            .bench
            .subscribe(&format!("long{number}"), "news", |definition| {
                definition.selector = selector(&text);
            });
        kept.play.bench.settle();
    }
    kept.begin();
    kept.settle();
    let Progress::Ready { cut, .. } = kept.progress() else {
        panic!("{:?}", kept.progress());
    };
    let pieces = pieces(&kept.play.bench.disk, &cut).unwrap();
    let longest = pieces.iter().map(|piece| piece.stream.len()).max().unwrap();
    assert!(longest < 9 << 20, "{longest}");
    let rows = |table| {
        pieces
            .iter()
            .filter(|piece| piece.table == table)
            .map(|piece| piece.rows)
            .sum::<u32>()
    };
    assert!(rows(5) >= 400, "all of them are told of: {}", rows(5));
    kept.export();
}
