//! What is set aside so that a full disk can be drained, and who may use it.
//!
//! An acknowledgement frees space, but takes some before it does: alone it takes a block. So publishing leaves the last two
//! prepared segments alone. Acknowledgements fill one, and while they go on in the other it is sealed and rewritten: what
//! took a block each takes some tens of bytes in the copy, and the file is prepared again. The last part of the last segment
//! is left to what has to be possible always: the checkpoint without which nothing may be rewritten, the epoch of
//! the next start, a purge. Until room is made acknowledgements are refused.
//!
//! Footers and copies need space outside the log, which a full disk does not have: for them a file of two segments' length
//! is kept, the spare: a copy needs up to one, and acknowledgements are copied for as long as what they end is still
//! there. It goes when one of them finds no space, and comes back before publishing does.

use super::disk::{Disk, DiskError, OpenFile};
use super::error::AppendError;
use super::position::{BLOCK_BYTES, block_aligned};
use super::running::Log;
use super::segment_header::DATA_OFFSET;

/// Prepared segments that publishing leaves alone.
pub(crate) const RESERVE_SEGMENTS: usize = 2;
/// Holds space and nothing else.
pub(crate) const SPARE_FILE: &str = "spare";
/// Segments whose length the spare has.
pub(crate) const SPARE_SEGMENTS: u64 = 2;
/// A spare that is about to take the place of a shorter one.
const NEXT_SPARE_FILE: &str = "spare.next";
/// What is left to upkeep, starts and purges, next to a checkpoint.
const KEPT_BYTES_MIN: u64 = 16 * BLOCK_BYTES;

/// What a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It adds to what is stored: it leaves the reserve alone.
    Fill,
    /// It takes out of what is stored: it may use the reserve, but for what is kept for upkeep.
    Drain,
    /// It makes room at once, or a start or a stop cannot do without it: it may use all there is.
    Upkeep,
}

/// How the reserve stands.
#[derive(Default)]
pub(crate) struct Reserve {
    /// The spare is there.
    pub has_spare: bool,
    /// One is there that was made for the files of a young log: it helps until a longer one has taken its place.
    pub has_short_spare: bool,
    /// The disk was found full, and neither the spare nor a segment beyond the reserve is there yet.
    pub drains: bool,
    /// The segment being written was one of the reserve.
    begun: bool,
    /// How much a checkpoint took.
    checkpoint_bytes: u64,
}

impl Reserve {
    /// The log's files are longer from now on.
    pub fn outgrow_spare(&mut self) {
        self.has_short_spare |= std::mem::take(&mut self.has_spare);
    }

    /// Whether there is one to be spent, however short.
    pub fn has_any_spare(&self) -> bool {
        self.has_spare || self.has_short_spare
    }

    /// A prepared segment is taken into use, when there were so many.
    pub fn note_begun(&mut self, ahead: usize) {
        self.begun = ahead <= RESERVE_SEGMENTS;
    }

    /// A log that was made just now has no reserve yet, and nothing to drain.
    pub fn note_created(&mut self) {
        self.begun = false;
    }

    /// Found so at the start.
    pub fn note_found(&mut self) {
        self.begun = true;
    }
}

impl Log {
    /// Says how many bytes a checkpoint takes, so that there is always room for the next one.
    pub fn keep_for_checkpoint(&mut self, bytes: u64) {
        self.reserve.checkpoint_bytes = bytes;
    }

