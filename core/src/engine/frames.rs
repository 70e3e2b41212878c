//! Frames as they come from clients, read by hand: the outer frame of all, and the bodies of those that come once for
//! each message or batch of messages (publish, acknowledge, release, credit). All others are decoded by prost.
//!
//! Nothing is copied and nothing is allocated but the ranges of acknowledgements, which go into a vector that the caller
//! lends. Unknown fields are passed over, as protobuf asks of readers; a field with the wrong type is an error.

use crate::proto::client_frame;
use crate::wire::{Payload, Reader, WireError};
use prost::Message as _;
use rustc_hash::FxHashMap;

/// Field numbers of `ClientFrame.frame` that are read by hand.
pub const PUBLISH: u32 = 3;
/// `open_producer`.
pub const OPEN_PRODUCER: u32 = 21;
/// `close_producer`.
pub const CLOSE_PRODUCER: u32 = 22;
/// `transact`.
pub const TRANSACT: u32 = 26;
/// `upload`.
pub const UPLOAD: u32 = 31;
/// See [`PUBLISH`].
pub const ACKNOWLEDGE: u32 = 4;
/// See [`PUBLISH`].
pub const CREDIT: u32 = 5;
/// See [`PUBLISH`].
pub const RELEASE: u32 = 6;
/// The greeting's.
pub const HELLO: u32 = 16;
/// Of the liveness signal, the one frame that never waits for a ticket.
pub const HEARTBEAT: u32 = 18;

/// One `ClientFrame`, its body still encoded.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The session's number; 0: the connection.
    pub session: u32,
    /// The request's number; 0: only errors are answered.
    pub request: u32,
    /// The field number of the body; 0: there is none.
    pub kind: u32,
    /// The encoded body.
    pub body: &'a [u8],
}

/// Reads a varint field that is 32 bits wide; protobuf cuts off what is above.
fn narrow(value: u64) -> u32 {
    value as u32
}

impl<'a> Frame<'a> {
    /// Reads the outer frame.
    ///
    /// # Errors
    /// A [`WireError`] if the bytes are not protobuf or a field has the wrong type.
    #[inline]
    pub fn parse(input: &'a [u8]) -> Result<Self, WireError> {
        let mut frame = Frame {
            session: 0,
            request: 0,
            kind: 0,
            body: &[],
        };
        let mut reader = Reader::new(input);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => frame.session = narrow(field.varint()?),
                2 => frame.request = narrow(field.varint()?),
                3..=6 | 16..=33 => {
                    frame.kind = field.number;
                    frame.body = field.bytes()?;
                }
                _ => {}
            }
        }
        Ok(frame)
    }

    /// Decodes the body of a frame that is not read by hand; `None` if there is no body that is known.
    ///
    /// # Errors
    /// prost's words for what is wrong.
    pub fn decode(&self) -> Result<Option<client_frame::Frame>, prost::DecodeError> {
        use client_frame::Frame as F;
        macro_rules! decoded {
            ($($number:literal => $variant:ident),* $(,)?) => {
                match self.kind {
                    $($number => F::$variant(prost::Message::decode(self.body)?),)*
                    _ => return Ok(None),
                }
            };
        }
        Ok(Some(decoded! {
            16 => Hello, 17 => Goodbye, 18 => Heartbeat, 19 => OpenSession, 20 => CloseSession, 21 => OpenProducer,
            22 => CloseProducer, 23 => OpenConsumer, 24 => CloseConsumer, 25 => Recover, 26 => Transact,
            27 => Unsubscribe, 28 => Lookup, 29 => CreateTemporary, 30 => DeleteTemporary, 31 => Upload, 32 => Start,
            33 => HandedOut,
        }))
    }
}

/// A `Publish`, its messages still encoded.
#[derive(Debug, Clone, Copy)]
pub struct PublishFrame<'a> {
    /// The producer's number.
    pub producer: u32,
    /// The number of the first message.
    pub first_sequence: u64,
    /// The encoded `Destination` of an anonymous producer's messages.
    pub destination: Option<&'a [u8]>,
    /// The transaction's number; 0: none.
    pub transaction: u64,
    /// How many messages there are.
    pub count: u64,
    body: &'a [u8],
}

