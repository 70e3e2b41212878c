//! What is written can be read: at the limits of what a record holds, in stores that released code made unreadable, and
//! past what nobody can read.

use super::*;
use crate::log::{Log, Position};
use crate::state::catalogue_record::kinds;
use crate::state::message_record::COPIES_MAX;

/// A queue with a bridge to as many others as a message can have copies.
fn widely_bridged(targets: usize) -> (Bench, DestinationId, Vec<DestinationId>) {
    let mut bench = Bench::new();
    let source = bench.queue("orders", Properties::default());
    let names: Vec<&'static str> = (0..targets).map(|index| &*format!("copy.{index}").leak()).collect();
    let queues = names
        .iter()
        .map(|name| bench.queue(name, Properties::default()))
        .collect();
    for name in names {
        bench.bridge(Kind::Queue, "orders", Kind::Queue, name, None);
    }
    (bench, source, queues)
}

// covers: EMS-DEST-A51
#[test]
fn a_message_with_as_many_copies_as_there_may_be_is_there_after_a_restart() {
    for targets in [126, 127, 128, 129, COPIES_MAX - 1] {
        let (mut bench, source, queues) = widely_bridged(targets);
        bench.send(source, &Message::text("wide"));
        bench.settle();
        bench.restart();
        for queue in [source, queues[0], queues[targets - 1]] {
            assert_eq!(bench.texts(queue.source()), ["wide"], "{targets} targets");
        }
        let last = queues[targets - 1];
        bench
            .state()
            .move_message(last.source(), 1, source.source(), "admin")
            .unwrap();
        bench.settle();
        bench.restart();
        assert_eq!(bench.texts(source.source()), ["wide", "wide"], "{targets} targets");
        assert!(bench.texts(last.source()).is_empty());
        let (_, sequence, delivered) = {
            bench.take(source.source()).unwrap();
            bench.take(source.source()).unwrap()
        };
        assert_eq!(usize::from(delivered.copy), targets, "the copy that was moved");
        bench.acknowledge(source.source(), sequence);
        bench.settle();
        bench.restart();
        assert_eq!(bench.texts(source.source()), ["wide"]);
    }
}

#[test]
fn one_copy_more_is_refused_and_changes_nothing() {
    let (mut bench, source, _) = widely_bridged(COPIES_MAX);
    assert!(matches!(
        bench.try_send(source, &Message::text("wider")),
        Err(PublishError::TooManyCopies(..))
    ));
    bench.settle();
    bench.restart();
    assert!(bench.texts(source.source()).is_empty());
}

/// Sends what was refused again, every `step`th number from the first, and says which were stored.
fn send_refused_again(bench: &mut Bench, queue: DestinationId, refused: u64, step: usize) -> Vec<u64> {
    for sequence in 1..=refused {
        bench.state().note_refused(queue, 77, sequence, false);
    }
    bench
        .send_as(queue, &Message::text("later"), (77, refused + 1), None)
        .unwrap();
    let mut stored = Vec::new();
    for sequence in (1..=refused).step_by(step) {
        match bench.send_as(queue, &Message::text(sequence.to_string()), (77, sequence), None) {
            Ok(accepted) => {
                assert!(!accepted.duplicate, "{sequence} is confirmed and was never stored");
                if sequence % 64 == 1 {
                    bench.settle();
                }
                stored.push(sequence);
            }
            Err(PublishError::UnknownProducer) => {}
            Err(error) => panic!("{sequence}: {error}"),
        }
    }
    stored
}

#[test]
fn a_client_that_sends_every_second_refused_number_again_leaves_a_store_that_opens() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let stored = send_refused_again(&mut bench, queue, 4_000, 2);
    assert!(stored.len() > 100, "{}", stored.len());
    bench.settle();
    bench.restart();
    let mut expected = vec!["later".to_owned()];
    expected.extend(stored.iter().map(ToString::to_string));
    assert_eq!(bench.texts(queue.source()), expected);
    // Again: what is there is confirmed or cannot be told, and nothing is there twice.
    for sequence in 1..=4_000 {
        let again = bench.send_as(queue, &Message::text(sequence.to_string()), (77, sequence), None);
        match again {
            Ok(accepted) => assert_eq!(accepted.duplicate, stored.contains(&sequence), "{sequence}"),
            Err(PublishError::UnknownProducer) => {}
            Err(error) => panic!("{sequence}: {error}"),
        }
    }
    let mut texts = bench.texts(queue.source());
    let count = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), count, "nothing is there twice");
}

fn number(out: &mut Vec<u8>, value: u64) {
    put_varint(out, value);
}

/// A message's head as released code wrote it: the copy's index is a raw byte.
fn released_head(copies: u64, copy: u8, refused: u64, sequence: u64) -> Vec<u8> {
    let mut head = vec![1, if refused > 0 { 32 } else { 0 }, 4];
    [1_700_000_000_000, 77, sequence]
        .into_iter()
        .for_each(|value| number(&mut head, value));
    if refused > 0 {
        number(&mut head, refused);
        for range in 0..refused {
            number(&mut head, 2 * range + 1);
            number(&mut head, 2 * range + 1);
        }
    }
    number(&mut head, copies);
    for index in 0..copies {
        number(&mut head, 16 + index);
        if index == 0 {
            head.push(0);
        } else {
            head.push(1);
            number(&mut head, 88);
            number(&mut head, index);
        }
    }
    number(&mut head, 1);
    head.push(copy);
    number(&mut head, 16);
    number(&mut head, sequence);
    head
}

