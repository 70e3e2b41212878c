//! A canonical text of everything that follows from the log: two states with the same log have the same dump. For tests,
//! audits and support.

use std::fmt::Write as _;

use super::catalogue_record::Origin;
use super::facade::State;
use super::ids::UNLOGGED_ID;
use super::queue::{MOVED, PRESERVE};
use super::volatile::is_volatile;

impl State {
    /// The dump, one line for each thing, sorted.
    #[must_use]
    pub fn dump(&self) -> String {
        let tables = &self.tables;
        let mut lines = Vec::new();
        for destination in tables
            .catalogue
            .destinations()
            .filter(|one| one.origin != Origin::Temporary)
        {
            let (id, kind, name) = (destination.id.0, destination.kind, &destination.name);
            lines.push(format!(
                "destination {id} {kind} {name} {} {:?}",
                destination.generation, destination.origin
            ));
        }
        for one in tables.catalogue.subscriptions().filter(|one| one.durable) {
            lines.push(format!(
                "subscription {} {:?} {:?} {} {:?} {} {} {:?}",
                one.id.0,
                one.client_id,
                one.name,
                one.pattern,
                one.selector_text,
                one.shared,
                one.is_static,
                one.unwanted
            ));
        }
        for source in tables.sources.values().filter(|source| source.logged) {
            let id = source.id.0;
            lines.push(format!(
                "source {id} next {} watermark {}",
                source.next_sequence, source.watermark.logged
            ));
            for (priority, entry) in source.queue.iter().filter(|(_, entry)| !is_volatile(entry.position)) {
                let mut line = format!(
                    "message {id} {:020} at {} priority {priority} bytes {} copy {}",
                    entry.sequence, entry.position.0, entry.bytes, entry.copy
                );
                if entry.is(PRESERVE) {
                    line.push_str(" preserve");
                }
                if entry.is(MOVED)
                    && let Some(moved) = source.moved.get(&entry.sequence)
                {
                    // Writing to a string does not fail.
                    let _ = write!(line, " {} from {}", moved.reason.name(), moved.origin.0);
                }
                lines.push(line);
            }
        }
        self.dump_transactions(&mut lines);
        lines.sort_unstable();
        lines.push(String::new());
        lines.join("\n")
    }

    fn dump_transactions(&self, lines: &mut Vec<String>) {
        let tables = &self.tables;
        for id in tables.transactions.ids() {
            let Some(open) = tables.transactions.get(id) else {
                continue;
            };
            let logged = open
                .entries
                .iter()
                .filter(|pending| !is_volatile(pending.entry.position) && pending.source.0 < UNLOGGED_ID);
            let sent: Vec<_> = logged
                .map(|pending| (pending.source.0, pending.entry.sequence))
                .collect();
            let taken: Vec<_> = open
                .terminals
                .iter()
                .map(|(_, head)| (head.source.0, &head.ranges))
                .collect();
            if !sent.is_empty() || !taken.is_empty() || open.prepared.is_some() {
                lines.push(format!(
                    "transaction {id:x} {:?} sent {sent:?} taken {taken:?}",
                    open.xid
                ));
            }
        }
        for (epoch, id) in tables.starts.iter() {
            lines.push(format!("start {epoch} {id:x}"));
        }
        lines.push(format!("delays met the limits up to {}", tables.delays.met_ms));
        lines.extend(tables.exported.map(|exported| format!("{exported:?}")));
        let [old, young] = tables.producers.snapshot();
        for (incarnation, destination, sequence) in old.into_iter().chain(young) {
            lines.push(format!("producer {incarnation:x} to {} last {sequence}", destination.0));
        }
        for head in tables.names.iter() {
            let last = tables.producers.kept_sequence((head.incarnation, head.destination));
            lines.push(format!("{head:?} last {last}"));
        }
        let (users, of_all) = tables.names.marks();
        lines.extend(users.map(|user| format!("names of {user:?} forgotten")));
        lines.push(format!("names of all forgotten: {of_all}"));
        lines.push(format!(
            "producers forgotten up to {:x}",
            tables.producers.forgotten_up_to()
        ));
    }
}
