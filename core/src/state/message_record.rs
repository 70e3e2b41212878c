//! The head of a message record: what the broker says about a message, beside the producer's untouched bytes.
//!
//! Written by a publish, read when the message is delivered, at recovery, and by compaction, which takes references out
//! of it that are no longer live. A message is stored once: each *copy* is one destination's view of it (the first one
//! is where it was sent, the others are bridges' targets, with message ids of their own), and each *reference* is a
//! place in a source.

use smallvec::SmallVec;

use super::codec::{Decoder, HeadError, put_byte, put_checksum, put_count, put_number, put_ranges, put_text};
use super::ids::{DestinationId, SourceId};
use super::refusals::Ranges;

const VERSION: u8 = 1;
/// The most copies of one message: the original and its bridged ones. An entry keeps the copy's index in a byte.
pub const COPIES_MAX: usize = 255;

const FLAG_PRESERVE: u8 = 1;
const FLAG_TRANSACTION: u8 = 2;
const FLAG_TIME_TO_LIVE: u8 = 4;
const FLAG_DELAY: u8 = 8;
const FLAG_UPLOADED: u8 = 16;
const FLAG_REFUSED: u8 = 32;
const FLAG_CHECKSUM: u8 = 64;
const FLAGS: u8 =
    FLAG_PRESERVE | FLAG_TRANSACTION | FLAG_TIME_TO_LIVE | FLAG_DELAY | FLAG_UPLOADED | FLAG_REFUSED | FLAG_CHECKSUM;
/// The highest priority there is.
const PRIORITY_MAX: u8 = 9;
const COPY_OWN_ID: u8 = 1;
const COPY_EXPIRATION: u8 = 2;
const COPY_SENDER: u8 = 4;

/// One destination's view of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageCopy {
    /// Where this copy was sent.
    pub destination: DestinationId,
    /// A bridged copy's own message id: producer incarnation and sequence.
    pub own_id: Option<(u64, u64)>,
    /// The destination's `expirationMs` at the time, which takes the place of the time to live (0: never). Consumers
    /// are then told that the message does not expire (EMS-MSG-A04).
    pub expiration_ms: Option<u64>,
    /// The destination wants to know who sent it: it is told with [`MessageHead::sender`] (EMS-MSG-A11).
    pub names_sender: bool,
}

/// One place of a message in a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Which copy it is a reference to.
    pub copy: u8,
    /// The queue or subscription.
    pub source: SourceId,
    /// The number it has there.
    pub sequence: u64,
}

/// The head of a message record, decoded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MessageHead {
    /// 0 to 9.
    pub priority: u8,
    /// Whether a message that must be dropped goes to `$sys.undelivered` instead (EMS-MSG-A08).
    pub preserve: bool,
    /// When it arrived, by the wall clock.
    pub arrived_ms: u64,
    /// How long it lives from then on; 0: for ever.
    pub time_to_live_ms: u64,
    /// How long it is held back from then on.
    pub delay_ms: u64,
    /// Who sent it.
    pub incarnation: u64,
    /// The producer's number for it.
    pub sequence: u64,
    /// The transaction it belongs to; 0: none, or committed long ago.
    pub transaction: u64,
    /// How much of the payload is the message; the rest is its uploaded body. 0: all of it.
    pub message_bytes: u64,
    /// Numbers of its producer at its destination that were refused before it and have not arrived since.
    pub refused: Ranges,
    /// XXH3-128 of the body ([`crate::message::Body::checksum`]), made when it arrived. `None`: the record is of a broker
    /// that made none, or the message is in memory only.
    pub checksum: Option<u128>,
    /// The user who sent it, for the copies that name their sender; empty where none does.
    pub sender: Box<str>,
    /// The original, then the bridged ones.
    pub copies: SmallVec<[MessageCopy; 2]>,
    /// In the order of the copies.
    pub references: SmallVec<[Reference; 4]>,
}

impl MessageHead {
    /// Forgets everything and keeps the room, so that one head serves all publishes.
    pub fn clear(&mut self) {
        let (mut copies, mut references) = (std::mem::take(&mut self.copies), std::mem::take(&mut self.references));
        copies.clear();
        references.clear();
        *self = Self {
            copies,
            references,
            ..Self::default()
        };
    }

    /// How long `copy` lives; 0: for ever.
    #[must_use]
    pub fn lifetime_ms(&self, copy: u8) -> u64 {
        self.copies
            .get(usize::from(copy))
            .and_then(|copy| copy.expiration_ms)
            .unwrap_or(self.time_to_live_ms)
    }

