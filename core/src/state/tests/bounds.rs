//! Bounds at which something begins to be otherwise: a store that is full, a delay that is over, a checkpoint's length.

use super::*;

#[test]
fn a_store_takes_what_fills_it_and_nothing_that_is_longer() {
    for (less, is_taken) in [(0, true), (1, false)] {
        let message = Message::text("x".repeat(50));
        let mut bench = Bench::new();
        bench.state().set_stores(vec![StoreDefinition {
            name: "small".to_owned(),
            sync: true,
            quota_bytes: message.encode().len() as u64 - less,
        }]);
        let properties = Properties {
            store: "small".to_owned(),
            ..Properties::default()
        };
        let queue = bench.queue("small", properties);
        assert_eq!(bench.try_send(queue, &message).is_ok(), is_taken);
    }
}

#[test]
fn what_is_committed_after_its_delay_waits_for_its_commit_and_expires_in_its_time() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let tx = Tx { owner: 5, number: 1 };
    let message = Message::text("delayed").delay(100).ttl(1_000);
    bench.send_in(tx, queue, &message).unwrap();
    bench.advance(150);
    bench.state().commit(tx).unwrap();
    bench.advance(1);
    let next = bench.state().next_ready(queue.source(), &mut Cursor::default(), None);
    assert!(!matches!(next, Next::Ready { .. }), "its commit is not durable");
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["delayed"]);
    bench.advance(1_000);
    bench.settle();
    assert!(bench.texts(queue.source()).is_empty());
}

#[test]
fn a_start_knows_how_long_the_last_checkpoint_was() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("a"));
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    bench.restart();
    assert!(bench.state().tables.checkpoint_bytes > 0);
}
