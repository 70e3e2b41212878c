//! Bounds at which something begins to be otherwise: a store that is full, a checkpoint's length.

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
