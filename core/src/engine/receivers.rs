//! Who takes from one source, and whose turn it is.
//!
//! Consumers without a selector stand in a ring while they may take one more, as far as is known: the one in front is
//! next. One that turns out to have no room leaves the ring and comes back behind the others when something wakes it
//! (credit, an acknowledgement, a start), so a message costs the same however many consumers wait. Those with a selector
//! are asked one by one, since only they know what they want.

use std::collections::{BTreeSet, VecDeque};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Receivers {
    /// The keys of those who take, in the order in which they came.
    pub consumers: Vec<u64>,
    /// Keys of those who only look.
    pub browsers: Vec<u64>,
    /// Only the first one is served (EMS-DEST-A12).
    pub exclusive: bool,
    /// Without a selector and awake; whose turn it is stands in front.
    pub(super) ring: VecDeque<u64>,
    /// With a selector; whose turn it is stands in front.
    pub(super) choosy: VecDeque<u64>,
    /// Without a selector, to be told when nothing is left.
    pub(super) draining: BTreeSet<u64>,
    /// Stands in the engine's list of dirty sources.
    pub(super) dirty: bool,
}

impl Receivers {
    /// Adds a consumer behind the others.
    pub fn add(&mut self, key: u64, has_selector: bool) {
        self.consumers.push(key);
        if has_selector {
            self.choosy.push_back(key);
        }
    }

    /// Takes a consumer or browser out; the turns of the others stay as they are.
    pub fn remove(&mut self, key: u64) {
        self.browsers.retain(|&other| other != key);
        self.consumers.retain(|&other| other != key);
        self.choosy.retain(|&other| other != key);
        self.ring.retain(|&other| other != key);
        self.draining.remove(&key);
    }

    /// The next pass begins behind the one with a selector that was served last.
    pub(super) fn pass_turn(&mut self, served: u64) {
        if let Some(index) = self.choosy.iter().position(|&other| other == served) {
            self.choosy.rotate_left(index + 1);
        }
    }
}
