//! Whether what a dynamic destination is configured to do is known. Properties are configuration and not logged: after a
//! restart, and under another configuration, those of dynamic destinations are not known until the host has been asked.
//! Until then nothing there is ended by them: what expired while the broker was away may have a dead letter queue to go to.
//! It waits, undeliverable, and the host is asked, so that this does not depend on anybody opening the destination.

use super::catalogue_record::Origin;
use super::facade::State;
use super::ids::{DestinationId, SourceId};
use super::properties::Properties;
use super::tables::Tables;
use super::upkeep::RETRY_MS;

impl Tables {
    /// The destination whose properties decide over a source's messages, if they are not known now. Then they are asked
    /// for.
    pub fn awaits_properties(&mut self, id: SourceId) -> Option<DestinationId> {
        let destination = self.sources.get(&id)?.destination?;
        self.want_properties(destination).then_some(destination)
    }

    /// Has the host asked for the properties of a destination, if they are not known. Whether they are not.
    pub fn want_properties(&mut self, id: DestinationId) -> bool {
        let Some(found) = self.catalogue.destination(id) else {
            return false;
        };
        if found.origin != Origin::Dynamic || found.is_current {
            return false;
        }
        if !found.is_asked {
            self.wanted.insert(id);
        }
        true
    }
}

impl State {
    /// Has the host asked for the properties of a destination, if they are not known.
    pub fn want_properties(&mut self, id: DestinationId) {
        self.tables.want_properties(id);
    }

    /// Some of the destinations whose properties the host is to be asked for, each until it has answered.
    pub fn take_wanted(&mut self, most: usize) -> Vec<DestinationId> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(id) = self.tables.wanted.pop_first()
        {
            if let Some(found) = self.tables.catalogue.destination_mut(id)
                && !found.is_current
            {
                found.is_asked = true;
                taken.push(id);
            }
        }
        taken
    }

    /// The host's answer about a dynamic destination; with none it is asked again when that matters. Whether the
    /// destination has these properties now; whether it may be used here is another question.
    pub fn note_properties(&mut self, id: DestinationId, properties: Option<Properties>) -> bool {
        let Some(found) = self.tables.catalogue.destination_mut(id) else {
            return false;
        };
        found.is_asked = false;
        let Some(properties) = properties.filter(|_| found.origin == Origin::Dynamic) else {
            self.tables.timers.release(id, self.tables.now.monotonic_ms + RETRY_MS);
            return false;
        };
        let settled = found.settled;
        self.configure_destination(id, properties);
        if let Some(found) = self.tables.catalogue.destination_mut(id) {
            found.settled = settled;
        }
        true
    }
}
