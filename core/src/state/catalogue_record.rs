//! The heads of the records that say what exists: destinations, subscriptions, watermarks and transactions' decisions.

use crate::name::{DestinationName, Pattern};
use crate::selector::{Scope, Selector};
use crate::wire::{zigzag_decode, zigzag_encode};

use super::codec::{Decoder, HeadError, put_byte, put_bytes, put_flag, put_number, put_text};
use super::ids::{DestinationId, Kind, SourceId, XID_PART_BYTES_MAX, Xid};

const VERSION: u8 = 1;

/// Record kinds of this layer; the log's own are below 16.
pub mod kinds {
    /// A message with its first references.
    pub const MESSAGE: u8 = 16;
    /// References end.
    pub const TERMINAL: u8 = 17;
    /// A reference ends in one source and begins in another.
    pub const MOVE: u8 = 18;
    /// A destination begins or ends.
    pub const DESTINATION: u8 = 19;
    /// A durable subscription begins or ends.
    pub const SUBSCRIPTION: u8 = 20;
    /// Sequences below it may have been delivered.
    pub const WATERMARK: u8 = 21;
    /// A transaction is prepared, committed or rolled back.
    pub const TRANSACTION: u8 = 22;
    /// All of the catalogue.
    pub const CHECKPOINT: u8 = 23;
    /// An epoch begins under a start id.
    pub const START: u8 = 25;
    /// A producer was opened by its name.
    pub const PRODUCER_NAME: u8 = 26;
    /// A cut was exported whole.
    pub const EXPORTED: u8 = 27;
    /// Something for audits.
    pub const NOTE: u8 = 28;
    /// Messages that came back wait for their queue's redelivery delay.
    pub const RETURN: u8 = 29;
    /// All that was due by a time has met the limits.
    pub const DUE: u8 = 30;
}

/// Where a destination comes from (EMS-DEST-A03).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Origin {
    /// An administrator configured it.
    Static = 1,
    /// A client named it and a wildcard entry allows it.
    Dynamic = 2,
    /// A connection owns it. Never logged.
    Temporary = 3,
    /// The broker's own. Never logged.
    System = 4,
}

impl Origin {
    fn decode(value: u8) -> Result<Self, HeadError> {
        Ok(match value {
            1 => Self::Static,
            2 => Self::Dynamic,
            3 => Self::Temporary,
            4 => Self::System,
            _ => return Err(HeadError::Range("origin")),
        })
    }
}

/// A destination as records describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationHead {
    /// It is no more, with all it held.
    pub deleted: bool,
    /// Its number, never used again.
    pub id: DestinationId,
    /// Queue or topic.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Grows when a destination of this name is made again.
    pub generation: u64,
    /// Static or dynamic.
    pub origin: Origin,
    /// Who deleted it.
    pub actor: String,
}

impl DestinationHead {
    /// Whether it can be taken, and so whether it may be written.
    fn check(&self) -> Result<(), HeadError> {
        if !self.deleted && DestinationName::parse(&self.name).is_err() {
            return Err(HeadError::Range("destination name"));
        }
        Ok(())
    }

    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        self.check()?;
        put_byte(out, VERSION);
        put_flag(out, self.deleted);
        put_byte(out, kind_code(self.kind));
        put_byte(out, self.origin as u8);
        put_number(out, self.id.0);
        put_number(out, self.generation);
        put_text(out, &self.name);
        put_text(out, &self.actor);
        Ok(())
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        let destination = Self::decode_from(&mut decoder)?;
        decoder.end("destination record")?;
        Ok(destination)
    }

    pub(super) fn decode_from(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        decoder.version("destination record", VERSION)?;
        let deleted = decoder.flag("deleted")?;
        let kind = decode_kind(decoder.byte("kind")?)?;
        let origin = Origin::decode(decoder.byte("origin")?)?;
        let head = Self {
            deleted,
            kind,
            origin,
            id: DestinationId(decoder.number("id")?),
            generation: decoder.number("generation")?,
            name: decoder.text("name")?.to_owned(),
            actor: decoder.text("actor")?.to_owned(),
        };
        head.check()?;
        Ok(head)
    }
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Queue => 1,
        Kind::Topic => 2,
    }
}

