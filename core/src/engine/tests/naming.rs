//! Producers that an application names: a program that was started again sends again, and each message is stored once.

use super::*;
use crate::proto::reply::Result as Answered;

impl Bench {
    /// Opens a producer; what is answered.
    pub(super) fn open(&mut self, open: proto::OpenProducer) -> Answered {
        self.frames.clear();
        let frame = proto::ClientFrame {
            session: 1,
            request: 77,
            frame: Some(Sent::OpenProducer(open)),
        };
        let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
        let stream = self.stream;
        self.engine().handle(stream, &batch);
        self.settle();
        let answer = self.frames.iter().find_map(|frame| match &frame.frame {
            Some(Got::Reply(reply)) if reply.request == 77 => reply.result.clone(),
            _ => None,
        });
        answer.expect("an answer")
    }

    /// A program that was started, and names its producer.
    fn program(&mut self, name: &str) -> proto::ProducerOpened {
        self.connect();
        opened(self.open(named(name)))
    }

    /// Why the producer of an earlier program was closed.
    fn told(&self) -> Vec<ErrorCode> {
        let closed = self.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::ProducerClosed(closed)) => Some(closed.reason.as_ref()?.code()),
            _ => None,
        });
        closed.collect()
    }
}

fn named(name: &str) -> proto::OpenProducer {
    proto::OpenProducer {
        producer: 1,
        destination: Some(orders()),
        name: name.to_owned(),
        ..proto::OpenProducer::default()
    }
}

