use super::*;

const QUEUE: DestinationId = DestinationId(20);

#[test]
fn numbers_are_known_per_destination() {
    let mut producers = Producers::new(100, 100);
    producers.arrive(7, QUEUE, 3, Position(64), &Ranges::default());
    producers.arrive(7, QUEUE, 4, Position(128), &Ranges::default());
    producers.arrive(7, QUEUE, 2, Position(256), &Ranges::default());
    assert_eq!(
        producers.last(7, QUEUE),
        Some(LastArrival {
            sequence: 4,
            position: Position(256),
            untold: 0
        })
    );
    assert_eq!(producers.knowledge(7, DestinationId(21)), ProducerKnowledge::New);
    producers.arrive_unlogged(7, QUEUE, 6, &Ranges::default());
    assert_eq!(producers.knowledge(7, QUEUE), ProducerKnowledge::Known(6));
}

#[test]
fn the_table_is_bounded_and_says_what_it_forgot() {
    let mut producers = Producers::new(10, 10);
    for incarnation in 1..=1000 {
        producers.arrive(incarnation, QUEUE, 1, Position(8), &Ranges::default());
        producers.arrive(1, QUEUE, incarnation, Position(8), &Ranges::default());
    }
    assert!(producers.young.len() + producers.old.len() <= 10);
    assert_eq!(producers.knowledge(500, QUEUE), ProducerKnowledge::Forgotten);
    assert_eq!(
        producers.knowledge(1, QUEUE),
        ProducerKnowledge::Known(1000),
        "who sends is remembered"
    );
    assert_eq!(producers.knowledge(1001, QUEUE), ProducerKnowledge::New);
}

#[test]
fn what_was_only_in_memory_is_bounded_and_not_taken_for_new_when_it_is_forgotten() {
    let mut producers = Producers::new(10, 10);
    producers.arrive(3, QUEUE, 1, Position(8), &Ranges::default());
    producers.note_unlogged((3, QUEUE), 2, 0);
    for incarnation in 4..=1000 {
        producers.note_unlogged((incarnation, QUEUE), 1, 0);
    }
    let kept: usize = producers.unlogged.iter().map(FxHashMap::len).sum();
    assert!(kept <= 15, "{kept}");
    assert_eq!(producers.knowledge(500, QUEUE), ProducerKnowledge::Forgotten);
    assert_eq!(
        producers.knowledge(3, QUEUE),
        ProducerKnowledge::Known(2),
        "known by what is logged, with all of its numbers"
    );
    assert_eq!(producers.knowledge(1001, QUEUE), ProducerKnowledge::New);
}

#[test]
fn a_checkpoint_knows_better_than_the_messages_that_are_left_from_before_it() {
    let mut producers = Producers::new(10, 10);
    producers.arrive(7, QUEUE, 3, Position(64), &Ranges::default());
    producers.restore(false, 7, QUEUE, 10);
    assert_eq!(producers.last(7, QUEUE).map(|last| last.sequence), Some(10));
}

#[test]
fn a_snapshot_makes_the_same_table() {
    let mut producers = Producers::new(10, 10);
    (1..=23).for_each(|incarnation| producers.arrive(incarnation, QUEUE, incarnation, Position(8), &Ranges::default()));
    let mut copy = Producers::new(10, 10);
    for (young, rows) in [false, true].into_iter().zip(producers.snapshot()) {
        rows.into_iter()
            .for_each(|(who, to, sequence)| copy.restore(young, who, to, sequence));
    }
    copy.restore_forgotten(producers.forgotten_up_to());
    assert_eq!(copy.snapshot(), producers.snapshot());
    assert_eq!(copy.knowledge(1, QUEUE), ProducerKnowledge::Forgotten);
}

fn refuse(producers: &mut Producers, numbers: &[u64]) {
    numbers
        .iter()
        .for_each(|number| producers.note_refused(7, QUEUE, *number));
}

fn arrive(producers: &mut Producers, incarnation: u64, sequence: u64) {
    let refused = producers.refused_before(incarnation, QUEUE, sequence);
    producers.arrive(incarnation, QUEUE, sequence, Position(8), &refused);
}

