//! Places of the log that were found damaged while it runs: by a read, a rewrite, or the scrubber. They are remembered, so
//! that people can be told and nobody tries them again and again; a failed read is damage like a wrong checksum.

use super::error::LogError;
use super::position::Position;
use super::recovery::Damage;
use super::running::Log;

/// Places that are remembered; more are only counted.
const PLACES_MAX: usize = 256;

/// A place that cannot be read as what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedPlace {
    /// The file's name in the store's folder.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// Where in the log.
    pub position: Position,
    /// What is wrong with it.
    pub why: String,
}

/// What is remembered.
#[derive(Default)]
pub(crate) struct Damages {
    places: Vec<DamagedPlace>,
    total: u64,
}

impl Log {
    /// Damaged places found since the log was opened, the first ones, each once.
    #[must_use]
    pub fn damaged_places(&self) -> &[DamagedPlace] {
        &self.damages.places
    }

    /// How many were found, those that are not remembered included: these may be counted more than once.
    #[must_use]
    pub fn damaged_total(&self) -> u64 {
        self.damages.total
    }

    /// Remembers a place. Its segment is not rewritten any more, and its file not used again.
    pub(crate) fn note_damage(&mut self, damage: Damage) {
        if let Some(segment) = self.segments.find(damage.position) {
            segment.damaged = true;
        }
        let Damage {
            file,
            offset,
            position,
            why,
        } = damage;
        let damages = &mut self.damages;
        let known = |place: &DamagedPlace| place.file == file && (place.offset == offset || place.position == position);
        if damages.places.iter().any(known) {
            return;
        }
        damages.total += 1;
        if damages.places.len() < PLACES_MAX {
            damages.places.push(DamagedPlace {
                file,
                offset,
                position,
                why,
            });
        }
    }

    /// Remembers what a read met, if it is damage.
    pub(crate) fn note_damaged_read(&mut self, error: &LogError) {
        if let LogError::Damaged {
            file,
            offset,
            position,
            why,
        } = error
        {
            self.note_damage(Damage {
                file: file.clone(),
                offset: *offset,
                position: *position,
                why: why.clone(),
            });
        }
    }
}
