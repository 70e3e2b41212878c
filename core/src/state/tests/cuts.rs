//! Cuts and events: what a cut says is what there was, whatever happens while it is walked; and from one cut the events lead
//! to the next. `replay` is how an audit reads them.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int64Type};
use arrow_ipc::reader::StreamReader;
use proptest::prelude::*;

use super::*;
use crate::log::Position;
use crate::sim::seeds::cases;
use crate::snapshot::distiller::Distiller;
use crate::snapshot::tables;

/// A message in a source: its number there, and where it lies.
pub(super) type Row = (u64, u64, u64, u8);

/// All rows, by their state: there, or sent in a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    pub(super) there: BTreeSet<Row>,
    pub(super) pending: BTreeSet<(u64, Row)>,
    /// What is prepared, and what ends with it.
    pub(super) prepared: BTreeMap<u64, BTreeSet<(u64, u64)>>,
}

impl Found {
    /// What the tables hold now.
    pub(super) fn in_tables(bench: &mut Bench) -> Self {
        let tables = &bench.state().tables;
        let mut found = Self::default();
        for source in tables.sources.values().filter(|source| source.logged) {
            for (_, entry) in source.queue.iter() {
                if !State::is_volatile(entry.position) {
                    found
                        .there
                        .insert((source.id.0, entry.sequence, entry.position.0, entry.copy));
                }
            }
        }
        for id in tables.transactions.ids() {
            let open = tables.transactions.get(id).unwrap();
            if open.prepared.is_some() {
                let ends = open.terminals.iter().flat_map(|(_, head)| {
                    let runs = head.ranges.iter().flat_map(|(first, last)| *first..=*last);
                    runs.map(|sequence| (head.source.0, sequence))
                });
                found.prepared.insert(id, ends.collect());
            }
            for pending in &open.entries {
                let (entry, source) = (pending.entry, pending.source.0);
                let is_logged = tables.sources.get(&pending.source).is_some_and(|source| source.logged);
                if is_logged && !State::is_volatile(entry.position) {
                    found
                        .pending
                        .insert((id, (source, entry.sequence, entry.position.0, entry.copy)));
                }
            }
        }
        found
    }

    /// The third witness says the same of every source.
    pub(super) fn agrees_with(&self, counters: &[(SourceId, Counted)]) {
        let mut held: BTreeMap<u64, u64> = BTreeMap::new();
        for (source, ..) in &self.there {
            *held.entry(*source).or_default() += 1;
        }
        for (source, counted) in counters {
            assert_eq!(
                counted.held(),
                Some(held.remove(&source.0).unwrap_or_default()),
                "{source:?} {counted:?}"
            );
        }
        assert_eq!(held, BTreeMap::new(), "never counted");
    }

    fn of_cut(rows: &[CutRow], transactions: &[CutTransaction]) -> Self {
        let mut found = Self::default();
        for open in transactions.iter().filter(|open| open.prepared.is_some()) {
            let ends = open
                .ends
                .iter()
                .flat_map(|(source, first, last)| (*first..=*last).map(|sequence| (source.0, sequence)));
            found.prepared.insert(open.transaction, ends.collect());
        }
        for row in rows {
            let key = (row.source.0, row.sequence, row.position.0, row.copy);
            let is_new = match row.standing {
                Standing::Pending => found.pending.insert((row.transaction, key)),
                _ => found.there.insert(key),
            };
            assert!(is_new, "{row:?} twice");
        }
        found
    }
}

/// The rows of one kind of event, by column.
pub(super) fn numbers(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let column = batch.column_by_name(column).unwrap();
    if let Some(longs) = column.as_primitive_opt::<Int64Type>() {
        return longs.iter().map(Option::unwrap_or_default).collect();
    }
    if let Some(shorts) = column.as_primitive_opt::<Int16Type>() {
        return shorts.values().iter().map(|short| i64::from(*short)).collect();
    }
    column
        .as_primitive::<Int8Type>()
        .values()
        .iter()
        .map(|byte| i64::from(*byte))
        .collect()
}