    /// When `copy` expires by the wall clock; 0: never.
    #[must_use]
    pub fn expires_ms(&self, copy: u8) -> u64 {
        match self.lifetime_ms(copy) {
            0 => 0,
            lifetime_ms => self.arrived_ms.saturating_add(lifetime_ms),
        }
    }

    /// What consumers are told about the expiration of `copy`: 0 where the destination rules it (EMS-MSG-A04).
    #[must_use]
    pub fn told_expiration_ms(&self, copy: u8) -> u64 {
        match self.copies.get(usize::from(copy)) {
            Some(MessageCopy {
                expiration_ms: Some(_), ..
            }) => 0,
            _ => self.expires_ms(copy),
        }
    }

    /// The message and its uploaded body, which may be empty, as they lie in a payload.
    #[must_use]
    pub fn split<'a>(&self, payload: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        match self.message_bytes {
            0 => (payload, &[]),
            bytes => payload.split_at(usize::try_from(bytes).unwrap_or(usize::MAX).min(payload.len())),
        }
    }

    /// The earliest delivery by the wall clock.
    #[must_use]
    pub fn deliver_at_ms(&self) -> u64 {
        self.arrived_ms.saturating_add(self.delay_ms)
    }

    /// Incarnation and sequence that make the message id of `copy`.
    #[must_use]
    pub fn id(&self, copy: u8) -> (u64, u64) {
        self.copies
            .get(usize::from(copy))
            .and_then(|copy| copy.own_id)
            .unwrap_or((self.incarnation, self.sequence))
    }

    /// Where `copy` was sent.
    #[must_use]
    pub fn destination(&self, copy: u8) -> Option<DestinationId> {
        self.copies.get(usize::from(copy)).map(|copy| copy.destination)
    }

    /// The user who sent it, as whoever gets `copy` is told; empty: nothing is told.
    #[must_use]
    pub fn sender(&self, copy: u8) -> &str {
        match self.copies.get(usize::from(copy)) {
            Some(MessageCopy { names_sender: true, .. }) => &self.sender,
            _ => "",
        }
    }

    fn has_sender(&self) -> bool {
        self.copies.iter().any(|copy| copy.names_sender)
    }

    /// Whether it can be written, which is whether it can be read.
    fn check(&self) -> Result<(), HeadError> {
        if self.sender.is_empty() == self.has_sender() {
            return Err(HeadError::Range("sender"));
        }
        if self.priority > PRIORITY_MAX {
            return Err(HeadError::Range("priority"));
        }
        if self
            .references
            .iter()
            .any(|reference| usize::from(reference.copy) >= self.copies.len())
        {
            return Err(HeadError::Range("a reference's copy"));
        }
        Ok(())
    }

    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        self.check()?;
        let flags = flag(self.preserve, FLAG_PRESERVE)
            | flag(self.transaction != 0, FLAG_TRANSACTION)
            | flag(self.time_to_live_ms != 0, FLAG_TIME_TO_LIVE)
            | flag(self.delay_ms != 0, FLAG_DELAY)
            | flag(self.message_bytes != 0, FLAG_UPLOADED)
            | flag(!self.refused.is_empty(), FLAG_REFUSED)
            | flag(self.checksum.is_some(), FLAG_CHECKSUM);
        put_byte(out, VERSION);
        put_byte(out, flags);
        put_byte(out, self.priority);
        put_number(out, self.arrived_ms);
        put_number(out, self.incarnation);
        put_number(out, self.sequence);
        for value in [
            self.transaction,
            self.time_to_live_ms,
            self.delay_ms,
            self.message_bytes,
        ]
        .into_iter()
        .filter(|value| *value != 0)
        {
            put_number(out, value);
        }
        if !self.refused.is_empty() {
            put_ranges(out, &self.refused);
        }
        if let Some(checksum) = self.checksum {
            put_checksum(out, checksum);
        }
        put_count(out, "copies", self.copies.len(), COPIES_MAX)?;
        self.copies.iter().for_each(|copy| copy.encode(out));
        if self.has_sender() {
            put_text(out, &self.sender);
        }
        put_count(out, "references", self.references.len(), usize::MAX)?;
        for reference in &self.references {
            put_byte(out, reference.copy);
            put_number(out, reference.source.0);
            put_number(out, reference.sequence);
        }
        Ok(())
    }

    /// Reads a head into this one, whose room is used again.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(&mut self, head: &[u8]) -> Result<(), HeadError> {
        self.clear();
        let mut decoder = Decoder::new(head);
        decoder.version("message record", VERSION)?;
        let flags = decoder.flags("a message", FLAGS)?;
        self.preserve = flags & FLAG_PRESERVE != 0;
        self.priority = decoder.byte("priority")?;
        self.arrived_ms = decoder.number("arrived_ms")?;
        self.incarnation = decoder.number("incarnation")?;
        self.sequence = decoder.number("sequence")?;
        for (bit, value) in [
            (FLAG_TRANSACTION, &mut self.transaction),
            (FLAG_TIME_TO_LIVE, &mut self.time_to_live_ms),
            (FLAG_DELAY, &mut self.delay_ms),
            (FLAG_UPLOADED, &mut self.message_bytes),
        ] {
            if flags & bit != 0 {
                *value = decoder.number("an optional field")?;
            }
        }
        if flags & FLAG_REFUSED != 0 {
            self.refused = decoder.ranges()?;
        }
        if flags & FLAG_CHECKSUM != 0 {
            self.checksum = Some(decoder.checksum("the body's checksum")?);
        }
        for _ in 0..decoder.count("copies", COPIES_MAX)? {
            self.copies.push(MessageCopy::decode(&mut decoder)?);
        }
        if self.has_sender() {
            self.sender = decoder.text("sender")?.into();
        }
        for _ in 0..decoder.count("references", usize::MAX)? {
            self.references.push(Reference {
                copy: decoder.byte("a reference's copy")?,
                source: SourceId(decoder.number("a reference's source")?),
                sequence: decoder.number("a reference's sequence")?,
            });
        }
        self.check()?;
        decoder.end("message record")
    }
}

