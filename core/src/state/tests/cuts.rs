//! Cuts and events: what a cut says is what there was, whatever happens while it is walked; and from one cut the events lead
//! to the next. [`crate::sim::audit`] is how an audit reads them.

use proptest::prelude::*;

use super::*;
use crate::log::Position;
use crate::sim::audit::{Events, Found};
use crate::sim::seeds::cases;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send {
        to: usize,
        priority: u64,
        delayed: bool,
        expires: bool,
    },
    SendIn {
        tx: u64,
        to: usize,
    },
    Publish,
    Take {
        from: usize,
    },
    Acknowledge {
        from: usize,
        which: prop::sample::Index,
        tx: Option<u64>,
    },
    Release {
        from: usize,
        which: prop::sample::Index,
    },
    Move {
        from: usize,
        which: prop::sample::Index,
    },
    Decide {
        tx: u64,
        commits: bool,
    },
    Prepare {
        tx: u64,
    },
    DecidePrepared {
        commits: bool,
    },
    Purge {
        from: usize,
    },
    Delete,
    Unsubscribe,
    Advance(u64),
    Settle,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..3_usize, 0..10_u64, any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(to, priority, delayed, expires)| Step::Send { to, priority, delayed, expires }),
        4 => (1..4_u64, 0..3_usize).prop_map(|(tx, to)| Step::SendIn { tx, to }),
        3 => Just(Step::Publish),
        6 => (0..5_usize).prop_map(|from| Step::Take { from }),
        5 => (0..5_usize, which(), prop::option::weighted(0.4, 1..4_u64))
            .prop_map(|(from, which, tx)| Step::Acknowledge { from, which, tx }),
        1 => (0..5_usize, which()).prop_map(|(from, which)| Step::Release { from, which }),
        2 => (0..3_usize, which()).prop_map(|(from, which)| Step::Move { from, which }),
        2 => (1..4_u64, prop::bool::weighted(0.7)).prop_map(|(tx, commits)| Step::Decide { tx, commits }),
        1 => (1..4_u64).prop_map(|tx| Step::Prepare { tx }),
        1 => any::<bool>().prop_map(|commits| Step::DecidePrepared { commits }),
        1 => (0..5_usize).prop_map(|from| Step::Purge { from }),
        1 => Just(Step::Delete),
        1 => Just(Step::Unsubscribe),
        2 => (0..60_u64).prop_map(Step::Advance),
        2 => Just(Step::Settle),
    ]
}

/// A broker with queues, a topic with subscriptions, and clients that do anything.
pub(super) struct Play {
    pub(super) bench: Bench,
    queues: Vec<DestinationId>,
    topic: DestinationId,
    subscriptions: Vec<SourceId>,
    made: u64,
    xids: Vec<Xid>,
    text: String,
}

impl Play {
    pub(super) fn new() -> Self {
        Self::on(Bench::new(), 1)
    }

    /// With messages of so many bytes.
    pub(super) fn on(mut bench: Bench, bytes: usize) -> Self {
        let limited = Properties {
            messages_max: 12,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        };
        let redelivered = Properties {
            redelivery_max: 2,
            ..Properties::default()
        };
        let queues = [
            ("plain", Properties::default()),
            ("limited", limited),
            ("tried", redelivered),
        ]
        .map(|(name, properties)| bench.queue(name, properties));
        let topic = bench.topic("news", Properties::default());
        bench.bridge(Kind::Topic, "news", Kind::Queue, "plain", None);
        let mut play = Self {
            bench,
            queues: queues.to_vec(),
            topic,
            subscriptions: Vec::new(),
            made: 0,
            xids: Vec::new(),
            text: "x".repeat(bytes),
        };
        play.subscribe();
        play.subscribe();
        play.bench.settle();
        play
    }

