//! What a record tells audits of and nobody else: it changes nothing, nothing waits for it, and where the log has no room it
//! is left out.

use crate::log::{Position, Purpose, RecoveryReport};

use super::catalogue_record::kinds;
use super::codec::{Decoder, HeadError, put_byte, put_flag, put_number, put_text};
use super::facade::State;

const VERSION: u8 = 1;
/// Characters of a reason that are kept.
const WHY_CHARS_MAX: usize = 500;

const OPENED: u8 = 1;
const CONFIGURED: u8 = 2;
const LOST: u8 = 3;

/// How records were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Loss {
    /// A forced start could not read them.
    Dropped = 1,
    /// They were written and never synced: nobody was told that they are durable.
    Torn = 2,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// A producer without a name began; those with one have records of their own.
    Opened {
        /// Its number.
        incarnation: u64,
        /// Who it was admitted as; empty: anonymous.
        user: String,
        /// The client id of its connection; empty: none.
        client_id: String,
    },
    /// The configuration was handed over, whole or in part.
    Configured {
        /// How many destinations and subscriptions it changed.
        objects: u64,
    },
    /// A start found records lost.
    Lost {
        /// How.
        loss: Loss,
        /// From here on.
        from: Position,
        /// How long, in position space.
        bytes: u64,
        /// How many records; none: that cannot be known.
        records: Option<u64>,
        /// Why.
        why: String,
    },
}

/// The head of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// What happened.
    pub told: Told,
}

impl Note {
    /// Appends the encoded head.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        put_number(out, self.time_ms);
        match &self.told {
            Told::Opened {
                incarnation,
                user,
                client_id,
            } => {
                put_byte(out, OPENED);
                put_number(out, *incarnation);
                put_text(out, user);
                put_text(out, client_id);
            }
            Told::Configured { objects } => {
                put_byte(out, CONFIGURED);
                put_number(out, *objects);
            }
            Told::Lost {
                loss,
                from,
                bytes,
                records,
                why,
            } => {
                put_byte(out, LOST);
                put_byte(out, *loss as u8);
                put_flag(out, records.is_some());
                [from.0, *bytes, records.unwrap_or_default()]
                    .into_iter()
                    .for_each(|number| put_number(out, number));
                put_text(out, why);
            }
        }
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("note", VERSION)?;
        let time_ms = decoder.number("a note's time")?;
        let told = match decoder.byte("a note's kind")? {
            OPENED => Told::Opened {
                incarnation: decoder.number("an opened producer")?,
                user: decoder.text("an opened producer's user")?.to_owned(),
                client_id: decoder.text("an opened producer's client id")?.to_owned(),
            },
            CONFIGURED => Told::Configured {
                objects: decoder.number("configured objects")?,
            },
            LOST => Self::decode_lost(&mut decoder)?,
            _ => return Err(HeadError::Range("a note's kind")),
        };
        decoder.end("note")?;
        Ok(Self { time_ms, told })
    }

    fn decode_lost(decoder: &mut Decoder<'_>) -> Result<Told, HeadError> {
        let loss = match decoder.byte("a loss")? {
            1 => Loss::Dropped,
            2 => Loss::Torn,
            _ => return Err(HeadError::Range("a loss")),
        };
        let is_known = decoder.flag("whether lost records are known")?;
        let from = Position(decoder.number("a loss's position")?);
        let bytes = decoder.number("a loss's bytes")?;
        let records = decoder.number("lost records")?;
        Ok(Told::Lost {
            loss,
            from,
            bytes,
            records: is_known.then_some(records),
            why: decoder.text("a loss's reason")?.to_owned(),
        })
    }
}

impl State {
    /// Notes something for audits. Without room for it, or in a log that takes nothing more, there is no note.
    pub fn note(&mut self, told: Told) {
        if !self.tables.live {
            return;
        }
        let time_ms = self.tables.now.wall_ms;
        self.head_buffer.clear();
        Note { time_ms, told }.encode(&mut self.head_buffer);
        let _ = self.append_event_for(kinds::NOTE, Purpose::Fill);
    }

    /// Notes what a start found lost.
    pub(super) fn note_losses(&mut self, report: &RecoveryReport) {
        if report.torn_bytes_cut > 0 {
            self.note(Told::Lost {
                loss: Loss::Torn,
                from: report.end,
                bytes: report.torn_bytes_cut,
                records: None,
                why: "written and never synced".to_owned(),
            });
        }
        for dropped in &report.dropped {
            self.note(Told::Lost {
                loss: Loss::Dropped,
                from: dropped.position,
                bytes: dropped.bytes,
                records: dropped.records,
                why: dropped.why.chars().take(WHY_CHARS_MAX).collect(),
            });
        }
    }
}
