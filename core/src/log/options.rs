//! How a log is opened. The host fills this in once; every limit of the log is here.

use super::commit::COMMIT_BYTES;
use super::error::LogError;
use super::position::BLOCK_BYTES;
use super::reserve::RESERVE_SEGMENTS;
use super::segment_header::DATA_OFFSET;

/// Who may append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// May append. Starts a new epoch, durable before the open returns: the given one, which must be above the last, or
    /// the last plus one.
    Active {
        /// The epoch a won election gave.
        epoch: Option<u64>,
    },
    /// A standby's log: it takes chunks of its leader's log until [`super::Log::begin_epoch`].
    Follower,
}

/// Sizes, limits and policy of one log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a segment file: whole blocks, 16 KiB to 1 GiB. May differ from one open to the next.
    pub segment_bytes: u32,
    /// Length of a new log's files until it needs more, in whole blocks, if that is less than `segment_bytes`; an eighth of
    /// these at most.
    pub young_bytes: u32,
    /// The largest record: header (32 bytes), head and payload.
    pub record_bytes_max: u32,
    /// A group commit is split beyond this.
    pub commit_bytes_max: u32,
    /// Memory for what was written lately and what was read, together.
    pub cache_bytes: usize,
    /// Segments prepared ahead of need. The last two are the reserve that draining uses; at least 3.
    pub ahead_count: u32,
    /// Whether segments are filled with zeros ahead of the writer: halves the time of a sync on most file systems.
    pub zero_fill: bool,
    /// How much of a segment one piece of upkeep fills with zeros, in whole blocks.
    pub fill_bytes: u32,
    /// The distance it keeps from the writer when that is in the same segment.
    pub fill_distance_bytes: u32,
    /// A sealed segment whose held records are fewer than this share of its records is rewritten; 0 never.
    pub compact_below_percent: u8,
    /// How much of the sealed segments is read and verified in each of the host's seconds; 0 never.
    pub scrub_bytes_per_second: u32,
    /// Seconds from the open to the first round through the log.
    pub scrub_after_seconds: u32,
    /// Seconds from the end of a round to the next one.
    pub scrub_every_seconds: u32,
    /// Start in spite of damage: drop what cannot be read and report each drop (EMS-STORE-A14).
    pub force_start: bool,
    /// Who may append.
    pub mode: OpenMode,
    /// Identity given to a log that is created; an existing one keeps its own.
    pub store_id: [u8; 16],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            young_bytes: 4 * 1024 * 1024,
            record_bytes_max: 16 * 1024 * 1024,
            commit_bytes_max: 4 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
            ahead_count: 3,
            zero_fill: true,
            fill_bytes: 2 * 1024 * 1024,
            fill_distance_bytes: 1024 * 1024,
            compact_below_percent: 25,
            scrub_bytes_per_second: 4 * 1024 * 1024,
            scrub_after_seconds: 600,
            scrub_every_seconds: 24 * 60 * 60,
            force_start: false,
            mode: OpenMode::Active { epoch: None },
            store_id: [0; 16],
        }
    }
}

impl Options {
    /// How long the files of a new log are, unless they are of the full length from the beginning. So short that a disk of
    /// little more than four full ones has room for these next to all of its first.
    pub(crate) fn young(&self) -> Option<u32> {
        const BLOCK: u32 = BLOCK_BYTES as u32;
        let eighth = (self.segment_bytes / 8 / BLOCK * BLOCK).max(4 * BLOCK);
        (self.young_bytes < self.segment_bytes).then(|| self.young_bytes.min(eighth))
    }

    /// Checks that the sizes fit one another.
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let segment = u64::from(self.segment_bytes);
        let refuse = |why: &str| Err(LogError::Options(why.to_owned()));
        if segment % BLOCK_BYTES != 0 || !(16 * 1024..=1024 * 1024 * 1024).contains(&segment) {
            return refuse("segment_bytes must be whole blocks of 4 KiB, 16 KiB to 1 GiB");
        }
        if u64::from(self.young_bytes) % BLOCK_BYTES != 0 || self.young_bytes < 16 * 1024 {
            return refuse("young_bytes must be whole blocks of 4 KiB, at least 16 KiB");
        }
        if u64::from(self.record_bytes_max) > segment - DATA_OFFSET - COMMIT_BYTES as u64 {
            return refuse("record_bytes_max must leave room for two blocks in a segment");
        }
        if u64::from(self.commit_bytes_max) < BLOCK_BYTES {
            return refuse("commit_bytes_max must be at least 4 KiB");
        }
        if self.fill_bytes == 0 || (u64::from(self.fill_bytes) | u64::from(self.fill_distance_bytes)) % BLOCK_BYTES != 0
        {
            return refuse("fill_bytes and fill_distance_bytes must be whole blocks of 4 KiB");
        }
        if (self.ahead_count as usize) <= RESERVE_SEGMENTS {
            return refuse("ahead_count must be at least 3: one to go on with and two in reserve");
        }
        if self.compact_below_percent > 90 {
            return refuse("compact_below_percent must be at most 90");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_fill_a_segment_but_for_its_head_and_its_commits_and_no_more() {
        let of = |record_bytes_max| Options {
            segment_bytes: 64 * 1024,
            record_bytes_max,
            commit_bytes_max: 16 * 1024,
            ..Options::default()
        };
        let most = 64 * 1024 - DATA_OFFSET as u32 - COMMIT_BYTES as u32;
        assert!(of(most).check().is_ok());
        assert!(of(most + 1).check().is_err());
    }
}
