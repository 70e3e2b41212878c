//! One queue against a model that is a plain list: whatever clients, administrators, time and restarts do, both agree.

use crate::sim::seeds::cases;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Send {
        priority: u64,
        ttl_ms: u64,
        delay_ms: u64,
        volatile: bool,
    },
    Deliver,
    Acknowledge(prop::sample::Index),
    Release(prop::sample::Index, bool),
    Advance(u64),
    Purge,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let times = prop_oneof![3 => Just(0_u64), 1 => 1_u64..100];
    prop_oneof![
        6 => (0_u64..10, times.clone(), times, prop::bool::weighted(0.3))
            .prop_map(|(priority, ttl_ms, delay_ms, volatile)| Step::Send { priority, ttl_ms, delay_ms, volatile }),
        6 => Just(Step::Deliver),
        3 => any::<prop::sample::Index>().prop_map(Step::Acknowledge),
        3 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(index, seen)| Step::Release(index, seen)),
        2 => (0_u64..60).prop_map(Step::Advance),
        1 => Just(Step::Purge),
        1 => Just(Step::Restart),
    ]
}

#[derive(Clone, Debug)]
struct Kept {
    text: String,
    priority: u64,
    sequence: u64,
    expires_ms: u64,
    ready_ms: u64,
    volatile: bool,
    in_flight: bool,
    /// It waits because it came back.
    returned: bool,
    count: u32,
    was_delivered: bool,
}

#[derive(Default)]
struct Model {
    messages: Vec<Kept>,
    now_ms: u64,
    sent: u64,
}

const REDELIVERY_MAX: u32 = 3;

impl Model {
    fn expire(&mut self) {
        let now_ms = self.now_ms;
        self.messages
            .retain(|one| one.in_flight || one.expires_ms == 0 || one.expires_ms > now_ms);
    }

    fn next(&self) -> Option<usize> {
        let ready = |one: &Kept| !one.in_flight && one.ready_ms <= self.now_ms;
        let order = |one: &Kept| (std::cmp::Reverse(one.priority), one.sequence);
        let found = self.messages.iter().enumerate().filter(|(_, one)| ready(one));
        found.min_by_key(|(_, one)| order(one)).map(|(index, _)| index)
    }

    fn in_flight(&self) -> Vec<usize> {
        (0..self.messages.len())
            .filter(|index| self.messages[*index].in_flight)
            .collect()
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
fn agree(steps: &[Step], redelivery_delay_ms: u64) {
    let mut bench = Bench::new();
    let queue = bench.queue(
        "orders",
        Properties {
            redelivery_max: REDELIVERY_MAX as u8,
            redelivery_delay_ms,
            ..Properties::default()
        },
    );
    let source = queue.source();
    let mut model = Model::default();
    bench.settle();
    for step in steps {
        match step {
            Step::Send {
                priority,
                ttl_ms,
                delay_ms,
                volatile,
            } => {
                model.sent += 1;
                let text = model.sent.to_string();
                let mut message = Message::text(text.clone())
                    .priority(*priority)
                    .ttl(*ttl_ms)
                    .delay(*delay_ms);
                message.mode = u64::from(*volatile);
                let sequence = bench.state().source(source).unwrap().next_sequence;
                bench.send(queue, &message);
                bench.settle();
                model.messages.push(Kept {
                    text,
                    priority: *priority,
                    sequence,
                    expires_ms: if *ttl_ms == 0 { 0 } else { model.now_ms + ttl_ms },
                    ready_ms: model.now_ms + delay_ms,
                    volatile: *volatile,
                    in_flight: false,
                    returned: false,
                    count: 0,
                    was_delivered: false,
                });
            }
            Step::Deliver => {
                let taken = bench.take(source);
                let expected = model.next();
                assert_eq!(
                    taken.as_ref().map(|(text, _, _)| text),
                    expected.map(|index| &model.messages[index].text),
                    "{:?}",
                    model.messages
                );
                if let (Some((_, _, delivered)), Some(index)) = (taken, expected) {
                    let kept = &mut model.messages[index];
                    assert_eq!(delivered.delivery_count, kept.count + 1);
                    assert!(delivered.redelivered || !kept.was_delivered || kept.count == 0 && kept.volatile);
                    kept.in_flight = true;
                }
            }
            Step::Acknowledge(index) => {
                let flying = model.in_flight();
                if !flying.is_empty() {
                    let kept = model.messages.remove(flying[index.index(flying.len())]);
                    assert_eq!(bench.acknowledge(source, kept.sequence).count, 1);
                }
            }
            Step::Release(index, seen) => {
                let flying = model.in_flight();
                if !flying.is_empty() {
                    let index = flying[index.index(flying.len())];
                    let kept = &mut model.messages[index];
                    kept.in_flight = false;
                    kept.count += u32::from(*seen);
                    kept.was_delivered |= *seen;
                    let expired = kept.expires_ms != 0 && kept.expires_ms <= model.now_ms;
                    let gone = expired || (*seen && kept.count >= REDELIVERY_MAX);
                    let released = bench.state().release(source, kept.sequence, *seen);
                    assert_eq!(released, if gone { Released::Destroyed } else { Released::Returned });
                    if gone {
                        model.messages.remove(index);
                    } else if *seen && redelivery_delay_ms > 0 {
                        kept.ready_ms = model.now_ms + redelivery_delay_ms;
                        kept.returned = true;
                    }
                }
            }
            Step::Advance(ms) => {
                bench.advance(*ms);
                model.now_ms += ms;
                model.expire();
            }
            Step::Purge => {
                let purged = bench.state().purge(source, "admin").unwrap();
                assert_eq!(purged, model.messages.len() as u64, "what is in flight as well");
                model.messages.clear();
            }
            Step::Restart => {
                bench.settle();
                bench.restart();
                bench.advance(0);
                model.messages.retain(|one| !one.volatile);
                for one in &mut model.messages {
                    one.was_delivered |= one.in_flight;
                    (one.in_flight, one.count) = (false, 0);
                }
                model.expire();
            }
        }
        bench.settle();
        let statistics = bench.state().source(source).unwrap().statistics;
        assert_eq!(statistics.messages, model.messages.len() as u64);
        assert_eq!(statistics.in_flight_messages, model.in_flight().len() as u64);
        let waits = |one: &&Kept| !one.in_flight && one.ready_ms > model.now_ms;
        let waiting = model.messages.iter().filter(waits);
        let (returned, delayed): (Vec<_>, Vec<_>) = waiting.partition(|one| one.returned);
        assert_eq!(statistics.returned_messages, returned.len() as u64);
        assert_eq!(statistics.delayed_messages, delayed.len() as u64);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    // covers: EMS-DEST-A01, EMS-DEST-A32, EMS-MSG-A15
    #[test]
    fn a_queue_and_its_model_agree(
        steps in proptest::collection::vec(step(), 1..80),
        redelivery_delay_ms in prop_oneof![Just(0_u64), 1_u64..100],
    ) {
        agree(&steps, redelivery_delay_ms);
    }
}
