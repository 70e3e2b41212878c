//! Every kind of record, over the whole range of every field: what is written is read as it was, and what cannot be read is
//! not written.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::log::Position;
use crate::sim::seeds::{CASES, cases};
use crate::state::catalogue_record::{
    Decision, DestinationHead, SubscriptionHead, TransactionHead, WatermarkHead, kinds,
};
use crate::state::checkpoint_record::{ChunkHead, Item};
use crate::state::codec::{Decoder, HeadError};
use crate::state::message_record::COPIES_MAX;
use crate::state::names::NameHead;
use crate::state::records::check;
use crate::state::refusals::{RANGES_MAX, Ranges};
use crate::state::starts::StartHead;
use crate::state::terminal_record::{MoveHead, TERMINAL_MESSAGES_MAX, TerminalHead};

/// Where numbers and bytes change their length or their sign.
const NUMBERS: [u64; 14] = [
    0,
    1,
    127,
    128,
    255,
    256,
    16_383,
    16_384,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
const BYTES: [u8; 6] = [0, 1, 127, 128, 254, 255];

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![select(&NUMBERS[..]), any::<u64>()]
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![select(&BYTES[..]), any::<u8>()]
}

fn priority() -> impl Strategy<Value = u8> {
    0..=9_u8
}

fn text() -> impl Strategy<Value = String> {
    let long = [0, 1, 127, 128, 255, 256, 5_000];
    prop_oneof![".{0,40}", select(long.to_vec()).prop_map(|length| "é".repeat(length))]
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let steps = vec((1..1_000_u64, 0..1_000_u64), 0..RANGES_MAX);
    (steps, prop_oneof![Just(0), number()]).prop_map(|(steps, unknown)| {
        let mut ranges = Ranges::default();
        let mut at: u64 = 0;
        for (gap, length) in steps {
            ranges.push(at + gap, at + gap + length);
            at += gap + length + 1;
        }
        ranges.forget_up_to(unknown);
        ranges
    })
}

fn copy() -> impl Strategy<Value = MessageCopy> {
    let own_id = prop_oneof![Just(None), (number(), number()).prop_map(Some)];
    let expiration_ms = prop_oneof![Just(None), number().prop_map(Some)];
    (number(), own_id, expiration_ms, any::<bool>()).prop_map(|(destination, own_id, expiration_ms, names_sender)| {
        MessageCopy {
            destination: DestinationId(destination),
            own_id,
            expiration_ms,
            names_sender,
        }
    })
}

fn message() -> impl Strategy<Value = MessageHead> {
    let numbers = [(); 7].map(|()| number());
    let copies = prop_oneof![vec(copy(), 1..4), vec(copy(), COPIES_MAX - 2..=COPIES_MAX)];
    let references = vec((any::<prop::sample::Index>(), number(), number()), 0..6);
    let sums = [0, 1, u128::from(u64::MAX), 1 << 64, 1 << 127, u128::MAX];
    let checksum = prop::option::of(prop_oneof![select(sums.to_vec()), any::<u128>()]);
    let said = (priority(), any::<bool>(), ranges(), checksum, text());
    (numbers, said, copies, references).prop_map(
        |(numbers, (priority, preserve, refused, checksum, user), copies, references)| MessageHead {
            priority,
            preserve,
            arrived_ms: numbers[0],
            time_to_live_ms: numbers[1],
            delay_ms: numbers[2],
            incarnation: numbers[3],
            sequence: numbers[4],
            transaction: numbers[5],
            message_bytes: numbers[6],
            refused,
            checksum,
            sender: if copies.iter().any(|copy| copy.names_sender) {
                format!("u{user}").into()
            } else {
                Box::default()
            },
            references: references
                .into_iter()
                .map(|(index, source, sequence)| Reference {
                    copy: index.index(copies.len()) as u8,
                    source: SourceId(source),
                    sequence,
                })
                .collect(),
            copies: copies.into_iter().collect(),
        },
    )
}

fn reason() -> impl Strategy<Value = Reason> {
    use Reason::*;
    select(vec![
        Acknowledged,
        Expired,
        Discarded,
        Purged,
        MaxRedelivery,
        Moved,
        Dead,
        Damaged,
    ])
}

fn terminal() -> impl Strategy<Value = TerminalHead> {
    let counts = [0, 1, 2, 127, 128, 129, TERMINAL_MESSAGES_MAX];
    let begin = prop_oneof![Just(1), number().prop_map(|first| first / 2)];
    let parts = (begin, select(counts.to_vec()), 1..4_u64, number());
    (reason(), number(), number(), text(), number(), parts).prop_map(
        |(reason, source, time_ms, actor, transaction, (begin, count, step, position))| {
            let mut head = TerminalHead::new(reason, SourceId(source), time_ms, &actor);
            head.transaction = transaction;
            for index in 0..count as u64 {
                head.add(begin + index * step, Position(((position / 2) & !7) + index * 4096));
                head.add_target(Position(((position / 2) & !7) + index * 4096 + 8));
            }
            head.finish();
            head
        },
    )
}