#[test]
fn a_full_table_of_refusals_says_unknown_of_what_it_let_go_and_never_no() {
    let mut producers = Producers::new(1_000, 3);
    // One that had arrived, one of which nothing had.
    arrive(&mut producers, 7, 1);
    refuse(&mut producers, &[2, 4]);
    producers.note_refused(8, QUEUE, 1);
    for incarnation in 100..200 {
        producers.note_refused(incarnation, QUEUE, 1);
    }
    arrive(&mut producers, 7, 5);
    arrive(&mut producers, 8, 2);
    arrive(&mut producers, 500, 2);
    let told = |incarnation, sequence| producers.refusal(incarnation, QUEUE, sequence);
    assert_eq!([2, 3, 4].map(|sequence| told(7, sequence)), [Refusal::Unknown; 3]);
    assert_eq!(told(7, 5), Refusal::None);
    assert_eq!((told(8, 1), told(8, 3)), (Refusal::Unknown, Refusal::Unknown));
    assert_eq!(told(199, 1), Refusal::Refused, "the last ones are known");
    assert_eq!(told(500, 1), Refusal::None, "a later producer is not touched by it");
    assert_eq!(producers.refusals.iter().count(), 3);
}

#[test]
fn what_cannot_be_told_or_has_arrived_is_not_new_because_it_is_refused_once_more() {
    let mut producers = Producers::new(1_000, 1);
    arrive(&mut producers, 7, 1);
    refuse(&mut producers, &[2]);
    producers.note_refused(8, QUEUE, 1);
    arrive(&mut producers, 7, 3);
    refuse(&mut producers, &[1, 2, 3]);
    let told = |sequence| producers.refusal(7, QUEUE, sequence);
    assert_eq!([1, 2].map(told), [Refusal::Unknown; 2]);
    assert_eq!(told(3), Refusal::None, "it arrived");
    assert_eq!(producers.knowledge(7, QUEUE), ProducerKnowledge::Known(3));
}

#[test]
fn what_was_refused_before_it_was_known_where_it_goes_is_new_wherever_it_goes() {
    let mut producers = Producers::new(1_000, 3);
    let other = DestinationId(21);
    arrive(&mut producers, 7, 1);
    producers.note_refused(7, DestinationId::ANYWHERE, 2);
    arrive(&mut producers, 7, 3);
    assert_eq!(producers.refused_before(7, other, 4).as_slice(), [(2, 2)]);
    assert_eq!(producers.refusal(7, QUEUE, 2), Refusal::Refused);
    arrive(&mut producers, 7, 2);
    assert_eq!(producers.refusal(7, QUEUE, 2), Refusal::None);
    producers.note_doubtful(7, 1);
    assert_eq!(producers.refusal(7, QUEUE, 1), Refusal::Unknown);
    producers.note_refused(7, DestinationId::ANYWHERE, 4);
    (100..110).for_each(|incarnation| producers.note_refused(incarnation, QUEUE, 1));
    arrive(&mut producers, 7, 5);
    assert_eq!(producers.refusal(7, QUEUE, 4), Refusal::Unknown);
    assert_eq!(producers.refusal(200, QUEUE, 4), Refusal::None);
}

#[test]
fn a_mark_outlives_its_row() {
    let mut producers = Producers::new(10, 1);
    arrive(&mut producers, 7, 1);
    refuse(&mut producers, &[2]);
    producers.note_refused(8, QUEUE, 1);
    (20..60).for_each(|incarnation| arrive(&mut producers, incarnation, 1));
    assert_eq!(producers.last(7, QUEUE), None, "it was put out");
    arrive(&mut producers, 7, 9);
    assert_eq!(producers.refusal(7, QUEUE, 2), Refusal::Unknown);
}

