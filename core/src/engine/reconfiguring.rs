//! A change of the configuration: only what is different, so that its cost is that of the change and not of everything.
//!
//! The host keeps what it handed over last and compares. What is refused here it hands over again with the next change;
//! whole configurations ([`Engine::configure`]) come at the start, and whenever the host is in doubt.

use super::configuring::{Configured, DurableDefinition};
use super::engine::Engine;
use crate::name::DestinationName;
use crate::state::{Bridge, Kind, Origin, Properties, StoreDefinition};

/// What is different.
#[derive(Debug, Default)]
pub struct Changes {
    /// Static destinations that are new or have other properties.
    pub destinations: Vec<(Kind, DestinationName, Properties)>,
    /// Destinations that are configured no more.
    pub removed_destinations: Vec<(Kind, DestinationName)>,
    /// What temporary destinations get, where that is different.
    pub temporaries: Vec<(Kind, Properties)>,
    /// All bridges, if any of them is different.
    pub bridges: Option<Vec<Bridge>>,
    /// Static durable subscriptions that are new or different.
    pub durables: Vec<DurableDefinition>,
    /// Client id and name of those that are configured no more.
    pub removed_durables: Vec<(String, String)>,
    /// Stores that are new or different.
    pub stores: Vec<StoreDefinition>,
    /// What dynamic destinations get may be different.
    pub inherited: bool,
}

impl Engine {
    /// Makes what is different so. Doing so again changes nothing.
    pub fn reconfigure(&mut self, changes: Changes) -> Configured {
        let mut configured = Configured::default();
        if !changes.stores.is_empty() {
            self.state.set_stores(changes.stores);
        }
        self.configure_temporaries(changes.temporaries);
        for (kind, name, properties) in changes.destinations {
            self.configure_destination(kind, &name, properties, &mut configured);
        }
        if let Some(bridges) = changes.bridges {
            self.state.set_bridges(bridges);
        }
        let removes = !changes.removed_destinations.is_empty();
        for (kind, name) in changes.removed_destinations {
            let found = self.state.destination(kind, name.as_str());
            // It may have been deleted by name before, or be a client's by now.
            if let Some(id) = found
                .filter(|found| found.origin == Origin::Static)
                .map(|found| found.id)
            {
                self.remove_destination(id, kind, name.as_str(), &mut configured);
            }
        }
        for durable in changes.durables {
            self.note_durable(durable, &mut configured);
        }
        for (client_id, name) in changes.removed_durables {
            let found = self.state.subscription(&client_id, &name);
            if let Some(source) = found.filter(|found| found.is_static).map(|found| found.id) {
                self.remove_durable(source, name, &mut configured);
            }
        }
        if changes.inherited || removes {
            self.ask_about_dynamic();
        }
        self.note_configured(&configured);
        configured
    }
}