impl MessageCopy {
    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.destination.0);
        let flags = flag(self.own_id.is_some(), COPY_OWN_ID)
            | flag(self.expiration_ms.is_some(), COPY_EXPIRATION)
            | flag(self.names_sender, COPY_SENDER);
        put_byte(out, flags);
        if let Some((incarnation, sequence)) = self.own_id {
            put_number(out, incarnation);
            put_number(out, sequence);
        }
        if let Some(expiration_ms) = self.expiration_ms {
            put_number(out, expiration_ms);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        let destination = DestinationId(decoder.number("a copy's destination")?);
        let flags = decoder.flags("a copy", COPY_OWN_ID | COPY_EXPIRATION | COPY_SENDER)?;
        let own_id = match flags & COPY_OWN_ID {
            0 => None,
            _ => Some((
                decoder.number("a copy's incarnation")?,
                decoder.number("a copy's sequence")?,
            )),
        };
        let expiration_ms = match flags & COPY_EXPIRATION {
            0 => None,
            _ => Some(decoder.number("a copy's expiration")?),
        };
        Ok(Self {
            destination,
            own_id,
            expiration_ms,
            names_sender: flags & COPY_SENDER != 0,
        })
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;
    use smallvec::smallvec;

    fn example() -> MessageHead {
        let mut refused = Ranges::default();
        refused.push(40, 40);
        MessageHead {
            priority: 7,
            preserve: true,
            arrived_ms: 1_700_000_000_000,
            time_to_live_ms: 5_000,
            delay_ms: 250,
            incarnation: 0x0100_0001,
            sequence: 42,
            transaction: 9,
            message_bytes: 33,
            refused,
            checksum: Some(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            sender: Box::default(),
            copies: smallvec![
                MessageCopy {
                    destination: DestinationId(16),
                    own_id: None,
                    expiration_ms: None,
                    names_sender: false
                },
                MessageCopy {
                    destination: DestinationId(17),
                    own_id: Some((3, 4)),
                    expiration_ms: Some(0),
                    names_sender: false
                },
            ],
            references: smallvec![
                Reference {
                    copy: 0,
                    source: SourceId(16),
                    sequence: 1
                },
                Reference {
                    copy: 1,
                    source: SourceId(17),
                    sequence: 1_000_000
                },
            ],
        }
    }

    #[test]
    fn a_head_reads_back_as_it_was_written() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes).unwrap();
        let mut read = MessageHead::default();
        read.decode(&bytes).unwrap();
        assert_eq!(read, example());
    }

    /// [`example`] as it is written, and as it was before there were checksums.
    const WRITTEN: &str = "017f0780d095ffbc31818080082a098827fa01210128287766554433221100ffeeddccbbaa9988\
                           0210001103030400020010010111c0843d";
    const WRITTEN_BEFORE: &str = "013f0780d095ffbc31818080082a098827fa01210128280210001103030400020010010111c0843d";

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn a_head_is_the_same_bytes_for_ever() {
        let before = MessageHead {
            checksum: None,
            ..example()
        };
        for (head, hex) in [(example(), WRITTEN), (before, WRITTEN_BEFORE)] {
            let (mut bytes, mut read) = (Vec::new(), MessageHead::default());
            head.encode(&mut bytes).unwrap();
            assert_eq!(bytes, bytes_of(hex));
            assert_eq!((read.decode(&bytes), read), (Ok(()), head));
        }
    }

    #[test]
    fn a_head_whose_bridged_copy_names_its_sender_is_the_same_bytes_for_ever() {
        let mut named = example();
        named.copies[1].names_sender = true;
        named.sender = "ada".into();
        let (mut bytes, mut read) = (Vec::new(), MessageHead::default());
        named.encode(&mut bytes).unwrap();
        // The copy's flags have 4 more, and the name stands behind the copies.
        assert_eq!(bytes, bytes_of(&WRITTEN.replace("1103030400", "110703040003616461")));
        assert_eq!((read.decode(&bytes), &read), (Ok(()), &named));
        assert_eq!((read.sender(0), read.sender(1), read.sender(2)), ("", "ada", ""));
        // What is read next has no name left of it.
        read.decode(&bytes_of(WRITTEN)).unwrap();
        assert_eq!(read, example());
    }

    #[test]
    fn a_copy_that_names_a_sender_without_a_name_is_refused() {
        let bytes = bytes_of(&WRITTEN.replace("1103030400", "110703040000"));
        let read = MessageHead::default().decode(&bytes);
        assert_eq!(read, Err(HeadError::Range("sender")));
    }

    // Out of the log in `tests/baselines/store-1.tar.xz`: a plain one, one with a life, one of a transaction.
    #[test]
    fn a_head_of_a_kept_store_has_no_checksum_and_gets_none() {
        for hex in [
            "010003d3aa8db6a03482808008ce02011200010012ce02",
            "01040488ab8db6a034848080080280c0caf384a30201150001001501",
            "0102048cab8db6a0348580800801818080801001170001001701",
        ] {
            // What another message left in it is not taken for this one's.
            let (mut bytes, mut read) = (Vec::new(), example());
            read.decode(&bytes_of(hex)).unwrap();
            assert_eq!((read.checksum, read.copies.len(), read.references.len()), (None, 1, 1));
            read.encode(&mut bytes).unwrap();
            assert_eq!(bytes, bytes_of(hex));
        }
    }

    #[test]
    fn a_head_that_is_cleared_has_no_checksum() {
        let mut head = example();
        head.clear();
        assert_eq!(head, MessageHead::default());
        assert_eq!(head.checksum, None);
    }

    #[test]
    fn a_payload_is_split_where_the_message_ends() {
        let payload = [7; 40];
        assert_eq!(example().split(&payload), (&payload[..33], &payload[33..]));
        assert_eq!(MessageHead::default().split(&payload), (&payload[..], &[][..]));
    }

    #[test]
    fn an_ordinary_queue_message_has_a_short_head() {
        let mut head = MessageHead {
            arrived_ms: 1_700_000_000_000,
            incarnation: 0x0100_0001,
            sequence: 100_000,
            checksum: Some(0),
            copies: smallvec![MessageCopy {
                destination: DestinationId(20),
                own_id: None,
                expiration_ms: None,
                names_sender: false
            }],
            references: smallvec![Reference {
                copy: 0,
                source: SourceId(20),
                sequence: 100_000
            }],
            ..MessageHead::default()
        };
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 41, "16 of them are the checksum");
        bytes.clear();
        head.checksum = None;
        head.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), 25, "as in memory");
    }

    #[test]
    fn a_bridged_copy_has_its_own_id_and_the_destinations_expiration_is_not_told() {
        let head = example();
        assert_eq!(head.id(0), (0x0100_0001, 42));
        assert_eq!(head.id(1), (3, 4));
        assert_eq!(head.told_expiration_ms(0), 1_700_000_005_000);
        assert_eq!((head.expires_ms(1), head.told_expiration_ms(1)), (0, 0));
    }

    #[test]
    fn every_cut_is_refused() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes).unwrap();
        for length in 0..bytes.len() {
            assert!(
                MessageHead::default().decode(&bytes[..length]).is_err(),
                "cut at {length}"
            );
        }
        bytes.push(0);
        assert_eq!(
            MessageHead::default().decode(&bytes),
            Err(HeadError::Trailing("message record"))
        );
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MessageHead::default().decode(&bytes);
        }
    }
}