#[test]
fn a_snapshot_says_what_was_refused_and_what_cannot_be_told() {
    let mut producers = Producers::new(1_000, 2);
    for incarnation in 1..=9 {
        arrive(&mut producers, incarnation, 1);
        producers.note_refused(incarnation, QUEUE, 2);
        producers.note_refused(incarnation + 100, QUEUE, 2);
        arrive(&mut producers, incarnation, 3);
    }
    let mut copy = Producers::new(1_000, 2);
    // Of a message from before the checkpoint whose refusals ended since.
    let mut ended = Ranges::default();
    ended.push(1, 1);
    copy.arrive(5_000, QUEUE, 7, Position(8), &ended);
    for (young, rows) in [false, true].into_iter().zip(producers.snapshot()) {
        rows.into_iter()
            .for_each(|(who, to, sequence)| copy.restore(young, who, to, sequence));
    }
    let mut named = FxHashSet::default();
    for ((who, to), ranges) in producers.refused_snapshot() {
        copy.restore_refused(who, to, &ranges);
        named.insert((who, to));
    }
    copy.restore_refusals_forgotten(producers.refusals_forgotten_up_to());
    copy.keep_refused(&named);
    assert_eq!(copy.refused_snapshot(), producers.refused_snapshot());
    for incarnation in 1..=9 {
        assert_ne!(copy.refusal(incarnation, QUEUE, 2), Refusal::None);
        arrive(&mut copy, incarnation + 100, 3);
        assert_ne!(copy.refusal(incarnation + 100, QUEUE, 2), Refusal::None);
    }
    assert_eq!(copy.refusal(5_000, QUEUE, 1), Refusal::None);
}

#[test]
fn what_is_left_in_memory_of_a_producer_that_was_put_out_does_not_stand_for_what_was_logged() {
    let mut producers = Producers::new(4, 10);
    producers.arrive_unlogged(3, QUEUE, 1, &Ranges::default());
    producers.arrive(3, QUEUE, 2, Position(8), &Ranges::default());
    assert_eq!(producers.knowledge(3, QUEUE), ProducerKnowledge::Known(2));
    for incarnation in 4..=10 {
        producers.arrive(incarnation, QUEUE, 1, Position(8), &Ranges::default());
    }
    assert_eq!(
        producers.knowledge(3, QUEUE),
        ProducerKnowledge::Forgotten,
        "2, sent again, would be stored again"
    );
}

#[test]
fn a_late_number_does_not_lower_what_is_known_of_a_producer_that_was_long_silent() {
    let mut producers = Producers::new(4, 10);
    producers.arrive(3, QUEUE, 5, Position(8), &Ranges::default());
    producers.arrive(4, QUEUE, 1, Position(16), &Ranges::default());
    assert!(producers.young.is_empty(), "it is in the old half");
    producers.arrive(3, QUEUE, 2, Position(24), &Ranges::default());
    assert_eq!(producers.knowledge(3, QUEUE), ProducerKnowledge::Known(5));
}

fn unknown_up_to(last: u64) -> Ranges {
    let mut ranges = Ranges::default();
    ranges.forget_up_to(last);
    ranges
}

#[test]
fn whoever_may_have_had_a_later_number_refused_is_not_known_by_its_last_one() {
    let mut producers = Producers::new(1_000, 1);
    arrive(&mut producers, 7, 1);
    refuse(&mut producers, &[2]);
    assert_eq!(producers.knowledge(7, QUEUE), ProducerKnowledge::Known(1));
    producers.note_refused(8, QUEUE, 1);
    assert_eq!(
        producers.knowledge(7, QUEUE),
        ProducerKnowledge::Forgotten,
        "2 may have been refused or have arrived"
    );
}

#[test]
fn a_record_that_names_no_refused_numbers_ends_those_that_an_earlier_one_named() {
    let mut producers = Producers::new(10, 10);
    let mut refused = Ranges::default();
    refused.push(2, 2);
    producers.arrive(7, QUEUE, 3, Position(8), &refused);
    assert_eq!(producers.refusal(7, QUEUE, 2), Refusal::Refused);
    producers.arrive(7, QUEUE, 4, Position(16), &Ranges::default());
    assert_eq!(producers.refusal(7, QUEUE, 2), Refusal::None, "it arrived, unlogged");
}