    /// After a start, as a broker does.
    pub(super) fn reconfigure(&mut self) {
        let bench = &mut self.bench;
        bench.incarnation = bench.state().next_incarnation().unwrap();
        bench.next_number = 0;
        for (name, properties) in bench.queues.clone() {
            bench.ensure(Kind::Queue, name, properties).unwrap();
        }
        for (name, properties) in bench.topics.clone() {
            bench.ensure(Kind::Topic, name, properties).unwrap();
        }
        let bridges = bench.bridges.clone();
        bench.state().set_bridges(bridges);
        // What was not on disk yet is as it was.
        let queues = ["plain", "limited", "tried"].map(|name| bench.state().destination(Kind::Queue, name).unwrap().id);
        self.queues = queues.to_vec();
        self.topic = self.bench.state().destination(Kind::Topic, "news").unwrap().id;
        self.subscriptions.clear();
        self.xids = self
            .bench
            .state()
            .tables
            .transactions
            .prepared()
            .into_iter()
            .map(|(xid, _)| xid)
            .collect();
        for made in (1..=self.made).rev() {
            let found = self
                .bench
                .state()
                .subscription("me", &format!("sub{made}"))
                .map(|found| found.id);
            self.subscriptions.extend(found);
        }
        while self.subscriptions.len() < 2 {
            self.subscribe();
        }
    }

    fn subscribe(&mut self) {
        self.made += 1;
        let name = format!("sub{}", self.made);
        self.subscriptions.push(self.bench.subscribe(&name, "news", |_| {}));
    }

    fn source(&self, index: usize) -> SourceId {
        let queues = self.queues.iter().map(|queue| queue.source());
        queues.chain(self.subscriptions.iter().copied()).nth(index).unwrap()
    }