/// Writes records as they are, below the state layer.
fn write_raw(disk: &SimDisk, records: &[(u8, Vec<u8>)]) -> Vec<Position> {
    let payload = Message::text("kept").encode();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), small_options().log, &mut |_| Ok(())).unwrap();
    let positions = records
        .iter()
        .map(|(kind, head)| {
            let payload = if *kind == kinds::MESSAGE { &payload[..] } else { &[] };
            log.append(*kind, head, payload).unwrap()
        })
        .collect();
    log.close().unwrap();
    disk.kill_process();
    positions
}

#[test]
fn stores_that_released_code_made_unreadable_open_plainly() {
    for (copies, copy, refused) in [
        (129, 128, 0),
        (255, 254, 0),
        (1, 0, 257),
        (1, 0, 5_000),
        (130, 129, 300),
    ] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        bench.send(queue, &Message::text("before"));
        bench.settle();
        assert_eq!(queue.0, 16);
        bench.state.take().unwrap().stop().unwrap();
        bench.disk.kill_process();
        let head = released_head(copies, copy, refused, 100_000);
        let [position] = write_raw(&bench.disk, &[(kinds::MESSAGE, head)])[..] else {
            panic!("one record");
        };
        // The message was moved as well, under the same index.
        let mut moved = vec![1, 6, 4, copy];
        let bytes = Message::text("kept").encode().len() as u64;
        for value in [5, 16, 100_000, 1, 1, position.0, bytes, 16, 0, 0] {
            number(&mut moved, value);
        }
        write_raw(&bench.disk, &[(kinds::MOVE, moved)]);
        bench.open().unwrap();
        assert_eq!(bench.texts(queue.source()), ["before"]);
        let undelivered = UNDELIVERED.source();
        assert_eq!(bench.texts(undelivered), ["kept"]);
        let (_, _, delivered) = bench.take(undelivered).unwrap();
        assert_eq!(delivered.copy, copy);
        // What was refused then is neither confirmed nor stored twice.
        if refused > 0 {
            for sequence in [1, 2, 3] {
                let again = bench.send_as(queue, &Message::text("again"), (77, sequence), None);
                assert!(
                    match &again {
                        Ok(accepted) => accepted.duplicate == (sequence == 2),
                        Err(error) => matches!(error, PublishError::UnknownProducer),
                    },
                    "{sequence}: {again:?}"
                );
            }
        }
        bench.settle();
        bench.restart_cleanly();
        bench.state().checkpoint().unwrap();
        bench.settle();
        bench.restart();
        assert_eq!(bench.texts(undelivered), ["kept"]);
    }
}

/// A store with good messages around records that nobody can read.
fn with_unreadable_records() -> (Bench, DestinationId) {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("before"));
    bench.settle();
    bench.state.take().unwrap().stop().unwrap();
    bench.disk.kill_process();
    let good = released_head(1, 0, 0, 50);
    let mut newer = good.clone();
    newer[0] = 9;
    write_raw(
        &bench.disk,
        &[
            (kinds::MESSAGE, newer.clone()),
            (kinds::MESSAGE, good),
            (99, vec![1]),
            (kinds::TERMINAL, vec![1, 77]),
        ],
    );
    (bench, queue)
}

#[test]
fn a_forced_start_drops_and_reports_what_cannot_be_decoded_and_the_next_plain_one_opens() {
    let (mut bench, queue) = with_unreadable_records();
    let refused = bench.open().unwrap_err();
    assert!(refused.to_string().contains("version 9"), "{refused}");
    let report = bench.force();
    let why: Vec<&str> = report.dropped.iter().map(|dropped| dropped.why.as_str()).collect();
    assert!(why.iter().any(|why| why.contains("version 9")), "{why:?}");
    assert!(
        report.dropped.iter().any(|dropped| dropped.records == Some(3)),
        "{:?}",
        report.dropped
    );
    bench.open().unwrap();
    assert_eq!(bench.texts(queue.source()), ["before", "kept"]);
    bench.send(queue, &Message::text("after"));
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["before", "kept", "after"]);
}

#[test]
fn a_forced_start_drops_what_cannot_be_decoded_of_sealed_segments_too() {
    let (mut bench, queue) = with_unreadable_records();
    // Enough behind it that the segment is sealed.
    let payload = Message::text("x".repeat(1_000)).encode();
    for round in 1..8 {
        let (mut log, _) = Log::open(Arc::new(bench.disk.clone()), small_options().log, &mut |_| Ok(())).unwrap();
        for index in 0..40 {
            let head = released_head(1, 0, 0, round * 100 + index);
            log.append(kinds::MESSAGE, &head, &payload).unwrap();
        }
        while let Some(job) = log.next_write().unwrap() {
            log.complete_write(job.run()).unwrap();
        }
        while let Some(job) = log.maintenance(&crate::log::KeepAll) {
            log.complete_maintenance(job.run()).unwrap();
        }
        log.close().unwrap();
        bench.disk.kill_process();
    }
    assert!(bench.open().is_err());
    let report = bench.force();
    assert!(
        report.dropped.iter().any(|dropped| dropped.records == Some(3)),
        "{:?}",
        report.dropped
    );
    bench.open().unwrap();
    let texts = bench.texts(queue.source());
    assert_eq!(texts[..2], ["before", "kept"], "{}", texts.len());
}

