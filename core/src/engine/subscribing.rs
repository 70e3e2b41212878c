//! What a consumer takes from: a queue, or a subscription that is made, found, joined or replaced for it.

use super::configuring::missing;
use super::engine::Engine;
use super::errors::{Refused, of_state, over_limit, refuse};
use super::tickets::{Purpose, Resolved, name_excerpt};
use crate::name::Pattern;
use crate::proto::{AcknowledgeMode, ErrorCode, OpenConsumer};
use crate::selector::{Scope, Selector};
use crate::state::{DestinationId, Kind, SourceId, State, SubscriptionDefinition, VIEWED, View, Viewed};
use std::sync::Arc;

/// Longest name of a subscription, in bytes.
const SUBSCRIPTION_NAME_BYTES_MAX: usize = 1024;

/// What a consumer will take from, once it is settled.
pub(super) struct Taken {
    pub(super) source: SourceId,
    pub(super) destination: Option<DestinationId>,
    pub(super) owns_source: bool,
    pub(super) replaced: bool,
    /// The subscription selects while messages come in, so that the consumer has nothing to select.
    pub(super) selected: bool,
    /// Which messages a browser sees.
    pub(super) view: View,
}

impl Engine {
    pub(super) fn selector(&self, kind: Kind, name: &str, text: &str) -> Result<Option<Arc<Selector>>, Refused> {
        let limit = self.settings.limits.selector_bytes;
        if text.len() > limit as usize {
            return Err(over_limit(
                "selector_bytes",
                u64::from(limit),
                "The selector's text is too long",
            ));
        }
        if text.trim().is_empty() {
            return Ok(None);
        }
        let undelivered = kind == Kind::Queue && name == crate::state::UNDELIVERED_NAME;
        let scope = if undelivered {
            Scope::Undelivered
        } else {
            Scope::Ordinary
        };
        Selector::parse_in(text, scope)
            .map(|selector| Some(Arc::new(selector)))
            .map_err(|error| {
                let mut refused = refuse(ErrorCode::InvalidSelector, "selector", format!("{error}."));
                refused.offset = u32::try_from(error.offset()).unwrap_or(u32::MAX);
                refused
            })
    }

    pub(super) fn take_queue(
        &mut self,
        key: u64,
        connection: u64,
        open: &OpenConsumer,
        name: &str,
    ) -> Result<Option<Taken>, Refused> {
        if open.no_local || open.subscription.is_some() {
            let subject = if open.no_local { "no_local" } else { "subscription" };
            return Err(refuse(
                ErrorCode::InvalidArgument,
                subject,
                "Only consumers of topics have this.",
            ));
        }
        if open.browse
            && let Some(viewed) = Viewed::of(name)
        {
            return self.take_view(viewed).map(Some);
        }
        let purpose = if open.browse { Purpose::Browse } else { Purpose::Consume };
        let Resolved::Known(id) = self.resolve(key, Kind::Queue, name, purpose)? else {
            return Ok(None);
        };
        self.check_temporary(connection, id, name)?;
        let taken = Taken {
            source: id.source(),
            destination: Some(id),
            owns_source: false,
            replaced: false,
            selected: false,
            view: View::Due,
        };
        Ok(Some(taken))
    }

    /// A browser sees what waits for its time (EMS-DEST-A33, A63).
    fn take_view(&self, viewed: Viewed<'_>) -> Result<Taken, Refused> {
        let view = match viewed {
            Viewed::Returning => View::Returning,
            Viewed::Delayed(kind, name) => {
                let found = self.state.destination(kind, name);
                View::Delayed(found.map(|found| found.id).ok_or_else(|| missing(kind, name))?)
            }
        };
        Ok(Taken {
            source: VIEWED,
            destination: None,
            owns_source: false,
            replaced: false,
            selected: false,
            view,
        })
    }

    /// Only the connection that made a temporary destination may take from it (EMS-DEST-A03).
    fn check_temporary(&self, connection: u64, id: DestinationId, name: &str) -> Result<(), Refused> {
        if !name.starts_with(crate::name::TEMPORARY_PREFIX) {
            return Ok(());
        }
        if self
            .connections
            .get(&connection)
            .is_some_and(|connection| connection.temporaries.contains(&id))
        {
            return Ok(());
        }
        let message = "Only the connection that made a temporary destination may take from it.";
        Err(refuse(ErrorCode::NotAllowed, name_excerpt(name), message))
    }