fn opened(answer: Answered) -> proto::ProducerOpened {
    match answer {
        Answered::ProducerOpened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: &Answered) -> Option<(ErrorCode, &str)> {
    match answer {
        Answered::Error(error) => Some((error.code(), error.subject.as_str())),
        _ => None,
    }
}

// covers: EMS-MSG-E01
#[test]
fn a_program_that_is_started_again_sends_again_and_is_stored_once() {
    let mut bench = Bench::new(Properties::default());
    let first = bench.program("import");
    assert_eq!((first.last_sequence, first.credit.unwrap().sequence_limit), (0, 65_536));
    (1..=3).for_each(|sequence| bench.publish(sequence, "a"));
    for restart in [false, true, true] {
        if restart {
            bench.start();
        }
        let again = bench.program("import");
        assert_eq!((again.incarnation, again.last_sequence), (first.incarnation, 3));
        assert_eq!(again.message_id_prefix, first.message_id_prefix);
        // All of it, under the same numbers.
        let from_the_first = proto::OpenProducer {
            first_unconfirmed: 1,
            ..named("import")
        };
        bench.connect();
        opened(bench.open(from_the_first));
        bench.frames.clear();
        (1..=3).for_each(|sequence| bench.publish(sequence, "a"));
        assert_eq!((bench.confirmed(), bench.held()), (vec![1, 2, 3], Some(3)));
    }
    // What follows on.
    let again = bench.program("import");
    bench.frames.clear();
    bench.publish(again.last_sequence + 1, "b");
    assert_eq!((bench.confirmed(), bench.held()), (vec![4], Some(4)));
    // Another name, and nobody's.
    assert_eq!(bench.program("export").last_sequence, 0);
    assert_eq!(bench.program("").last_sequence, 0);
}

#[test]
fn a_number_that_was_refused_is_stored_when_its_program_sends_it_again() {
    let mut bench = Bench::new(limited());
    bench.program("import");
    bench.publish(1, "a");
    bench.publish(2, "refused");
    bench.engine().purge_queue("orders").unwrap();
    bench.publish(3, "c");
    bench.engine().purge_queue("orders").unwrap();
    bench.settle();
    bench.start();
    bench.connect();
    let from_the_second = proto::OpenProducer {
        first_unconfirmed: 2,
        ..named("import")
    };
    assert_eq!(opened(bench.open(from_the_second)).last_sequence, 3);
    bench.frames.clear();
    bench.publish(2, "refused");
    bench.publish(3, "c");
    assert_eq!((bench.confirmed(), bench.held()), (vec![2, 3], Some(1)));
}

#[test]
fn the_highest_number_is_told_when_it_is_durable() {
    let mut bench = Bench::new(Properties::default());
    bench.program("import");
    let first = bench.stream;
    bench.connect();
    let second = std::mem::replace(&mut bench.stream, first);
    bench.publish_in(1, 0);
    bench.stream = second;
    bench.frames.clear();
    let frame = proto::ClientFrame {
        session: 1,
        request: 77,
        frame: Some(Sent::OpenProducer(named("import"))),
    };
    let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
    bench.engine().handle(second, &batch);
    // What there is to tell before anything is written.
    for stream in bench.engine().poll().ready {
        while let Some(bytes) = bench.engine().take_output(stream, 1 << 20) {
            bench
                .frames
                .extend(proto::ServerBatch::decode(bytes.as_slice()).unwrap().frames);
        }
    }
    let is_answered = |bench: &Bench| {
        bench
            .frames
            .iter()
            .any(|frame| matches!(&frame.frame, Some(Got::Reply(reply)) if reply.request == 77))
    };
    assert!(!is_answered(&bench), "a crash now would take what it tells of");
    bench.settle();
    assert!(is_answered(&bench));
}

#[test]
fn the_later_of_two_programs_takes_over_and_the_earlier_is_told_and_does_not_come_back() {
    let mut bench = Bench::new(Properties::default());
    let first = bench.program("import");
    bench.publish(1, "a");
    let earlier = bench.stream;
    let second = bench.program("import");
    assert_eq!(bench.told(), [ErrorCode::Conflict]);
    assert_ne!(first.token, second.token);
    bench.publish(2, "b");
    // What the earlier one still sends is nobody's, and takes no number.
    let later = std::mem::replace(&mut bench.stream, earlier);
    bench.frames.clear();
    bench.publish(3, "of the earlier");
    assert_eq!(bench.rejected(), [(3, ErrorCode::Closed)]);
    let resume = |opened: &proto::ProducerOpened| proto::OpenProducer {
        incarnation: opened.incarnation,
        first_unconfirmed: 2,
        token: opened.token.clone(),
        ..named("import")
    };
    assert_eq!(
        refused(&bench.open(resume(&first))),
        Some((ErrorCode::Conflict, "name"))
    );
    assert!(bench.told().is_empty(), "who has it keeps it");
    // Nor without its name, as one of those that have none.
    let plain = proto::OpenProducer {
        name: String::new(),
        ..resume(&second)
    };
    assert_eq!(
        refused(&bench.open(plain)),
        Some((ErrorCode::UnknownProducer, "incarnation"))
    );
    bench.stream = later;
    bench.frames.clear();
    bench.publish(3, "c");
    assert_eq!((bench.confirmed(), bench.held()), (vec![3], Some(3)));
    // The later one's link breaks: it goes on, before and after a start of the broker.
    for restart in [false, true] {
        if restart {
            bench.start();
        }
        bench.connect();
        let resumed = opened(bench.open(resume(&second)));
        assert_eq!((resumed.last_sequence, &resumed.token), (3, &second.token));
    }
}

#[test]
fn a_name_belongs_to_its_user() {
    let mut bench = Bench::new(Properties::default());
    let mine = bench.program("import");
    bench.publish(1, "mine");
    bench.user = "you".to_owned();
    let yours = bench.program("import");
    assert_ne!(mine.incarnation, yours.incarnation);
    assert_eq!(
        (yours.last_sequence, bench.told()),
        (0, vec![]),
        "nobody is pushed out by another user"
    );
    bench.publish(1, "yours");
    assert_eq!(bench.held(), Some(2));
    let stolen = proto::OpenProducer {
        incarnation: mine.incarnation,
        first_unconfirmed: 1,
        token: mine.token,
        ..named("import")
    };
    bench.connect();
    assert_eq!(refused(&bench.open(stolen)), Some((ErrorCode::UnknownProducer, "name")));
}

#[test]
fn a_name_that_cannot_be_had_is_refused_and_nothing_is_kept_of_it() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    let longest = "ü".repeat(255);
    for (open, code) in [
        (named(&format!("{longest}x")), ErrorCode::InvalidName),
        (named("a\nb"), ErrorCode::InvalidName),
        (
            proto::OpenProducer {
                destination: None,
                ..named("import")
            },
            ErrorCode::InvalidArgument,
        ),
        (
            proto::OpenProducer {
                left_out: vec![proto::SequenceRange { first: 2, last: 3 }],
                ..named("import")
            },
            ErrorCode::InvalidArgument,
        ),
    ] {
        assert_eq!(refused(&bench.open(open)).map(|(code, _)| code), Some(code));
    }
    bench.connect_as(AcknowledgeMode::Transacted);
    assert_eq!(
        refused(&bench.open(named("import"))),
        Some((ErrorCode::NotAllowed, "name"))
    );
    assert_eq!(bench.engine().state().named_producers(), 0);
    bench.connect();
    opened(bench.open(named(&longest)));
    assert_eq!(bench.engine().state().named_producers(), 1);
}

