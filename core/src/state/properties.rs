//! What a destination is configured to do, and the stores' labels. Computed outside (inheritance from wildcard entries is
//! the configuration's business); the state layer gets effective values.

/// What happens at `maxMessages` or `maxBytes` (EMS-DEST-A24).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OverflowPolicy {
    /// Queues refuse; a topic's full subscriptions go without.
    #[default]
    Default,
    /// The oldest waiting ones make room.
    DiscardOld,
    /// Refused, for a topic if any one subscription is full.
    RejectIncoming,
}

/// Effective properties of one destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// How long messages live here; `None`: as their producer says; 0: for ever.
    pub expiration_ms: Option<u64>,
    /// Most messages waiting, for topics per subscription; 0: unlimited.
    pub messages_max: u64,
    /// Most bytes waiting, for topics per subscription; 0: unlimited.
    pub bytes_max: u64,
    /// What happens at either.
    pub overflow: OverflowPolicy,
    /// From so many bytes waiting on, for topics with any one subscription, producers wait; 0: never (EMS-DEST-A16).
    pub flow_control_bytes: u64,
    /// How many a consumer should ask for ahead; 0: none.
    pub prefetch: u32,
    /// Queues: most deliveries that count, of one message; 0: unlimited.
    pub redelivery_max: u8,
    /// Queues: how long a message that was delivered and came back waits before it is delivered again; 0: not at all.
    pub redelivery_delay_ms: u64,
    /// Queues: the queue that gets what expires here, or is delivered as often as allowed; empty: as the sender says.
    pub dead_letter: String,
    /// Queues: one consumer gets everything.
    pub exclusive: bool,
    /// Messages carry the name of the user who sent them, unless they ask for none (EMS-DEST-A35).
    pub sender_name: bool,
    /// Messages carry the name of the user who sent them, whatever they ask for (EMS-DEST-A36).
    pub sender_name_enforced: bool,
    /// Name of the store; empty: `$sys.failsafe`.
    pub store: String,
    /// Whatever else the configuration wants to keep and show; opaque here.
    pub shown: String,
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            expiration_ms: None,
            messages_max: 0,
            bytes_max: 0,
            overflow: OverflowPolicy::Default,
            flow_control_bytes: 0,
            prefetch: 5,
            redelivery_max: 0,
            redelivery_delay_ms: 0,
            dead_letter: String::new(),
            exclusive: false,
            sender_name: false,
            sender_name_enforced: false,
            store: String::new(),
            shown: String::new(),
        }
    }
}

/// What a store is configured to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreDefinition {
    /// Its name.
    pub name: String,
    /// Whether a confirmation waits for the disk.
    pub sync: bool,
    /// Most bytes in it; 0: unlimited.
    pub quota_bytes: u64,
}

/// A store: a label on destinations, with a promise and an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// Its name.
    pub name: String,
    /// Whether a confirmation waits for the disk.
    pub sync: bool,
    /// Most bytes in it; 0: unlimited.
    pub quota_bytes: u64,
    /// Messages held for its destinations, one for each reference.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Index of a store in [`Stores`]; never changes while the process runs.
pub type StoreIndex = u16;

/// Every store there is.
#[derive(Debug)]
pub struct Stores {
    all: Vec<Store>,
}

/// The store of destinations without one of their own: confirmed means on disk.
pub const FAILSAFE: StoreIndex = 0;

impl Default for Stores {
    fn default() -> Self {
        let store = |name: &str, sync| Store {
            name: name.to_owned(),
            sync,
            quota_bytes: 0,
            messages: 0,
            bytes: 0,
        };
        Self {
            all: vec![
                store("$sys.failsafe", true),
                store("$sys.nonfailsafe", false),
                store("$sys.meta", true),
            ],
        }
    }
}

impl Stores {
    /// Adds and changes stores; one that is no longer named keeps what it was (its messages stay where they are).
    pub fn configure(&mut self, definitions: Vec<StoreDefinition>) {
        for StoreDefinition {
            name,
            sync,
            quota_bytes,
        } in definitions
        {
            if let Some(store) = self.all.iter_mut().find(|store| store.name == name) {
                (store.sync, store.quota_bytes) = (sync, quota_bytes);
            } else if self.all.len() < usize::from(StoreIndex::MAX) {
                self.all.push(Store {
                    name,
                    sync,
                    quota_bytes,
                    messages: 0,
                    bytes: 0,
                });
            }
        }
    }

    /// The store of this name, `$sys.failsafe` for none or an unknown one.
    #[must_use]
    pub fn index(&self, name: &str) -> StoreIndex {
        self.all
            .iter()
            .position(|store| store.name == name)
            .map_or(FAILSAFE, |index| index as StoreIndex)
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|store| store.name == name)
    }

    /// A store.
    #[must_use]
    pub fn get(&self, index: StoreIndex) -> &Store {
        &self.all[usize::from(index).min(self.all.len() - 1)]
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Store] {
        &self.all
    }

    pub(super) fn add(&mut self, index: StoreIndex, bytes: u32) {
        if let Some(store) = self.all.get_mut(usize::from(index)) {
            store.messages += 1;
            store.bytes += u64::from(bytes);
        }
    }

    pub(super) fn take(&mut self, index: StoreIndex, bytes: u32) {
        if let Some(store) = self.all.get_mut(usize::from(index)) {
            store.messages = store.messages.saturating_sub(1);
            store.bytes = store.bytes.saturating_sub(u64::from(bytes));
        }
    }

    /// Moves what a source holds to another account.
    pub(super) fn transfer(&mut self, from: StoreIndex, to: StoreIndex, messages: u64, bytes: u64) {
        if let Some(store) = self.all.get_mut(usize::from(from)) {
            store.messages = store.messages.saturating_sub(messages);
            store.bytes = store.bytes.saturating_sub(bytes);
        }
        if let Some(store) = self.all.get_mut(usize::from(to)) {
            store.messages += messages;
            store.bytes += bytes;
        }
    }
}
