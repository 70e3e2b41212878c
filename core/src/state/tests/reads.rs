//! Reads of what is not in memory: whoever waits is woken, and what was read for somebody is there when he asks.

use super::*;

#[test]
fn whoever_waits_for_a_read_that_lacked_something_asks_again_although_its_message_is_gone() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for _ in 0..100 {
        bench.send(queue, &Message::text("x".repeat(8_000)));
        bench.settle();
    }
    bench.settle();
    let cold = bench.state().browse(queue.source(), 0).next().unwrap().position;
    bench.disk.set_faults(crate::sim::Faults {
        shortage_one_in: 1,
        ..Default::default()
    });
    assert!(matches!(bench.state().payload(cold), Payload::Reading));
    for job in bench.state().take_reads() {
        let done = job.run();
        bench.state().complete_read(done);
    }
    assert!(matches!(bench.state().payload(cold), Payload::Reading));
    assert!(bench.state().take_reads().is_empty(), "nothing is read for now");
    bench.disk.set_faults(crate::sim::Faults::default());
    // Meanwhile it goes, with its segment.
    bench.state().purge(queue.source(), "admin").unwrap();
    bench.settle();
    bench.state().checkpoint().unwrap();
    for _ in 0..5 {
        bench.settle();
    }
    bench.state().request_watermark_sync();
    assert!(!bench.state().take_reads().is_empty(), "nothing wakes whoever waited");
    assert!(matches!(bench.state().payload(cold), Payload::Damaged(_)));
}

#[test]
fn chunks_that_somebody_waits_for_are_not_read_again_and_others_do_not_pile_up() {
    use crate::state::spill::SpillFiles;
    use crate::state::volatile::{VolatileRead, VolatileStore};
    let mut store = VolatileStore::new(1, SpillFiles::new(Arc::new(SimDisk::new(1))));
    let positions: Vec<_> = (0..120)
        .map(|_| {
            let position = store.append(b"head", &[7; 200_000]);
            store.hold(position);
            position
        })
        .collect();
    while let Some(work) = store.spill() {
        store.complete_spill(work.run());
    }
    let spilled = |store: &mut VolatileStore, position| match store.read(position) {
        VolatileRead::Spilled(read) => Some(read),
        _ => None,
    };
    // Forty wait at once.
    let reads: Vec<_> = positions[..40]
        .iter()
        .map(|position| spilled(&mut store, *position).unwrap())
        .collect();
    reads.into_iter().for_each(|read| store.complete_read(read.run()));
    for position in &positions[..40] {
        assert!(
            matches!(store.read(*position), VolatileRead::Ready(..)),
            "read and thrown away"
        );
    }
    // Whoever asked for these has gone.
    for position in &positions[40..119] {
        if let Some(read) = spilled(&mut store, *position) {
            store.complete_read(read.run());
        }
    }
    for _ in 0..80 {
        let read = spilled(&mut store, positions[119]);
        read.into_iter().for_each(|read| store.complete_read(read.run()));
        assert!(matches!(store.read(positions[119]), VolatileRead::Ready(..)));
        let (count, bytes) = store.fetched();
        assert!(bytes <= 40 << 20, "{count} chunks of {bytes} bytes");
    }
    for position in positions[..60].iter().rev() {
        let read = spilled(&mut store, *position);
        read.into_iter().for_each(|read| store.complete_read(read.run()));
        assert!(matches!(store.read(*position), VolatileRead::Ready(..)));
    }
    assert!(store.fetched().0 <= 70, "{:?}", store.fetched());
}
