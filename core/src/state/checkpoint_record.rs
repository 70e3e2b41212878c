//! The heads of checkpoint records: a run of chunks, each of which carries items to its end. What they mean is for
//! [`super::checkpoint`].

use crate::name::DestinationName;

use super::catalogue_record::{DestinationHead, SubscriptionHead};
use super::codec::{Decoder, HeadError, put_byte, put_bytes, put_flag, put_number, put_ranges, put_text};
use super::exported::Exported;
use super::ids::{DestinationId, Kind, SourceId};
use super::names::NameHead;
use super::refusals::Ranges;
use super::returning::ReturnHead;
use super::starts::SECRET_BYTES;

const VERSION: u8 = 1;

const COUNTERS: u8 = 1;
const DESTINATION: u8 = 2;
const SUBSCRIPTION: u8 = 3;
const SOURCE: u8 = 4;
const PRODUCER: u8 = 5;
const RETIRED: u8 = 6;
const REFUSED: u8 = 7;
const REFUSALS_FORGOTTEN: u8 = 8;
const START: u8 = 9;
const SECRET: u8 = 10;
const NAME: u8 = 11;
const NAMES_FORGOTTEN: u8 = 12;
const EXPORTED: u8 = 13;
const RETURNING: u8 = 14;
const DUE: u8 = 15;

/// What stands before a chunk's items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHead {
    /// Which checkpoint it is of.
    pub number: u64,
    /// Which chunk of it, from 0.
    pub chunk: u64,
    /// It is the last one.
    pub is_last: bool,
}

impl ChunkHead {
    /// Appends what stands before the items.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        put_number(out, self.number);
        put_number(out, self.chunk);
        put_flag(out, self.is_last);
    }

    /// Reads what stands before the items.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        decoder.version("checkpoint", VERSION)?;
        Ok(Self {
            number: decoder.number("number")?,
            chunk: decoder.number("chunk")?,
            is_last: decoder.flag("last")?,
        })
    }
}

/// One thing that a checkpoint says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// Numbers that only grow.
    Counters {
        /// The next destination's or subscription's.
        next_id: u64,
        /// The highest generation.
        generations: u64,
        /// The highest incarnation of which something is forgotten.
        forgotten_up_to: u64,
    },
    /// A destination exists.
    Destination(DestinationHead),
    /// A durable subscription exists.
    Subscription(SubscriptionHead),
    /// How far a source's numbers are.
    Source {
        /// Which.
        source: SourceId,
        /// The next message's.
        next_sequence: u64,
        /// Those below may have been delivered.
        watermark: u64,
    },
    /// How far a producer's numbers at a destination are.
    Producer {
        /// In which half of the table it stands.
        young: bool,
        /// Which producer.
        incarnation: u64,
        /// Which destination.
        destination: DestinationId,
        /// The highest number that arrived.
        sequence: u64,
    },
    /// The name of a destination that was deleted.
    Retired {
        /// Its number.
        id: DestinationId,
        /// Queue or topic.
        kind: Kind,
        /// Its name.
        name: DestinationName,
    },
    /// Which numbers were refused and have not arrived since.
    Refused {
        /// Which producer's.
        incarnation: u64,
        /// At which destination.
        destination: DestinationId,
        /// Which numbers, and up to where it cannot be told.
        ranges: Ranges,
    },
    /// The highest incarnations of which refused numbers are forgotten: where nothing of them had arrived, and where it was
    /// not known where they go.
    RefusalsForgotten([u64; 2]),
    /// The store was opened for writing.
    Start {
        /// Which epoch began.
        epoch: u64,
        /// Its random id.
        id: u64,
    },
    /// The key of producers' tokens.
    Secret([u8; SECRET_BYTES]),
    /// A producer has a name.
    Name {
        /// Which, as it was opened last.
        head: NameHead,
        /// The highest number that arrived.
        sequence: u64,
    },
    /// A name was forgotten: this user's, or (none) anybody's.
    NamesForgotten(Option<String>),
    /// A cut was exported whole.
    Exported(Exported),
    /// What waits for its redelivery until one time.
    Returning(ReturnHead),
    /// What its senders delayed and was due by then, by the wall clock, has met the limits.
    Due(u64),
}