impl<'a> PublishFrame<'a> {
    /// Reads the fields, and counts the messages without looking into them.
    ///
    /// # Errors
    /// A [`WireError`] if the bytes are not protobuf or a field has the wrong type.
    #[inline]
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut frame = PublishFrame {
            producer: 0,
            first_sequence: 0,
            destination: None,
            transaction: 0,
            count: 0,
            body,
        };
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => frame.producer = narrow(field.varint()?),
                2 => frame.first_sequence = field.varint()?,
                3 => {
                    field.bytes()?;
                    frame.count += 1;
                }
                4 => frame.destination = Some(field.bytes()?),
                5 => frame.transaction = field.varint()?,
                _ => {}
            }
        }
        Ok(frame)
    }

    /// The size of the encoded body.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.body.len() as u64
    }

    /// The encoded messages in order.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new(self.body);
        std::iter::from_fn(move || {
            // `parse` has read all of it without an error before.
            while let Ok(Some(field)) = reader.next_field() {
                if let (3, Payload::Bytes(bytes)) = (field.number, field.payload) {
                    return Some(bytes);
                }
            }
            None
        })
    }
}

/// The ranges of one source, as a slice of the vector that [`SetsFrame::parse`] filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckSet {
    /// The queue or subscription.
    pub source: u64,
    /// The epoch of the deliveries; 0: the current one.
    pub epoch: u64,
    /// Where its ranges stand in the vector of ranges.
    pub ranges: std::ops::Range<usize>,
}

/// Why acknowledged ranges cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangesError {
    /// Not protobuf, or a field of the wrong type.
    Wire(WireError),
    /// A range that ends before it begins, or begins with 0.
    Range {
        /// Its first number.
        first: u64,
        /// Its last number.
        last: u64,
    },
}

impl From<WireError> for RangesError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// An `Ack` or a `Release`: both carry sets of ranges and numbers.
#[derive(Debug, Default)]
pub struct SetsFrame {
    /// The sets, in the order in which they came.
    pub sets: Vec<AckSet>,
    /// First and last number of each range, all sets after one another.
    pub ranges: Vec<(u64, u64)>,
    /// `Ack.transaction`, or `Release.seen` as 0 or 1.
    pub second: u64,
    /// `Release.delay_ms`.
    pub third: u64,
}

impl SetsFrame {
    /// Reads a frame into this one, reusing its memory.
    ///
    /// # Errors
    /// A [`RangesError`].
    pub fn parse(&mut self, body: &[u8]) -> Result<(), RangesError> {
        self.sets.clear();
        self.ranges.clear();
        self.second = 0;
        self.third = 0;
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => self.set(field.bytes()?)?,
                2 => self.second = field.varint()?,
                3 => self.third = field.varint()?,
                _ => {}
            }
        }
        self.unite();
        Ok(())
    }

    /// Makes one set of those that name the same source and epoch, so that a source is looked through once for a frame.
    fn unite(&mut self) {
        let mut places = FxHashMap::default();
        let names_one_again = match self.sets.as_slice() {
            [] | [_] => false,
            [one, other] => (one.source, one.epoch) == (other.source, other.epoch),
            sets => sets
                .iter()
                .any(|set| places.insert((set.source, set.epoch), 0).is_some()),
        };
        if !names_one_again {
            return;
        }
        places.clear();
        let mut united: Vec<(AckSet, Vec<(u64, u64)>)> = Vec::new();
        for set in self.sets.drain(..) {
            let named = &self.ranges[set.ranges.clone()];
            match places
                .get(&(set.source, set.epoch))
                .and_then(|at: &usize| united.get_mut(*at))
            {
                Some((_, ranges)) => ranges.extend(named),
                None => {
                    places.insert((set.source, set.epoch), united.len());
                    united.push((set, named.to_vec()));
                }
            }
        }
        self.ranges.clear();
        for (mut set, ranges) in united {
            let start = self.ranges.len();
            self.ranges.extend(ranges);
            set.ranges = start..self.ranges.len();
            self.sets.push(set);
        }
    }

    fn set(&mut self, body: &[u8]) -> Result<(), RangesError> {
        let start = self.ranges.len();
        let mut set = AckSet {
            source: 0,
            epoch: 0,
            ranges: start..start,
        };
        let mut reader = Reader::new(body);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => set.source = field.varint()?,
                2 => self.ranges.push(range(field.bytes()?)?),
                3 => set.epoch = field.varint()?,
                _ => {}
            }
        }
        set.ranges.end = self.ranges.len();
        self.sets.push(set);
        Ok(())
    }
}