fn decode_kind(code: u8) -> Result<Kind, HeadError> {
    match code {
        1 => Ok(Kind::Queue),
        2 => Ok(Kind::Topic),
        _ => Err(HeadError::Range("kind")),
    }
}

const SHARED: u8 = 1;
const NO_LOCAL: u8 = 2;
const STATIC: u8 = 4;

/// A durable subscription as records describe it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriptionHead {
    /// It is no more, with all it held.
    pub deleted: bool,
    /// Its number, never used again.
    pub id: SourceId,
    /// The client id it belongs to; empty for a shared one without.
    pub client_id: String,
    /// Its name.
    pub name: String,
    /// The topic or pattern.
    pub pattern: String,
    /// Empty: all.
    pub selector: String,
    /// Several consumers share it.
    pub shared: bool,
    /// Not what its own client id published.
    pub no_local: bool,
    /// Configured by an administrator.
    pub is_static: bool,
    /// Who deleted it.
    pub actor: String,
}

impl SubscriptionHead {
    /// Whether it can be taken, and so whether it may be written.
    fn check(&self) -> Result<(), HeadError> {
        if self.deleted {
            return Ok(());
        }
        if Pattern::parse(&self.pattern).is_err() {
            return Err(HeadError::Range("subscription pattern"));
        }
        match Selector::parse_optional(&self.selector, Scope::Ordinary) {
            Ok(_) => Ok(()),
            Err(_) => Err(HeadError::Range("subscription selector")),
        }
    }

    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        self.check()?;
        let mut flags = 0;
        for (set, bit) in [
            (self.shared, SHARED),
            (self.no_local, NO_LOCAL),
            (self.is_static, STATIC),
        ] {
            flags |= if set { bit } else { 0 };
        }
        put_byte(out, VERSION);
        put_flag(out, self.deleted);
        put_byte(out, flags);
        put_number(out, self.id.0);
        for text in [&self.client_id, &self.name, &self.pattern, &self.selector, &self.actor] {
            put_text(out, text);
        }
        Ok(())
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        let subscription = Self::decode_from(&mut decoder)?;
        decoder.end("subscription record")?;
        Ok(subscription)
    }

    pub(super) fn decode_from(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        decoder.version("subscription record", VERSION)?;
        let deleted = decoder.flag("deleted")?;
        let flags = decoder.flags("a subscription", SHARED | NO_LOCAL | STATIC)?;
        let head = Self {
            deleted,
            shared: flags & SHARED != 0,
            no_local: flags & NO_LOCAL != 0,
            is_static: flags & STATIC != 0,
            id: SourceId(decoder.number("id")?),
            client_id: decoder.text("client_id")?.to_owned(),
            name: decoder.text("name")?.to_owned(),
            pattern: decoder.text("pattern")?.to_owned(),
            selector: decoder.text("selector")?.to_owned(),
            actor: decoder.text("actor")?.to_owned(),
        };
        head.check()?;
        Ok(head)
    }
}

/// Sequences of a source below `below` may have been delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkHead {
    /// The queue or subscription.
    pub source: SourceId,
    /// The bound.
    pub below: u64,
}

impl WatermarkHead {
    /// Appends the encoded head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        put_number(out, self.source.0);
        put_number(out, self.below);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("watermark record", VERSION)?;
        let watermark = Self {
            source: SourceId(decoder.number("source")?),
            below: decoder.number("below")?,
        };
        decoder.end("watermark record")?;
        Ok(watermark)
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Decision {
    /// It outlives its session and waits for the word of its coordinator.
    Prepared = 1,
    /// All of it takes effect.
    Committed = 2,
    /// None of it does.
    RolledBack = 3,
}

/// The head of a transaction record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionHead {
    /// The log's number of the transaction.
    pub transaction: u64,
    /// What became of it.
    pub decision: Decision,
    /// Prepared ones: the global name.
    pub xid: Option<Xid>,
    /// When, by the wall clock.
    pub time_ms: u64,
}