#[test]
fn an_epoch_gives_out_no_identity_that_the_next_one_has() {
    let mut options = small_options();
    options.incarnation_bits = 4;
    let mut bench = Bench::on(SimDisk::new(1), options);
    let mut given = std::collections::BTreeSet::new();
    for _ in 0..5 {
        loop {
            match bench.state().next_incarnation() {
                Ok(incarnation) => assert!(given.insert(incarnation), "{incarnation} is given twice"),
                Err(StateError::Exhausted(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(bench.state().next_incarnation().is_err(), "it stays so");
        bench.restart();
    }
    // One each for bridges and for the harness.
    assert_eq!(given.len(), 5 * 13);
    let mut options = small_options();
    options.log.mode = OpenMode::Active { epoch: Some(1 << 32) };
    let opened = State::open(Arc::new(SimDisk::new(2)), options, bench.now);
    assert!(matches!(opened, Err(StateError::Exhausted(_))));
}

#[test]
fn an_epoch_that_is_refused_leaves_the_present_one_without_identities_to_give() {
    let mut options = small_options();
    options.incarnation_bits = 4;
    let mut bench = Bench::on(SimDisk::new(1), options);
    let mut given = std::collections::BTreeSet::new();
    while let Ok(incarnation) = bench.state().next_incarnation() {
        assert!(given.insert(incarnation));
    }
    let epoch = bench.state().epoch();
    for refused in [0, epoch, 1 << 32, u64::MAX] {
        assert!(
            bench.state().begin_epoch(refused, Start::default()).is_err(),
            "{refused}"
        );
        let next = bench.state().next_incarnation();
        assert!(matches!(next, Err(StateError::Exhausted(_))), "{refused}: {next:?}");
    }
    bench.state().begin_epoch(epoch + 1, Start::default()).unwrap();
    let next = bench.state().next_incarnation().unwrap();
    assert!(next > *given.last().unwrap(), "{next}");
}

#[test]
fn a_transaction_gets_no_number_that_the_log_names() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.settle();
    bench.state.take().unwrap().stop().unwrap();
    bench.disk.kill_process();
    // Begun when four thousand million had been in the epoch before: the numbers run over into the next one's.
    let number_taken = (4 << 32) + 1;
    let mut head = released_head(1, 0, 0, 50);
    head[1] |= 2;
    let mut rest = head.split_off(3 + 6 + 1 + 1);
    number(&mut head, number_taken);
    head.append(&mut rest);
    let mut prepared = vec![1, 1];
    [number_taken, 5, 1, 2]
        .into_iter()
        .for_each(|value| number(&mut prepared, value));
    prepared.extend_from_slice(&[1, 7, 0]);
    write_raw(&bench.disk, &[(kinds::MESSAGE, head), (kinds::TRANSACTION, prepared)]);
    bench.open().unwrap();
    let [(xid, _)] = &bench.state().prepared()[..] else {
        panic!("it is prepared");
    };
    let xid = xid.clone();
    let tx = Tx { owner: 1, number: 1 };
    for epoch in 3..6 {
        assert_eq!(bench.state().epoch(), epoch);
        bench.send_in(tx, queue, &Message::text(epoch.to_string())).unwrap();
        assert_eq!(bench.state().transaction_size(tx), 1);
        bench.state().commit(tx).unwrap();
        bench.settle();
        bench.restart();
    }
    assert_eq!(bench.texts(queue.source()), ["3", "4", "5"]);
    bench.state().commit_prepared(&xid).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["kept", "3", "4", "5"]);
}

#[test]
fn a_number_whose_definition_is_lost_is_given_to_nobody_else_and_a_forced_start_keeps_its_messages() {
    let disk = SimDisk::new(11);
    write_raw(&disk, &[(kinds::MESSAGE, released_head(3, 0, 0, 1))]);
    let report = force(&disk, &small_options(), Now::default());
    assert!(report.dropped.is_empty(), "{:?}", report.dropped);
    let [renamed] = &report.renamed[..] else {
        panic!("{:?}", report.renamed);
    };
    assert_eq!((renamed.name.as_str(), renamed.messages), ("$sys.recovered.16", 1));
    disk.kill_process();
    let mut bench = Bench::on(disk, small_options());
    let public = bench.queue("public", Properties::default());
    assert!(public.0 > 18, "the copies' destinations are 16 to 18: {public:?}");
    assert!(bench.texts(public.source()).is_empty());
    bench.send(public, &Message::text("public"));
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(public.source()), ["public"]);
    assert_eq!(bench.texts(SourceId(16)), ["kept"]);
}
