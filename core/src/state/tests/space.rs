//! A full disk: nothing is lost, and taking messages out makes room again.

use crate::sim::Faults;

use super::*;

fn fill(bench: &mut Bench, queue: DestinationId) -> u64 {
    let body = "x".repeat(8_000);
    for sent in 0..10_000 {
        match bench.try_send(queue, &Message::text(body.clone())) {
            Ok(_) => bench.settle(),
            Err(PublishError::Append(_)) => return sent,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is never full");
}

#[test]
fn a_disk_that_filled_before_the_first_checkpoint_can_be_drained_and_used_again() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    let sent = fill(&mut bench, queue);
    assert!(sent > 50, "{sent}");
    let mut taken = 0;
    while let Some((_, sequence, _)) = bench.take(queue.source()) {
        bench.acknowledge(queue.source(), sequence);
        taken += 1;
        if taken % 16 == 0 {
            bench.state().request_watermark_sync();
            bench.settle();
        }
    }
    assert_eq!(taken, sent);
    for _ in 0..5 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    let again = fill(&mut bench, queue);
    assert!(again > sent / 2, "only {again} of {sent} fit again");
    bench.restart();
    assert_eq!(bench.texts(queue.source()).len() as u64, again);
}

// covers: EMS-DEST-A63
#[test]
fn nothing_is_discarded_for_a_message_that_finds_no_room_itself() {
    let mut bench = Bench::new();
    let rolling = bench.queue(
        "rolling",
        Properties {
            messages_max: 2,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        },
    );
    let queue = bench.queue("orders", Properties::default());
    bench.send(rolling, &Message::text("a"));
    bench.send(rolling, &Message::text("b"));
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    fill(&mut bench, queue);
    let refused = bench.try_send(rolling, &Message::text("x".repeat(8_000)));
    assert!(matches!(refused, Err(PublishError::Append(_))));
    assert_eq!(bench.texts(rolling.source()), ["a", "b"]);
}