impl TransactionHead {
    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        put_byte(out, VERSION);
        put_byte(out, self.decision as u8);
        put_number(out, self.transaction);
        put_number(out, self.time_ms);
        put_number(out, u64::from(self.xid.is_some()));
        self.xid.as_ref().map_or(Ok(()), |xid| encode_xid(xid, out))
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("transaction record", VERSION)?;
        let decision = match decoder.byte("decision")? {
            1 => Decision::Prepared,
            2 => Decision::Committed,
            3 => Decision::RolledBack,
            _ => return Err(HeadError::Range("decision")),
        };
        let transaction = decoder.number("transaction")?;
        let time_ms = decoder.number("time_ms")?;
        let xid = match decoder.number("xid")? {
            0 => None,
            _ => Some(decode_xid(&mut decoder)?),
        };
        decoder.end("transaction record")?;
        Ok(Self {
            transaction,
            decision,
            xid,
            time_ms,
        })
    }
}

fn check_xid(xid: &Xid) -> Result<(), HeadError> {
    if xid.global.len() > XID_PART_BYTES_MAX || xid.branch.len() > XID_PART_BYTES_MAX {
        return Err(HeadError::Range("xid"));
    }
    Ok(())
}

fn encode_xid(xid: &Xid, out: &mut Vec<u8>) -> Result<(), HeadError> {
    check_xid(xid)?;
    put_number(out, zigzag_encode(i64::from(xid.format)));
    put_bytes(out, &xid.global);
    put_bytes(out, &xid.branch);
    Ok(())
}

fn decode_xid(decoder: &mut Decoder<'_>) -> Result<Xid, HeadError> {
    let format = i32::try_from(zigzag_decode(decoder.number("format")?)).map_err(|_| HeadError::Range("format"))?;
    let xid = Xid {
        format,
        global: decoder.bytes("global")?.to_vec(),
        branch: decoder.bytes("branch")?.to_vec(),
    };
    check_xid(&xid)?;
    Ok(xid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    #[test]
    fn heads_read_back_as_they_were_written() {
        let destination = DestinationHead {
            deleted: true,
            id: DestinationId(30),
            kind: Kind::Topic,
            name: "flights.JFK".to_owned(),
            generation: 4,
            origin: Origin::Dynamic,
            actor: "admin".to_owned(),
        };
        let mut bytes = Vec::new();
        destination.encode(&mut bytes).unwrap();
        assert_eq!(DestinationHead::decode(&bytes), Ok(destination));

        let subscription = SubscriptionHead {
            id: SourceId(31),
            client_id: "desk".to_owned(),
            name: "late".to_owned(),
            pattern: "flights.>".to_owned(),
            selector: "delay > 60".to_owned(),
            shared: true,
            is_static: true,
            ..SubscriptionHead::default()
        };
        bytes.clear();
        subscription.encode(&mut bytes).unwrap();
        assert_eq!(SubscriptionHead::decode(&bytes), Ok(subscription));

        let watermark = WatermarkHead {
            source: SourceId(31),
            below: 4096,
        };
        bytes.clear();
        watermark.encode(&mut bytes);
        assert_eq!(WatermarkHead::decode(&bytes), Ok(watermark));

        let transaction = TransactionHead {
            transaction: 77,
            decision: Decision::Prepared,
            xid: Some(Xid {
                format: -1,
                global: vec![1; 64],
                branch: vec![2],
            }),
            time_ms: 9,
        };
        bytes.clear();
        transaction.encode(&mut bytes).unwrap();
        assert_eq!(TransactionHead::decode(&bytes), Ok(transaction));
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        assert_eq!(
            WatermarkHead::decode(&[9, 1, 1]),
            Err(HeadError::Version {
                what: "watermark record",
                version: 9,
                known: VERSION
            })
        );
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = DestinationHead::decode(&bytes);
            let _ = SubscriptionHead::decode(&bytes);
            let _ = WatermarkHead::decode(&bytes);
            let _ = TransactionHead::decode(&bytes);
        }
    }
}