#[test]
fn a_temporary_destination_has_no_named_producers() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.frames.clear();
    let create = proto::CreateTemporary {
        kind: proto::DestinationKind::Queue.into(),
    };
    let frame = proto::ClientFrame {
        session: 0,
        request: 5,
        frame: Some(Sent::CreateTemporary(create)),
    };
    let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
    let stream = bench.stream;
    bench.engine().handle(stream, &batch);
    bench.settle();
    let name = bench.frames.iter().find_map(|frame| match &frame.frame {
        Some(Got::Reply(reply)) => match &reply.result {
            Some(Answered::TemporaryCreated(created)) => Some(created.destination.clone()?),
            other => panic!("{other:?}"),
        },
        _ => None,
    });
    let open = proto::OpenProducer {
        destination: name,
        ..named("import")
    };
    assert_eq!(refused(&bench.open(open)), Some((ErrorCode::NotAllowed, "name")));
}

#[test]
fn what_the_broker_had_to_forget_it_says_so_of() {
    let mut bench = Bench::new(Properties::default());
    bench.named_producers_max = 1;
    bench.start();
    bench.program("one");
    bench.publish(1, "a");
    let first = bench.stream;
    bench.program("two");
    // It has left the table of names, and goes on for as long as it is open.
    bench.stream = first;
    bench.frames.clear();
    bench.publish(1, "a");
    bench.publish(2, "b");
    assert_eq!((bench.confirmed(), bench.held()), (vec![1, 2], Some(2)));
    bench.connect();
    assert_eq!(
        refused(&bench.open(named("one"))),
        Some((ErrorCode::UnknownProducer, "name"))
    );
    let anew = proto::OpenProducer {
        unknown_is_new: true,
        ..named("one")
    };
    assert_eq!(opened(bench.open(anew)).last_sequence, 0);
}

#[test]
fn a_dynamic_queue_stays_for_the_numbers_of_who_has_a_name_there() {
    let mut bench = Bench::new(Properties::default());
    bench.program("feed");
    bench.publish(1, "a");
    bench.publish(2, "b");
    let source = bench.source();
    bench.close();
    bench.engine().purge_queue("orders").unwrap();
    let idle_ms = u64::from(Settings::default().dynamic_idle_ms);
    for _ in 0..5 {
        bench.advance(idle_ms);
    }
    // It was in doubt about the second, and sends it again.
    bench.connect();
    let again = proto::OpenProducer {
        first_unconfirmed: 2,
        ..named("feed")
    };
    assert_eq!(opened(bench.open(again)).last_sequence, 2);
    bench.publish(2, "b");
    assert_eq!((bench.source(), bench.held()), (source, Some(0)), "it is stored once");
}