fn moved() -> impl Strategy<Value = MoveHead> {
    let numbers = [(); 8].map(|()| number());
    let bytes = prop_oneof![Just(0), Just(127), Just(128), Just(u32::MAX), any::<u32>()];
    (reason(), priority(), byte(), numbers, bytes, text()).prop_map(
        |(reason, priority, copy, numbers, bytes, actor)| MoveHead {
            reason,
            time_ms: numbers[0],
            actor,
            from: (SourceId(numbers[1]), numbers[2]),
            to: (SourceId(numbers[3]), numbers[4]),
            position: Position(numbers[5]),
            bytes,
            priority,
            copy,
            origin: DestinationId(numbers[6]),
            previous: Position(numbers[7]),
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::Queue, Kind::Topic])
}

fn destination() -> impl Strategy<Value = DestinationHead> {
    let origin = select(vec![Origin::Static, Origin::Dynamic, Origin::Temporary, Origin::System]);
    let names = select(vec!["a", "flights.JFK", "$sys.undelivered"]);
    (any::<bool>(), number(), kind(), names, number(), origin, text()).prop_map(
        |(deleted, id, kind, name, generation, origin, actor)| DestinationHead {
            deleted,
            id: DestinationId(id),
            kind,
            name: name.to_owned(),
            generation,
            origin,
            actor,
        },
    )
}

fn subscription() -> impl Strategy<Value = SubscriptionHead> {
    let flags = [(); 4].map(|()| any::<bool>());
    let selectors = select(vec!["", "delay > 60", "name LIKE 'é%'"]);
    let patterns = select(vec!["flights.>", "flights.*", "a"]);
    (number(), flags, text(), text(), patterns, selectors, text()).prop_map(
        |(id, [deleted, shared, no_local, is_static], client_id, name, pattern, selector, actor)| SubscriptionHead {
            deleted,
            id: SourceId(id),
            client_id,
            name,
            pattern: pattern.to_owned(),
            selector: selector.to_owned(),
            shared,
            no_local,
            is_static,
            actor,
        },
    )
}

fn transaction() -> impl Strategy<Value = TransactionHead> {
    let decision = select(vec![Decision::Prepared, Decision::Committed, Decision::RolledBack]);
    let format = prop_oneof![Just(i32::MIN), Just(-1), Just(0), Just(i32::MAX), any::<i32>()];
    let part = || prop_oneof![vec(byte(), 0..=64), vec(byte(), 64)];
    let xid = (format, part(), part()).prop_map(|(format, global, branch)| Xid { format, global, branch });
    (number(), decision, prop::option::of(xid), number()).prop_map(|(transaction, decision, xid, time_ms)| {
        TransactionHead {
            transaction,
            decision,
            xid,
            time_ms,
        }
    })
}

fn name_head() -> impl Strategy<Value = NameHead> {
    (text(), text(), number(), number(), number()).prop_map(|(user, name, destination, incarnation, opening)| {
        NameHead {
            user,
            name,
            destination: DestinationId(destination),
            incarnation,
            opening,
        }
    })
}

fn exported() -> impl Strategy<Value = Exported> {
    (number(), number(), byte()).prop_map(|(number, position, byte)| Exported {
        number,
        position: Position(position),
        manifest: [byte; MANIFEST_HASH_BYTES],
    })
}

