//! What a store's error is called at the boundary, and what to do about it.

use crate::log::LogError;
use crate::state::StateError;

/// A word that programs can tell errors by, and a sentence for people.
pub(super) fn classified(error: &StateError) -> (&'static str, &'static str) {
    match error {
        StateError::Log(LogError::Locked { .. }) => {
            ("LOCKED", "Stop the other broker, or give this one a folder of its own.")
        }
        StateError::Log(LogError::Damaged { .. } | LogError::Visitor { .. }) => (
            "DAMAGED",
            "Restore the file from a copy, or start with --force-start, which drops and reports each damaged record.",
        ),
        StateError::Log(LogError::Options(_)) => ("SETTINGS", "Mend the setting that is named."),
        StateError::Log(_) | StateError::Append(_) => ("FAILED", "Look at the disk, then start the broker again."),
        StateError::Disk(_) => ("DISK", "Check that the folder exists, is writable and has free space."),
        _ => ("STATE", "Report this as a defect of the broker."),
    }
}