// covers: EMS-MSG-E01
#[test]
fn numbers_that_a_program_passes_over_are_stored_when_it_sends_them_later() {
    let from = |first_unconfirmed| proto::OpenProducer {
        first_unconfirmed,
        ..named("import")
    };
    for restart in [false, true] {
        let mut bench = Bench::new(Properties::default());
        bench.program("import");
        bench.publish(1, "a");
        bench.connect();
        opened(bench.open(from(5)));
        (5..=6).for_each(|sequence| bench.publish(sequence, "later"));
        if restart {
            bench.start();
        }
        bench.connect();
        assert_eq!(opened(bench.open(from(1))).last_sequence, 6);
        bench.frames.clear();
        (1..=7).for_each(|sequence| bench.publish(sequence, "all of it"));
        assert_eq!(bench.confirmed(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(bench.held(), Some(7), "what is confirmed is stored, once");
    }
}

// covers: EMS-MSG-E01
#[test]
fn what_was_settled_at_another_broker_counts_as_stored_and_what_was_passed_over_there_does_not() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    // The destination has moved here; numbers 1 to 3 were settled where it was, 4 is passed over.
    let moved = proto::OpenProducer {
        first_unconfirmed: 5,
        settled_below: 4,
        left_out: vec![proto::SequenceRange { first: 6, last: 7 }],
        ..named("import")
    };
    assert_eq!(opened(bench.open(moved)).last_sequence, 0);
    bench.publish(5, "e");
    bench.publish(8, "h");
    bench.connect();
    let from_the_first = proto::OpenProducer {
        first_unconfirmed: 1,
        ..named("import")
    };
    opened(bench.open(from_the_first));
    bench.frames.clear();
    (1..=8).for_each(|sequence| bench.publish(sequence, "all of it"));
    assert_eq!((bench.confirmed(), bench.held()), ((1..=8).collect(), Some(3)));
}

// covers: EMS-MSG-E01
#[test]
fn numbers_that_a_program_gave_up_are_stored_when_the_next_one_sends_them() {
    let mut bench = Bench::new(Properties::default());
    let first = bench.program("import");
    bench.publish(1, "a");
    // Its link breaks; numbers 2 and 3 never left it, and are given up.
    bench.connect();
    let goes_on = proto::OpenProducer {
        incarnation: first.incarnation,
        token: first.token,
        first_unconfirmed: 2,
        left_out: vec![proto::SequenceRange { first: 2, last: 3 }],
        ..named("import")
    };
    opened(bench.open(goes_on));
    bench.publish(4, "d");
    bench.connect();
    let again = proto::OpenProducer {
        first_unconfirmed: 2,
        ..named("import")
    };
    assert_eq!(opened(bench.open(again)).last_sequence, 4);
    bench.frames.clear();
    (2..=4).for_each(|sequence| bench.publish(sequence, "again"));
    assert_eq!((bench.confirmed(), bench.held()), (vec![2, 3, 4], Some(4)));
}

// covers: EMS-MSG-E01
#[test]
fn a_name_that_was_forgotten_while_it_was_open_is_still_one_programs_at_a_time() {
    let mut bench = Bench::new(Properties::default());
    bench.named_producers_max = 1;
    bench.start();
    bench.program("import");
    bench.publish(1, "a");
    bench.program("export");
    // The table has room for one: "import" is forgotten, and its producer is open.
    let again = proto::OpenProducer {
        unknown_is_new: true,
        ..named("import")
    };
    bench.connect();
    assert_eq!(opened(bench.open(again)).last_sequence, 0);
    assert_eq!(
        bench.told(),
        [ErrorCode::Conflict],
        "two programs would send the same numbers"
    );
}