fn note() -> impl Strategy<Value = Note> {
    let told = prop_oneof![
        (number(), text(), text()).prop_map(|(incarnation, user, client_id)| Told::Opened {
            incarnation,
            user,
            client_id,
        }),
        number().prop_map(|objects| Told::Configured { objects }),
        (any::<bool>(), number(), number(), prop::option::of(number()), text()).prop_map(
            |(torn, from, bytes, records, why)| Told::Lost {
                loss: if torn { Loss::Torn } else { Loss::Dropped },
                from: Position(from),
                bytes,
                records,
                why,
            }
        ),
    ];
    (number(), told).prop_map(|(time_ms, told)| Note { time_ms, told })
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        (number(), number(), number()).prop_map(|(next_id, generations, forgotten_up_to)| Item::Counters {
            next_id,
            generations,
            forgotten_up_to
        }),
        destination().prop_map(Item::Destination),
        subscription().prop_map(Item::Subscription),
        (number(), number(), number()).prop_map(|(source, next_sequence, watermark)| Item::Source {
            source: SourceId(source),
            next_sequence,
            watermark
        }),
        (any::<bool>(), number(), number(), number()).prop_map(|(young, incarnation, destination, sequence)| {
            Item::Producer {
                young,
                incarnation,
                destination: DestinationId(destination),
                sequence,
            }
        }),
        (number(), kind()).prop_map(|(id, kind)| Item::Retired {
            id: DestinationId(id),
            kind,
            name: DestinationName::parse("flights.JFK").unwrap(),
        }),
        (number(), number(), ranges()).prop_map(|(incarnation, destination, ranges)| Item::Refused {
            incarnation,
            destination: DestinationId(destination),
            ranges,
        }),
        (number(), number()).prop_map(|(unseen, anywhere)| Item::RefusalsForgotten([unseen, anywhere])),
        (number(), number()).prop_map(|(epoch, id)| Item::Start { epoch, id }),
        byte().prop_map(|byte| Item::Secret([byte; SECRET_BYTES])),
        exported().prop_map(Item::Exported),
        number().prop_map(Item::Due),
        (name_head(), number()).prop_map(|(head, sequence)| Item::Name { head, sequence }),
        proptest::option::of(text()).prop_map(Item::NamesForgotten),
    ]
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn messages(head in message()) {
        let (mut bytes, mut read) = (Vec::new(), MessageHead::default());
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(read.decode(&bytes), Ok(()));
        prop_assert_eq!(read, head);
        prop_assert_eq!(check(kinds::MESSAGE, &bytes), Ok(()));
    }

    #[test]
    fn terminals(head in terminal()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::TERMINAL, &bytes), Ok(()));
        prop_assert_eq!(TerminalHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn moves(head in moved()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::MOVE, &bytes), Ok(()));
        prop_assert_eq!(MoveHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn destinations(head in destination()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::DESTINATION, &bytes), Ok(()));
        prop_assert_eq!(DestinationHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn subscriptions(head in subscription()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::SUBSCRIPTION, &bytes), Ok(()));
        prop_assert_eq!(SubscriptionHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn watermarks(source in number(), below in number()) {
        let head = WatermarkHead { source: SourceId(source), below };
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(check(kinds::WATERMARK, &bytes), Ok(()));
        prop_assert_eq!(WatermarkHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn starts(id in number(), byte in byte(), has_secret in any::<bool>()) {
        let head = StartHead { id, secret: has_secret.then_some([byte; SECRET_BYTES]) };
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(check(kinds::START, &bytes), Ok(()));
        prop_assert!(StartHead::decode(&bytes) == Ok(head));
    }

    #[test]
    fn names(head in name_head()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(check(kinds::PRODUCER_NAME, &bytes), Ok(()));
        prop_assert_eq!(NameHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn notes(head in note()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(Note::decode(&bytes), Ok(head));
        prop_assert_eq!(check(kinds::NOTE, &bytes), Ok(()));
    }

    #[test]
    fn exports(head in exported()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        prop_assert_eq!(Exported::decode(&bytes), Ok(head));
        prop_assert_eq!(check(kinds::EXPORTED, &bytes), Ok(()));
    }

    #[test]
    fn transactions(head in transaction()) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::TRANSACTION, &bytes), Ok(()));
        prop_assert_eq!(TransactionHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn checkpoints(number in number(), chunk in number(), is_last in any::<bool>(), items in vec(item(), 0..8)) {
        let head = ChunkHead { number, chunk, is_last };
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        items.iter().for_each(|item| item.encode(&mut bytes).unwrap());
        prop_assert_eq!(check(kinds::CHECKPOINT, &bytes), Ok(()));
        let mut decoder = Decoder::new(&bytes);
        prop_assert_eq!(ChunkHead::decode(&mut decoder), Ok(head));
        for item in items {
            prop_assert_eq!(Item::decode(&mut decoder), Ok(item));
        }
        prop_assert!(decoder.is_at_end());
    }

    #[test]
    fn arbitrary_bytes_never_panic(kind in 16..30_u8, bytes in vec(any::<u8>(), 0..200)) {
        let _ = check(kind, &bytes);
    }
}

#[test]
fn every_byte_and_every_number_at_a_boundary_reads_back() {
    for copy in 0..=u8::MAX {
        for number in NUMBERS {
            let head = MoveHead {
                reason: Reason::Moved,
                time_ms: number,
                actor: String::new(),
                from: (SourceId(number), number),
                to: (SourceId(number), number),
                position: Position(number),
                bytes: number as u32,
                priority: 9,
                copy,
                origin: DestinationId(number),
                previous: Position(number),
            };
            let mut bytes = Vec::new();
            head.encode(&mut bytes).unwrap();
            assert_eq!(MoveHead::decode(&bytes), Ok(head));
        }
    }
    let copies: smallvec::SmallVec<_> = (0..COPIES_MAX as u64)
        .map(|index| MessageCopy {
            destination: DestinationId(index),
            own_id: None,
            expiration_ms: None,
            names_sender: false,
        })
        .collect();
    for number in NUMBERS {
        let head = MessageHead {
            copies: copies.clone(),
            references: (0..COPIES_MAX)
                .map(|copy| Reference {
                    copy: copy as u8,
                    source: SourceId(number),
                    sequence: number,
                })
                .collect(),
            ..MessageHead::default()
        };
        let (mut bytes, mut read) = (Vec::new(), MessageHead::default());
        head.encode(&mut bytes).unwrap();
        read.decode(&bytes).unwrap();
        assert_eq!(read, head);
    }
}

#[test]
fn what_reading_refuses_writing_refuses() {
    let copy = MessageCopy {
        destination: DestinationId(16),
        own_id: None,
        expiration_ms: None,
        names_sender: false,
    };
    let reference = Reference {
        copy: 1,
        source: SourceId(16),
        sequence: 1,
    };
    let good = MessageHead {
        copies: smallvec::smallvec![copy; 2],
        references: smallvec::smallvec![reference],
        ..MessageHead::default()
    };
    let refused = |head: &MessageHead| head.encode(&mut Vec::new()).unwrap_err();
    let wrong = |change: fn(&mut MessageHead)| {
        let mut head = good.clone();
        change(&mut head);
        head
    };
    assert_eq!(refused(&wrong(|head| head.priority = 10)), HeadError::Range("priority"));
    let loose = wrong(|head| head.copies.truncate(1));
    assert_eq!(refused(&loose), HeadError::Range("a reference's copy"));
    let wide = wrong(|head| head.copies.resize(COPIES_MAX + 1, head.copies[0]));
    assert_eq!(refused(&wide), HeadError::Range("copies"));
    let nameless = wrong(|head| head.copies[1].names_sender = true);
    assert_eq!(refused(&nameless), HeadError::Range("sender"));
    let untold = wrong(|head| head.sender = "ada".into());
    assert_eq!(refused(&untold), HeadError::Range("sender"));
}

#[test]
fn what_does_not_ascend_is_not_written() {
    let terminal = |ranges: Vec<(u64, u64)>, targets: Vec<Position>| {
        let mut head = TerminalHead::new(Reason::Purged, SourceId(16), 0, "");
        (head.ranges, head.targets) = (ranges, targets);
        head.encode(&mut Vec::new())
    };
    assert_eq!(terminal(vec![(3, 4), (1, 2)], vec![]), Err(HeadError::Range("a range")));
    assert_eq!(terminal(vec![(4, 3)], vec![]), Err(HeadError::Range("a range")));
    assert_eq!(terminal(vec![], vec![Position(9)]), Err(HeadError::Range("a target")));
    assert_eq!(
        terminal(vec![], vec![Position(16), Position(8)]),
        Err(HeadError::Range("a target"))
    );
    let many = vec![(1, 1); TERMINAL_MESSAGES_MAX + 1];
    assert_eq!(terminal(many, vec![]), Err(HeadError::Range("ranges")));
}

#[test]
fn what_the_catalogue_refuses_is_not_written() {
    let xid = Xid {
        format: 1,
        global: vec![0; 65],
        branch: vec![],
    };
    let head = TransactionHead {
        transaction: 1,
        decision: Decision::Prepared,
        xid: Some(xid),
        time_ms: 0,
    };
    assert_eq!(head.encode(&mut Vec::new()), Err(HeadError::Range("xid")));
    let head = SubscriptionHead {
        pattern: "a".to_owned(),
        selector: "a selector that is none".to_owned(),
        ..SubscriptionHead::default()
    };
    assert_eq!(
        head.encode(&mut Vec::new()),
        Err(HeadError::Range("subscription selector"))
    );
    let head = DestinationHead {
        deleted: false,
        id: DestinationId(20),
        kind: Kind::Queue,
        name: String::new(),
        generation: 1,
        origin: Origin::Static,
        actor: String::new(),
    };
    assert_eq!(head.encode(&mut Vec::new()), Err(HeadError::Range("destination name")));
}

#[test]
fn a_flag_that_is_not_known_is_refused_by_name() {
    let mut bytes = Vec::new();
    MessageHead::default().encode(&mut bytes).unwrap();
    bytes[1] |= 128;
    assert_eq!(
        MessageHead::default().decode(&bytes),
        Err(HeadError::Flag {
            field: "a message",
            unknown: 128
        })
    );
}

#[test]
fn a_checkpoint_fits_the_records_that_the_log_takes() {
    let mut bench = Bench::new();
    for index in 0..3_000 {
        let name = DestinationName::parse(&format!("{}.{index}", "long".repeat(12))).unwrap();
        bench
            .state()
            .ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default())
            .unwrap();
        if index % 200 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    bench.restart();
    assert_eq!(bench.state().catalogue().destinations().count(), 3_001);
}
