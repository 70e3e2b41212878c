//! Queues that a forced start has made of what nothing named any more.

use super::*;
use crate::name::DestinationName;
use crate::state::Origin;

const NAME: &str = "$sys.recovered.77";

// covers: EMS-STORE-A14
#[test]
fn what_was_recovered_is_consumed_by_whoever_asks_and_nobody_is_asked_about_it() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "kept");
    let name = DestinationName::parse(NAME).unwrap();
    let state = bench.engine().state_mut();
    let made = state.ensure_destination(Kind::Queue, &name, Origin::Dynamic, Properties::default());
    let made = made.unwrap().source();
    let from = bench.source();
    bench.engine().state_mut().move_message(from, 1, made, "test").unwrap();
    bench.settle();
    for _ in 0..2 {
        bench.start();
        bench.connect();
        let destination = Some(proto::Destination {
            name: NAME.to_owned(),
            ..orders()
        });
        let to = proto::OpenProducer {
            producer: 9,
            destination: destination.clone(),
            ..proto::OpenProducer::default()
        };
        bench.frames.clear();
        bench.send(1, Sent::OpenProducer(to));
        assert_eq!(bench.errors(), [ErrorCode::NotAllowed], "nothing is sent there");
        let open = proto::OpenConsumer {
            consumer: 1,
            destination,
            credit: Some(proto::Credit {
                message_limit: 10,
                ..proto::Credit::default()
            }),
            ..proto::OpenConsumer::default()
        };
        bench.frames.clear();
        bench.send(1, Sent::OpenConsumer(open));
        assert_eq!(bench.errors(), []);
        let delivered = bench
            .frames
            .iter()
            .any(|frame| matches!(&frame.frame, Some(Got::Deliver(_))));
        assert!(delivered, "{:?}", bench.frames);
    }
    let found = bench
        .engine()
        .state()
        .destination(Kind::Queue, NAME)
        .map(|found| found.origin);
    assert_eq!(found, Some(Origin::Dynamic));
}
