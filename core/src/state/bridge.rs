//! Bridges: whatever is published to a source destination is copied to others, if their selector wants it.
//!
//! They are configuration, not state: which copies a message got is in its record. A copy never crosses a bridge of its
//! own destination (EMS-DEST-A49), and two bridges to the same target make two copies (A50).

use std::sync::Arc;

use crate::name::{DestinationName, Pattern};
use crate::selector::Selector;

use super::ids::Kind;

/// Where a bridge copies to.
#[derive(Clone, Debug)]
pub struct BridgeTarget {
    /// Queue or topic.
    pub kind: Kind,
    /// Its name: never a pattern.
    pub name: DestinationName,
    /// Which messages cross; none: all.
    pub selector: Option<Arc<Selector>>,
}

/// A bridge.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// The manifest's name.
    pub name: String,
    /// Queue or topic.
    pub kind: Kind,
    /// A name, or a pattern: every destination that matches has the bridge.
    pub source: Pattern,
    /// Where to.
    pub targets: Vec<BridgeTarget>,
}

impl Bridge {
    /// Whether messages published to this destination cross it.
    #[must_use]
    pub fn matches(&self, kind: Kind, name: &str) -> bool {
        // The settings pattern of temporaries and the system's own destinations are no bridge's source (EMS-DEST-A40).
        self.kind == kind && !name.starts_with('$') && self.source.matches(name)
    }
}