impl Item {
    /// Appends the item.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        match self {
            Self::Counters {
                next_id,
                generations,
                forgotten_up_to,
            } => put_all(out, COUNTERS, &[*next_id, *generations, *forgotten_up_to]),
            Self::Destination(head) => {
                put_byte(out, DESTINATION);
                head.encode(out)?;
            }
            Self::Subscription(head) => {
                put_byte(out, SUBSCRIPTION);
                head.encode(out)?;
            }
            Self::Source {
                source,
                next_sequence,
                watermark,
            } => put_all(out, SOURCE, &[source.0, *next_sequence, *watermark]),
            Self::Producer {
                young,
                incarnation,
                destination,
                sequence,
            } => {
                put_byte(out, PRODUCER);
                put_flag(out, *young);
                [*incarnation, destination.0, *sequence]
                    .into_iter()
                    .for_each(|number| put_number(out, number));
            }
            Self::Retired { id, kind, name } => {
                put_all(out, RETIRED, &[id.0]);
                put_flag(out, *kind == Kind::Topic);
                put_text(out, name.as_str());
            }
            Self::Refused {
                incarnation,
                destination,
                ranges,
            } => {
                put_all(out, REFUSED, &[*incarnation, destination.0]);
                put_ranges(out, ranges);
            }
            Self::RefusalsForgotten(incarnations) => put_all(out, REFUSALS_FORGOTTEN, incarnations),
            Self::Start { epoch, id } => {
                put_all(out, START, &[*epoch]);
                put_bytes(out, &id.to_le_bytes());
            }
            Self::Secret(secret) => {
                put_byte(out, SECRET);
                put_bytes(out, secret);
            }
            Self::Name { head, sequence } => {
                put_byte(out, NAME);
                head.encode_fields(out);
                put_number(out, *sequence);
            }
            Self::NamesForgotten(user) => put_forgotten(out, user.as_deref()),
            Self::Exported(exported) => {
                put_byte(out, EXPORTED);
                exported.encode_fields(out);
            }
            Self::Returning(head) => {
                put_byte(out, RETURNING);
                head.encode_fields(out)?;
            }
            Self::Due(until_ms) => put_all(out, DUE, &[*until_ms]),
        }
        Ok(())
    }

    /// Reads one item.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        Ok(match decoder.byte("an item")? {
            COUNTERS => Self::Counters {
                next_id: decoder.number("next_id")?,
                generations: decoder.number("generations")?,
                forgotten_up_to: decoder.number("forgotten_up_to")?,
            },
            DESTINATION => Self::Destination(DestinationHead::decode_from(decoder)?),
            SUBSCRIPTION => Self::Subscription(SubscriptionHead::decode_from(decoder)?),
            SOURCE => Self::Source {
                source: SourceId(decoder.number("source")?),
                next_sequence: decoder.number("next_sequence")?,
                watermark: decoder.number("watermark")?,
            },
            PRODUCER => Self::Producer {
                young: decoder.flag("a producer")?,
                incarnation: decoder.number("a producer")?,
                destination: DestinationId(decoder.number("a producer")?),
                sequence: decoder.number("a producer")?,
            },
            RETIRED => Self::Retired {
                id: DestinationId(decoder.number("a retired name")?),
                kind: if decoder.flag("a retired name")? {
                    Kind::Topic
                } else {
                    Kind::Queue
                },
                name: DestinationName::parse(decoder.text("a retired name")?)
                    .map_err(|_| HeadError::Range("a retired name"))?,
            },
            REFUSED => Self::Refused {
                incarnation: decoder.number("a refusal's producer")?,
                destination: DestinationId(decoder.number("a refusal's destination")?),
                ranges: decoder.ranges()?,
            },
            REFUSALS_FORGOTTEN => Self::RefusalsForgotten([
                decoder.number("forgotten refusals")?,
                decoder.number("forgotten refusals")?,
            ]),
            START => Self::Start {
                epoch: decoder.number("an epoch")?,
                id: u64::from_le_bytes(decoder.array("start id")?),
            },
            SECRET => Self::Secret(decoder.array("secret")?),
            NAME => Self::Name {
                head: NameHead::decode_fields(decoder)?,
                sequence: decoder.number("a named producer's last number")?,
            },
            NAMES_FORGOTTEN => Self::NamesForgotten(match decoder.flag("forgotten names")? {
                true => Some(decoder.text("forgotten names")?.to_owned()),
                false => None,
            }),
            EXPORTED => Self::Exported(Exported::decode_fields(decoder)?),
            RETURNING => Self::Returning(ReturnHead::decode_fields(decoder)?),
            DUE => Self::Due(decoder.number("until_ms")?),
            _ => return Err(HeadError::Range("an item")),
        })
    }
}

fn put_all(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    put_byte(out, tag);
    numbers.iter().for_each(|number| put_number(out, *number));
}

fn put_forgotten(out: &mut Vec<u8>, user: Option<&str>) {
    put_byte(out, NAMES_FORGOTTEN);
    put_flag(out, user.is_some());
    user.iter().for_each(|user| put_text(out, user));
}

/// Whether a whole chunk can be read.
///
/// # Errors
/// What is wrong with it.
pub fn check(head: &[u8]) -> Result<(), HeadError> {
    let mut decoder = Decoder::new(head);
    ChunkHead::decode(&mut decoder)?;
    while !decoder.is_at_end() {
        Item::decode(&mut decoder)?;
    }
    Ok(())
}