    pub(super) fn take_topic(
        &mut self,
        key: u64,
        connection_key: u64,
        mode: AcknowledgeMode,
        open: &OpenConsumer,
        name: &str,
        selector: Option<Arc<Selector>>,
    ) -> Result<Option<Taken>, Refused> {
        let pattern = Pattern::parse(name)
            .map_err(|error| refuse(ErrorCode::InvalidName, name_excerpt(name), format!("{error}.")))?;
        if pattern.is_temporary_settings() {
            let message = "TMP.> stands for the settings of temporary destinations; nothing can be received from it.";
            return Err(refuse(ErrorCode::NotAllowed, name, message));
        }
        let mut destination = None;
        if pattern.has_wildcard() {
            if !open.browse && !self.resolve_pattern(key, name)? {
                return Ok(None);
            }
        } else {
            match self.resolve(key, Kind::Topic, name, Purpose::Consume)? {
                Resolved::Asked => return Ok(None),
                Resolved::Known(id) => destination = Some(id),
            }
            if let Some(id) = destination {
                self.check_temporary(connection_key, id, name)?;
            }
        }
        let definition = self.definition(connection_key, mode, open, pattern, selector)?;
        if open.browse {
            return self.browse_subscription(&definition).map(Some);
        }
        let (durable, shared, named) = (definition.durable, definition.shared, !definition.name.is_empty());
        self.check_subscription(&definition)?;
        let subscribed = self.state.subscribe(definition).map_err(|error| of_state(&error))?;
        let taken = Taken {
            source: subscribed.source,
            destination,
            owns_source: !durable && (!shared || !named),
            replaced: subscribed.replaced,
            selected: true,
            view: View::Due,
        };
        Ok(Some(taken))
    }

    fn definition(
        &self,
        connection_key: u64,
        mode: AcknowledgeMode,
        open: &OpenConsumer,
        pattern: Pattern,
        selector: Option<Arc<Selector>>,
    ) -> Result<SubscriptionDefinition, Refused> {
        let closed = || refuse(ErrorCode::Closed, "connection", "The connection was closed.");
        let identity = &self.connections.get(&connection_key).ok_or_else(closed)?.identity;
        let client_id = if identity.client_id_chosen {
            identity.client_id.clone()
        } else {
            String::new()
        };
        let asked = open.subscription.clone().unwrap_or_default();
        check_subscription_name(&asked.name)?;
        if (asked.durable || asked.shared) == asked.name.is_empty() && (open.subscription.is_some() || open.browse) {
            let message = "A durable or shared subscription has a name, and a name needs durable or shared.";
            return Err(refuse(ErrorCode::InvalidArgument, "subscription", message));
        }
        // Only looked at, one that is shared may belong to nobody.
        if asked.durable && !asked.shared && !open.browse && client_id.is_empty() {
            let message = "A durable subscription belongs to a client id; this connection chose none.";
            return Err(refuse(ErrorCode::InvalidArgument, "client_id", message));
        }
        if asked.durable && mode == AcknowledgeMode::None {
            let message = "A session without acknowledgements cannot consume from a durable subscription.";
            return Err(refuse(ErrorCode::NotAllowed, "acknowledge_mode", message));
        }
        if asked.durable && pattern.as_str().starts_with(crate::name::TEMPORARY_PREFIX) {
            let message = "A temporary topic ends with its connection, and cannot have a durable subscription.";
            return Err(refuse(ErrorCode::NotAllowed, name_excerpt(pattern.as_str()), message));
        }
        if asked.shared && open.no_local {
            let message = "A shared subscription cannot leave out what its own connection published.";
            return Err(refuse(ErrorCode::InvalidArgument, "no_local", message));
        }
        let plain = asked.name.is_empty();
        Ok(SubscriptionDefinition {
            client_id: if plain { String::new() } else { client_id },
            name: asked.name,
            durable: asked.durable,
            shared: asked.shared,
            is_static: false,
            pattern,
            selector,
            no_local: open.no_local,
            connection: connection_key,
        })
    }

    /// Whether a named subscription may be joined as it is defined.
    fn check_subscription(&self, wanted: &SubscriptionDefinition) -> Result<(), Refused> {
        if wanted.name.is_empty() {
            return Ok(());
        }
        let Some(existing) = self.state.subscription(&wanted.client_id, &wanted.name) else {
            return Ok(());
        };
        let consumers = self
            .receivers
            .get(&existing.id)
            .map_or(0, |receivers| receivers.consumers.len());
        let same = State::is_same_subscription(existing, wanted);
        if consumers > 0 && !(wanted.shared && existing.shared) {
            let message = format!("The subscription {} has an active consumer.", wanted.name);
            return Err(refuse(ErrorCode::InUse, name_excerpt(&wanted.name), message));
        }
        if !same && (consumers > 0 || existing.is_static) {
            let message = format!(
                "The subscription {} is defined with another topic, selector or kind.",
                wanted.name
            );
            return Err(refuse(ErrorCode::Conflict, name_excerpt(&wanted.name), message));
        }
        Ok(())
    }

    fn browse_subscription(&self, wanted: &SubscriptionDefinition) -> Result<Taken, Refused> {
        let Some(existing) = self
            .state
            .subscription(&wanted.client_id, &wanted.name)
            .filter(|found| found.durable)
        else {
            let message = "There is no durable subscription of this name to look at.";
            return Err(refuse(
                ErrorCode::NoSuchSubscription,
                name_excerpt(&wanted.name),
                message,
            ));
        };
        Ok(Taken {
            source: existing.id,
            destination: None,
            owns_source: false,
            replaced: false,
            selected: false,
            view: View::Due,
        })
    }
}

fn check_subscription_name(name: &str) -> Result<(), Refused> {
    if name.len() > SUBSCRIPTION_NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let message =
            format!("A subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes and no control characters.");
        return Err(refuse(ErrorCode::InvalidName, "subscription.name", message));
    }
    Ok(())
}
