//! Browsing: looking at messages in the order of their delivery, and at those whose time has not come.
//!
//! What waits for its time stands in its own queue or subscription, as everything does. For people there are names under
//! which only that is seen: `$sys.redelivery.delay` (EMS-DEST-A33), `$sys.delayed.q.NAME` and `$sys.delayed.t.NAME`
//! (EMS-DEST-A63). They are no destinations: nothing is sent to them or taken from them.

use rustc_hash::FxHashSet;

use crate::log::Position;
use crate::selector::Selector;

use super::dispatching::Delivered;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId};
use super::queue::{DELAYED, EXPIRED, Entry, GATED, RETURNED};
use super::volatile::is_volatile;

/// All that waits for its redelivery, of every queue.
pub const RETURNING_NAME: &str = "$sys.redelivery.delay";
const DELAYED_PREFIXES: [(&str, Kind); 2] = [("$sys.delayed.q.", Kind::Queue), ("$sys.delayed.t.", Kind::Topic)];

/// A name that is looked at and is no destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Viewed<'a> {
    /// `$sys.redelivery.delay`.
    Returning,
    /// What is delayed of this queue or topic.
    Delayed(Kind, &'a str),
}

impl<'a> Viewed<'a> {
    /// What a name stands for.
    #[must_use]
    pub fn of(name: &'a str) -> Option<Self> {
        if name == RETURNING_NAME {
            return Some(Self::Returning);
        }
        DELAYED_PREFIXES.into_iter().find_map(|(prefix, kind)| {
            let rest = name.strip_prefix(prefix)?;
            Some(Self::Delayed(kind, rest))
        })
    }
}

/// Which messages a browser sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Those that may be delivered.
    Due,
    /// Those of a destination that their senders delayed.
    Delayed(DestinationId),
    /// Those that wait for their redelivery.
    Returning,
}

/// Where a browser stands: source by source, priority by priority, by sequence within each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrowseCursor {
    view: View,
    source: SourceId,
    priority: u8,
    after: u64,
    /// What came later is not looked at, so that browsing ends.
    below: u64,
    /// Sources that come after this one, the last one first.
    rest: Vec<SourceId>,
    /// A topic's message waits in each of its subscriptions, and is seen once.
    seen: FxHashSet<(Position, u8)>,
    shown: u64,
}

/// What a browser finds next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrowseNext {
    /// A message with its number: in its source, or among those that a view shows.
    Found(u64, Delivered),
    /// The selector must look at a message that is being read; try again when a read is complete.
    NeedsRead,
    /// Everything has been looked at.
    End,
}

impl View {
    /// Whether it shows an entry.
    pub(super) fn shows(self, entry: &Entry) -> bool {
        match self {
            Self::Due => !entry.is(GATED | DELAYED | EXPIRED),
            Self::Delayed(_) => entry.is(DELAYED) && !entry.is(GATED | RETURNED | EXPIRED),
            Self::Returning => entry.is(RETURNED) && !entry.is(GATED | EXPIRED),
        }
    }
}

impl State {
    /// A browser's place before the first message of a source.
    #[must_use]
    pub fn browse_cursor(&self, id: SourceId) -> BrowseCursor {
        self.browse_sources(View::Due, vec![id])
    }

    /// A browser's place before the first message that a view shows.
    #[must_use]
    pub fn browse_view(&self, view: View) -> BrowseCursor {
        self.browse_sources(view, self.viewed_sources(view))
    }

    /// The sources in which a view finds something, the last one first.
    pub(super) fn viewed_sources(&self, view: View) -> Vec<SourceId> {
        let mut sources: Vec<SourceId> = match view {
            View::Due => Vec::new(),
            View::Delayed(id) => match self.tables.catalogue.destination(id) {
                Some(found) if found.kind == Kind::Topic => {
                    let name = found.name.as_str();
                    let subscriptions = self.tables.catalogue.subscriptions_of(name);
                    subscriptions.iter().map(|subscription| subscription.id).collect()
                }
                _ => vec![id.source()],
            },
            View::Returning => {
                let sources = self.tables.sources.values();
                let returning = sources.filter(|source| source.statistics.returned_messages > 0);
                returning.map(|source| source.id).collect()
            }
        };
        sources.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        sources
    }

    fn browse_sources(&self, view: View, rest: Vec<SourceId>) -> BrowseCursor {
        let mut cursor = BrowseCursor {
            view,
            source: SourceId::default(),
            priority: 0,
            after: 0,
            below: 0,
            rest,
            seen: FxHashSet::default(),
            shown: 0,
        };
        self.next_browsed(&mut cursor);
        cursor
    }

    /// Goes to the next source; whether there is one.
    fn next_browsed(&self, cursor: &mut BrowseCursor) -> bool {
        let Some(next) = cursor.rest.pop() else { return false };
        let found = self.tables.sources.get(&next);
        cursor.below = found.map_or(0, |source| source.next_sequence);
        (cursor.source, cursor.priority, cursor.after) = (next, 9, 0);
        true
    }

    /// The next message for a browser, whether it is in flight or not: committed, not expired, and what its view shows.
    pub fn browse_next(&mut self, cursor: &mut BrowseCursor, selector: Option<&Selector>) -> BrowseNext {
        loop {
            let (committed, id) = (self.tables.committed, cursor.source);
            let entry = self.tables.sources.get(&id).and_then(|source| {
                let mut entries = source.queue.iter_from(cursor.priority, cursor.after + 1);
                entries.find(|entry| {
                    cursor.view.shows(entry) && (is_volatile(entry.position) || entry.position < committed)
                })
            });
            let Some(entry) = entry.copied().filter(|entry| entry.sequence < cursor.below) else {
                if cursor.priority > 0 {
                    (cursor.priority, cursor.after) = (cursor.priority - 1, 0);
                } else if !self.next_browsed(cursor) {
                    return BrowseNext::End;
                }
                continue;
            };
            let Some(wanted) = self.is_viewed(cursor, &entry, selector) else {
                return BrowseNext::NeedsRead;
            };
            cursor.after = entry.sequence;
            if !wanted {
                continue;
            }
            let Some(source) = self.tables.sources.get(&id) else {
                return BrowseNext::End;
            };
            let delivered = Delivered {
                position: entry.position,
                copy: entry.copy,
                bytes: entry.bytes,
                delivery_count: u32::from(entry.count) + 1,
                redelivered: source.is_redelivered(&entry),
                reason: source.moved.get(&entry.sequence).map(|moved| moved.reason),
            };
            cursor.shown += 1;
            // Numbers of several sources would not tell their messages apart.
            let number = if cursor.view == View::Due {
                entry.sequence
            } else {
                cursor.shown
            };
            return BrowseNext::Found(number, delivered);
        }
    }

    /// Whether a browser is shown a message; none: it must be read first.
    fn is_viewed(&mut self, cursor: &mut BrowseCursor, entry: &Entry, selector: Option<&Selector>) -> Option<bool> {
        if let Some(selector) = selector
            && !self.is_selected(cursor.source, entry, selector)?
        {
            return Some(false);
        }
        match cursor.view {
            View::Delayed(id) if id.source() != cursor.source => {
                let source = self.tables.sources.get(&cursor.source);
                let is_own = source.is_some_and(|source| source.delayed_to(entry.sequence) == Some(id));
                Some(is_own && cursor.seen.insert((entry.position, entry.copy)))
            }
            _ => Some(true),
        }
    }
}