    fn flights(&mut self, source: SourceId) -> Vec<u64> {
        let mut found = Vec::new();
        if let Some(source) = self.bench.state().source(source) {
            source.queue.flights_in(0, u64::MAX, &mut found);
        }
        found
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of step")]
    pub(super) fn run(&mut self, step: &Step) {
        let tx = |number: u64| Tx { owner: 1, number };
        match step {
            Step::Send {
                to,
                priority,
                delayed,
                expires,
            } => {
                let message = Message::text(self.text.clone()).priority(*priority);
                let message = message
                    .delay(if *delayed { 20 } else { 0 })
                    .ttl(if *expires { 30 } else { 0 });
                // What does not fit is refused.
                let _ = self.bench.try_send(self.queues[*to], &message);
            }
            Step::SendIn { tx: number, to } => {
                let _ = self
                    .bench
                    .send_in(tx(*number), self.queues[*to], &Message::text(self.text.clone()));
            }
            Step::Publish => drop(self.bench.try_send(self.topic, &Message::text(self.text.clone()))),
            Step::Take { from } => drop(self.bench.take(self.source(*from))),
            Step::Acknowledge {
                from,
                which,
                tx: number,
            } => {
                let source = self.source(*from);
                let flights = self.flights(source);
                if !flights.is_empty() {
                    let sequence = flights[which.index(flights.len())];
                    let ranges = [(sequence, sequence)];
                    let _ = self
                        .bench
                        .state()
                        .acknowledge(source, &ranges, |_| true, number.map(tx));
                }
            }
            Step::Release { from, which } => {
                let source = self.source(*from);
                let flights = self.flights(source);
                if !flights.is_empty() {
                    self.bench
                        .state()
                        .release(source, flights[which.index(flights.len())], true);
                }
            }
            Step::Move { from, which } => {
                let (from, to) = (self.source(*from), self.queues[2].source());
                let entries: Vec<u64> = self.bench.state().browse(from, 0).map(|found| found.sequence).collect();
                if !entries.is_empty() && from != to {
                    let sequence = entries[which.index(entries.len())];
                    let _ = self.bench.state().move_message(from, sequence, to, "admin");
                }
            }
            Step::Decide {
                tx: number,
                commits: true,
            } => drop(self.bench.state().commit(tx(*number))),
            Step::Decide { tx: number, .. } => drop(self.bench.state().rollback(tx(*number))),
            Step::Prepare { tx: number } => {
                self.made += 1;
                let xid = Xid {
                    format: 1,
                    global: self.made.to_le_bytes().to_vec(),
                    branch: Vec::new(),
                };
                if let Ok(Some(_)) = self.bench.state().prepare(tx(*number), xid.clone()) {
                    self.xids.push(xid);
                }
            }
            Step::DecidePrepared { commits } => {
                if let Some(xid) = self.xids.pop() {
                    let state = self.bench.state();
                    if *commits {
                        state.commit_prepared(&xid).unwrap();
                    } else {
                        state.rollback_prepared(&xid).unwrap();
                    }
                }
            }
            Step::Purge { from } => {
                let source = self.source(*from);
                let _ = self.bench.state().purge(source, "admin");
            }
            Step::Delete => {
                // Nothing leads to this one.
                let _ = self.bench.state().delete_destination(self.queues[1], true, "admin");
                self.bench.queues.retain(|(name, _)| *name != "limited");
                self.queues[1] = self.bench.queue("limited", Properties::default());
            }
            Step::Unsubscribe => {
                let first = self.subscriptions.remove(0);
                self.bench.state().unsubscribe(first, "").unwrap();
                self.subscribe();
            }
            Step::Advance(ms) => self.bench.advance(*ms),
            Step::Settle => self.bench.settle(),
        }
    }

    /// A cut, walked past `looks` places at a time with these steps between.
    fn cut(&mut self, looks: usize, steps: &[Step]) -> (Position, Found) {
        let expected = Found::in_tables(self.bench.state());
        let begun = self.bench.state().begin_cut().unwrap();
        let counters = begun
            .counters
            .iter()
            .map(|(source, counted)| (source.0, counted.told()));
        assert_eq!(expected.agrees_with(counters), Ok(()));
        let mut rows = begun.pending;
        let mut steps = steps.iter();
        loop {
            if let Some(step) = steps.next() {
                self.run(step);
            }
            match self.bench.state().walk_cut(looks, &mut rows) {
                Walked::More => {}
                Walked::All => break,
                Walked::GivenUp => panic!("nothing here is many"),
            }
        }
        let found = Found::of_cut(&rows, &begun.transactions);
        assert_eq!(found, expected);
        (begun.position, found)
    }
}

#[test]
fn what_only_a_process_has_ends_in_no_event_when_it_is_put_aside() {
    let mut play = Play::new();
    let volatile = play.bench.subscribe("", "news", |_| {});
    let _claim = play.bench.state().register_reader("audit", Position::ZERO, u64::MAX);
    let (first, there) = play.cut(100, &[]);
    let topic = play.topic;
    play.bench.send(topic, &Message::text("kept").ttl(5).preserved());
    play.bench.settle();
    play.bench.advance(10);
    play.bench.settle();
    assert!(play.bench.texts(volatile).is_empty());
    let aside = UNDELIVERED.source();
    assert_eq!(
        play.bench.texts(aside).len(),
        4,
        "of both durable ones, the bridge and the other"
    );
    let (second, then) = play.cut(100, &[]);
    play.bench.settle();
    let (events, _) = Events::between(play.bench.state(), first, second).unwrap();
    assert_eq!(events.replay(there), Ok(then));
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn a_cut_is_what_there_was_and_events_lead_to_the_next(
        before in proptest::collection::vec(step(), 0..60),
        during in proptest::collection::vec(step(), 0..40),
        between in proptest::collection::vec(step(), 0..60),
        again in proptest::collection::vec(step(), 0..40),
        looks in 1..6_usize, restarts in any::<bool>(),
    ) {
        let mut play = Play::new();
        before.iter().for_each(|step| play.run(step));
        let _claim = play.bench.state().register_reader("audit", Position::ZERO, u64::MAX);
        let (first, there) = play.cut(looks, &during);
        between.iter().for_each(|step| play.run(step));
        if restarts {
            play.bench.settle();
            play.bench.restart();
            let _claim = play.bench.state().register_reader("audit", Position::ZERO, u64::MAX);
        }
        let (second, then) = play.cut(looks, &again);
        play.bench.settle();
        let (events, streams) = Events::between(play.bench.state(), first, second).unwrap();
        prop_assert_eq!(events.replay(there), Ok(then.clone()));
        // From the beginning, too; and the same log makes the same bytes.
        let (whole, _) = Events::between(play.bench.state(), Position::ZERO, second).unwrap();
        prop_assert_eq!(whole.replay(Found::default()), Ok(then));
        let (_, once_more) = Events::between(play.bench.state(), first, second).unwrap();
        prop_assert_eq!(streams, once_more);
    }
}