fn range(body: &[u8]) -> Result<(u64, u64), RangesError> {
    let (mut first, mut last) = (0, 0);
    let mut reader = Reader::new(body);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => first = field.varint()?,
            2 => last = field.varint()?,
            _ => {}
        }
    }
    checked_range(first, last).ok_or(RangesError::Range { first, last })
}

/// Both ends of a range, where a `last` of 0 stands for `first`; `None` for one that names nothing.
#[must_use]
pub fn checked_range(first: u64, last: u64) -> Option<(u64, u64)> {
    let last = if last == 0 { first } else { last };
    (first != 0 && first <= last).then_some((first, last))
}

/// Decodes the small `Destination` of an anonymous publish.
///
/// # Errors
/// prost's words for what is wrong.
pub fn destination(body: &[u8]) -> Result<crate::proto::Destination, prost::DecodeError> {
    crate::proto::Destination::decode(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;

    #[test]
    fn a_publish_reads_as_prost_wrote_it() {
        let publish = proto::Publish {
            producer: 7,
            first_sequence: 11,
            messages: vec![
                bytes::Bytes::from_static(b"one"),
                bytes::Bytes::new(),
                bytes::Bytes::from_static(b"three"),
            ],
            destination: Some(proto::Destination {
                kind: 1,
                name: "orders".into(),
            }),
            transaction: 5,
        };
        let frame = proto::ClientFrame {
            session: 3,
            request: 4,
            frame: Some(client_frame::Frame::Publish(publish)),
        };
        let encoded = frame.encode_to_vec();
        let outer = Frame::parse(&encoded).unwrap();
        assert_eq!((outer.session, outer.request, outer.kind), (3, 4, PUBLISH));
        let inner = PublishFrame::parse(outer.body).unwrap();
        assert_eq!(
            (inner.producer, inner.first_sequence, inner.transaction, inner.count),
            (7, 11, 5, 3)
        );
        assert_eq!(destination(inner.destination.unwrap()).unwrap().name, "orders");
        assert_eq!(inner.messages().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
    }

    #[test]
    fn sets_of_one_source_and_epoch_are_one() {
        let set = |source, epoch, first| proto::AckSet {
            source,
            epoch,
            ranges: vec![proto::SequenceRange { first, last: first + 1 }],
        };
        let ack = |sets| proto::Ack { sets, transaction: 0 }.encode_to_vec();
        let read = |sets| {
            let mut frame = SetsFrame::default();
            frame.parse(&ack(sets)).unwrap();
            let ranges = |set: &AckSet| frame.ranges[set.ranges.clone()].to_vec();
            frame
                .sets
                .iter()
                .map(|set| (set.source, set.epoch, ranges(set)))
                .collect::<Vec<_>>()
        };
        let apart = [(9, 2, vec![(1, 2)]), (8, 2, vec![(3, 4)])];
        assert_eq!(read(vec![set(9, 2, 1), set(8, 2, 3)]), apart);
        assert_eq!(read(vec![set(9, 2, 1), set(9, 2, 7)]), [(9, 2, vec![(1, 2), (7, 8)])]);
        let three = vec![set(9, 2, 1), set(9, 3, 5), set(8, 2, 3), set(9, 2, 7)];
        let expected = [(9, 2, vec![(1, 2), (7, 8)]), (9, 3, vec![(5, 6)]), (8, 2, vec![(3, 4)])];
        assert_eq!(read(three), expected);
    }

    #[test]
    fn acknowledged_ranges_read_as_prost_wrote_them_and_bad_ones_are_refused() {
        let sets = |first, last| proto::Ack {
            sets: vec![proto::AckSet {
                source: 9,
                ranges: vec![proto::SequenceRange { first, last }],
                epoch: 2,
            }],
            transaction: 1,
        };
        let mut frame = SetsFrame::default();
        frame.parse(&sets(3, 0).encode_to_vec()).unwrap();
        assert_eq!(
            frame.sets,
            [AckSet {
                source: 9,
                epoch: 2,
                ranges: 0..1
            }]
        );
        assert_eq!((frame.ranges.as_slice(), frame.second), (&[(3, 3)][..], 1));
        for (first, last) in [(0, 4), (5, 4)] {
            assert_eq!(
                frame.parse(&sets(first, last).encode_to_vec()),
                Err(RangesError::Range { first, last })
            );
        }
    }
}