    /// Whether the segment being written is for draining alone.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.reserve.begun && self.ahead.len() + self.growth.leaving() < RESERVE_SEGMENTS
    }

    /// How many prepared segments a record of this purpose may take into use.
    pub(crate) fn usable_ahead(&self, purpose: Purpose) -> usize {
        if purpose == Purpose::Fill {
            let beyond = self.ahead.len().saturating_sub(RESERVE_SEGMENTS);
            beyond.min(self.left_to_fill())
        } else {
            self.ahead.len()
        }
    }

    /// The part of the last segment that is left to upkeep.
    fn kept_bytes(&self) -> u64 {
        let room = u64::from(self.file_bytes()) - DATA_OFFSET;
        // Twice, since what exists may have grown.
        let wanted = KEPT_BYTES_MIN + block_aligned(self.reserve.checkpoint_bytes) * 2;
        wanted.min(room / 2 / BLOCK_BYTES * BLOCK_BYTES)
    }

    /// Whether enough is left behind a commit that is so full, in a segment with `left` bytes from its start on, when so many
    /// prepared segments are left to go on in. A log that was made on a disk which is full already has no other one yet: there
    /// publishing leaves as much.
    pub(crate) fn check_kept(&self, purpose: Purpose, ahead: usize, left: u64, used: u64) -> Result<(), AppendError> {
        let is_last = match purpose {
            Purpose::Fill => self.is_alone(),
            Purpose::Drain => ahead == 0,
            Purpose::Upkeep => false,
        };
        if is_last && left < block_aligned(used) + self.kept_bytes() {
            return Err(AppendError::NoSpace);
        }
        Ok(())
    }

    /// The disk was found full before there was a second segment.
    fn is_alone(&self) -> bool {
        self.reserve.drains && self.ahead.is_empty() && self.growth.leaving() == 0
    }

    /// What publishing leaves in the segment being written.
    pub(crate) fn left_by_publishing(&self) -> u64 {
        if self.is_alone() { self.kept_bytes() } else { 0 }
    }

    /// Whether what a full disk still holds is to be made denser, and the spare made again, before anything else.
    pub(crate) fn drains(&mut self) -> bool {
        let goes_on = self.usable_ahead(Purpose::Fill) > 0;
        let reserve = &mut self.reserve;
        reserve.drains &= !(reserve.has_spare && goes_on);
        reserve.drains
    }

    pub(crate) fn spare_bytes(&self) -> u64 {
        u64::from(self.file_bytes()) * SPARE_SEGMENTS
    }

    /// Finds the spare at the start. One of another length is of no use, but for that of a young log that has grown since.
    pub(crate) fn find_spare(&mut self) -> Result<(), DiskError> {
        let names = self.disk.list()?;
        if names.iter().any(|name| name == NEXT_SPARE_FILE) {
            self.disk.remove(NEXT_SPARE_FILE)?;
        }
        if !names.iter().any(|name| name == SPARE_FILE) {
            return Ok(());
        }
        let wrap = |error| DiskError::new("length of", SPARE_FILE, error);
        let length = self.disk.open(SPARE_FILE, OpenFile::ReadOnly)?.length().map_err(wrap)?;
        self.reserve.has_spare = length == self.spare_bytes();
        let short = self.options.young().map(|young| u64::from(young) * SPARE_SEGMENTS);
        self.reserve.has_short_spare = !self.reserve.has_spare && short == Some(length);
        if !self.reserve.has_any_spare() {
            self.disk.remove(SPARE_FILE)?;
        }
        Ok(())
    }

    /// Gives the spare's space back here and now; false where there is none.
    pub(crate) fn spend_spare_now(&mut self) -> Result<bool, DiskError> {
        let had = self.reserve.has_any_spare();
        (self.reserve.has_spare, self.reserve.has_short_spare) = (false, false);
        if had {
            self.disk.remove(SPARE_FILE)?;
        }
        Ok(had)
    }
}

/// Sets the spare's space aside. A shorter one stays until the longer one is there whole.
pub(crate) fn make_spare(disk: &dyn Disk, bytes: u64, replaces: bool) -> Result<(), DiskError> {
    let name = if replaces { NEXT_SPARE_FILE } else { SPARE_FILE };
    let make = || -> Result<(), DiskError> {
        let wrap = |error| DiskError::new("allocate", name, error);
        let file = disk.open(name, OpenFile::Fresh)?;
        file.allocate(bytes).map_err(wrap)?;
        file.sync_data().map_err(wrap)?;
        if replaces {
            disk.rename(name, SPARE_FILE)?;
        }
        disk.sync_directory()
    };
    make().or_else(|error| {
        if error.passes() {
            disk.remove(name)?;
        }
        Err(error)
    })
}