#[test]
fn a_late_number_says_up_to_where_it_cannot_be_told_for_its_producer() {
    let mut producers = Producers::new(4, 10);
    producers.arrive(3, QUEUE, 5, Position(8), &Ranges::default());
    producers.arrive(4, QUEUE, 1, Position(16), &Ranges::default());
    assert!(producers.young.is_empty(), "it is in the old half");
    producers.arrive(3, QUEUE, 4, Position(24), &unknown_up_to(2));
    let told = [2, 3, 5].map(|sequence| producers.refusal(3, QUEUE, sequence));
    assert_eq!(told, [Refusal::Unknown, Refusal::None, Refusal::None]);
}

#[test]
fn what_cannot_be_told_of_what_was_only_in_memory_is_not_forgotten_by_what_comes_after_it() {
    let mut producers = Producers::new(10, 10);
    producers.arrive_unlogged(7, QUEUE, 5, &unknown_up_to(3));
    assert_eq!(producers.refusal(7, QUEUE, 3), Refusal::Unknown);
    producers.arrive_unlogged(8, QUEUE, 1, &Ranges::default());
    producers.arrive_unlogged(7, QUEUE, 6, &Ranges::default());
    assert_eq!(producers.refusal(7, QUEUE, 3), Refusal::Unknown);
    assert_eq!(producers.refusal(7, QUEUE, 4), Refusal::None);
}

#[test]
fn as_many_producers_of_what_is_only_in_memory_as_there_may_be_are_known() {
    let mut producers = Producers::new(10, 10);
    (1..=5).for_each(|incarnation| producers.arrive_unlogged(incarnation, QUEUE, incarnation, &Ranges::default()));
    // Those that are logged turn over meanwhile.
    (20..=40).for_each(|incarnation| producers.arrive(incarnation, QUEUE, 1, Position(8), &Ranges::default()));
    for incarnation in 1..=5 {
        assert_eq!(
            producers.knowledge(incarnation, QUEUE),
            ProducerKnowledge::Known(incarnation)
        );
    }
}

#[test]
fn only_those_with_a_mark_put_one_when_their_rows_leave() {
    let mut producers = Producers::new(2, 1);
    arrive(&mut producers, 7, 1);
    refuse(&mut producers, &[2]);
    producers.note_refused(6, QUEUE, 1);
    arrive(&mut producers, 50, 1);
    arrive(&mut producers, 51, 1);
    assert_eq!(producers.last(7, QUEUE), None, "it was put out");
    assert_eq!(producers.refusals_forgotten_up_to(), [7, 0], "and 50 had no mark");
    arrive(&mut producers, 52, 1);
    assert_eq!(producers.refusals_forgotten_up_to(), [7, 0]);
}

#[test]
fn the_bounds_of_a_checkpoint_are_marks() {
    for bounds in [[9, 0], [0, 9]] {
        let mut producers = Producers::new(10, 10);
        producers.restore_refusals_forgotten(bounds);
        assert!(!producers.is_plain());
        producers.restore_refusals_forgotten([0, 0]);
        arrive(&mut producers, 9, 4);
        arrive(&mut producers, 10, 4);
        assert_eq!(producers.refusal(9, QUEUE, 3), Refusal::Unknown, "{bounds:?}");
        assert_eq!(producers.refusal(10, QUEUE, 3), Refusal::None, "{bounds:?}");
    }
}

#[test]
fn what_a_checkpoint_says_of_a_producer_without_a_row_is_kept_until_it_is_pushed_out() {
    let mut producers = Producers::new(10, 10);
    let mut exact = Ranges::default();
    exact.push(4, 5);
    producers.restore_refused(7, QUEUE, &exact);
    producers.restore_refused(8, QUEUE, &unknown_up_to(6));
    assert_eq!(producers.refusal(7, QUEUE, 4), Refusal::Refused);
    assert_eq!(producers.refusal(7, QUEUE, 3), Refusal::None);
    assert_eq!(producers.refusal(8, QUEUE, 6), Refusal::Unknown);
    assert_eq!(producers.refusal(8, QUEUE, 7), Refusal::None);
}