/// The events from one position up to another: by position, what they say.
#[derive(Default, Debug)]
pub(super) struct Events(BTreeMap<u64, Vec<(&'static str, Vec<u64>)>>);

impl Events {
    fn between(bench: &mut Bench, from: Position, to: Position) -> (Self, Vec<Vec<u8>>) {
        let (mut distiller, mut at, mut streams) = (Distiller::new(), from, Vec::new());
        let mut events = Self::default();
        while let Some(request) = bench.state().log().heads(at, to) {
            at = request.to;
            let mut heads = request.run().unwrap();
            while let Some(head) = heads.next_head() {
                distiller.add(&head).unwrap();
            }
        }
        for (number, rows, stream) in distiller.take().unwrap() {
            let batch = StreamReader::try_new(&stream[..], None)
                .unwrap()
                .next()
                .unwrap()
                .unwrap();
            assert_eq!(batch.num_rows(), rows as usize);
            events.take(tables::table(number).unwrap().name, &batch);
            streams.push(stream);
        }
        (events, streams)
    }

    pub(super) fn take(&mut self, name: &'static str, batch: &RecordBatch) {
        let wanted: &[&str] = match name {
            "transacted" => &["transaction"],
            "arrivals" => &["source", "sequence", "copy"],
            "ends" => &["source", "first", "last", "transaction"],
            "moves" => &["message", "copy", "to_source", "to_sequence"],
            "decisions" => &["transaction", "decision"],
            "catalogue" => &["what", "id"],
            "epochs" => &["epoch"],
            _ => return,
        };
        let columns: Vec<Vec<i64>> = wanted.iter().map(|column| numbers(batch, column)).collect();
        for (row, position) in numbers(batch, "position").into_iter().enumerate() {
            let cells = columns.iter().map(|column| column[row] as u64).collect();
            self.0.entry(position as u64).or_default().push((name, cells));
        }
    }

    /// What there is after all of it, from what there was before.
    pub(super) fn replay(&self, mut found: Found) -> Found {
        let mut open: BTreeMap<u64, BTreeSet<(u64, u64)>> = BTreeMap::new();
        for (position, told) in &self.0 {
            let of = told
                .iter()
                .find(|(name, _)| *name == "transacted")
                .map(|(_, cells)| cells[0]);
            for (name, cells) in told {
                match (*name, &cells[..]) {
                    ("arrivals", [source, sequence, copy]) => {
                        let row = (*source, *sequence, *position, *copy as u8);
                        match of {
                            Some(transaction) => drop(found.pending.insert((transaction, row))),
                            None => drop(found.there.insert(row)),
                        }
                    }
                    ("ends", [source, first, last, 0]) => {
                        found
                            .there
                            .retain(|row| row.0 != *source || !(*first..=*last).contains(&row.1));
                    }
                    ("ends", [source, first, last, transaction]) => {
                        let ends = (*first..=*last).map(|sequence| (*source, sequence));
                        open.entry(*transaction).or_default().extend(ends);
                    }
                    ("moves", [message, copy, source, sequence]) => {
                        found.there.insert((*source, *sequence, *message, *copy as u8));
                    }
                    ("decisions", [transaction, 1]) => {
                        found
                            .prepared
                            .insert(*transaction, open.remove(transaction).unwrap_or_default());
                    }
                    ("decisions", [transaction, decision]) => {
                        let mut ends = found.prepared.remove(transaction).unwrap_or_default();
                        ends.extend(open.remove(transaction).unwrap_or_default());
                        let (sent, others) = found.pending.iter().partition(|(of, _)| of == transaction);
                        let sent: BTreeSet<(u64, Row)> = sent;
                        found.pending = others;
                        if *decision == 2 {
                            found.there.extend(sent.into_iter().map(|(_, row)| row));
                            found.there.retain(|row| !ends.contains(&(row.0, row.1)));
                        }
                    }
                    ("catalogue", [2 | 4, id]) => {
                        found.there.retain(|row| row.0 != *id);
                        found.pending.retain(|(_, row)| row.0 != *id);
                    }
                    ("epochs", _) => {
                        let prepared = &found.prepared;
                        found
                            .pending
                            .retain(|(transaction, _)| prepared.contains_key(transaction));
                        open.clear();
                    }
                    _ => {}
                }
            }
        }
        found
    }
}

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
        let expected = Found::in_tables(&mut self.bench);
        let begun = self.bench.state().begin_cut().unwrap();
        expected.agrees_with(&begun.counters);
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
        let (events, streams) = Events::between(&mut play.bench, first, second);
        prop_assert_eq!(events.replay(there), then.clone());
        // From the beginning, too; and the same log makes the same bytes.
        let (whole, _) = Events::between(&mut play.bench, Position::ZERO, second);
        prop_assert_eq!(whole.replay(Found::default()), then);
        let (_, once_more) = Events::between(&mut play.bench, first, second);
        prop_assert_eq!(streams, once_more);
    }
}
