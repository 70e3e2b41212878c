//! What hostile or merely huge selectors do: they are parsed, or refused, and the broker lives.

use crate::selector::{
    Fields, HeaderField, LITERALS_MAX, NESTING_MAX, Scope, Selector, TEXT_BYTES_MAX, Value, Verdict,
};
use crate::sim::seeds::{CASES, cases};
use proptest::prelude::*;

/// One property `a`.
struct A(i64);

impl Fields for A {
    fn header(&self, _: HeaderField) -> Option<Value<'_>> {
        None
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        (name == "a").then_some(Value::Long(self.0))
    }
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .stack_size(128 * 1024)
        .spawn(test)
        .unwrap()
        .join()
        .unwrap();
}

// covers: EMS-CLI-B31
#[test]
fn thousands_of_conditions_are_judged_right_to_the_last() {
    on_a_small_stack(|| {
        let terms: Vec<String> = (0..4_999).map(|index| format!("a = {index}")).collect();
        let selector = Selector::parse(&terms.join(" OR ")).unwrap();
        assert!(selector.matches(&A(0)) && selector.matches(&A(4_998)) && !selector.matches(&A(4_999)));
        let terms: Vec<String> = (0..4_999).map(|index| format!("a <> {index}")).collect();
        let selector = Selector::parse(&terms.join(" AND ")).unwrap();
        assert!(!selector.matches(&A(4_998)) && selector.matches(&A(4_999)));
    });
}

// covers: EMS-CLI-B31
#[test]
fn deep_nesting_needs_no_stack() {
    on_a_small_stack(|| {
        let depth = 4_999;
        let parentheses = format!("{}a = 1{}", "(".repeat(depth), ")".repeat(depth));
        assert!(Selector::parse(&parentheses).unwrap().matches(&A(1)));
        let nots = format!("{}a = 1", "NOT ".repeat(depth));
        assert!(Selector::parse(&nots).unwrap().matches(&A(2)));
        let signs = format!("{}a = -1", "- ".repeat(depth));
        assert!(Selector::parse(&signs).unwrap().matches(&A(1)));
        let right = format!("{}a = 7{}", "a = 0 OR (".repeat(depth), ")".repeat(depth));
        assert!(Selector::parse(&right).unwrap().matches(&A(7)));
        let sums = format!("{}a{} = {depth}", "1 + (".repeat(depth), ")".repeat(depth));
        assert!(Selector::parse(&sums).unwrap().matches(&A(0)));
    });
}

#[test]
fn nesting_beyond_the_limit_is_refused_where_it_begins() {
    let error = Selector::parse(&"(".repeat(NESTING_MAX + 1)).unwrap_err();
    assert_eq!(error.offset(), NESTING_MAX);
    let error = Selector::parse(&"(".repeat(NESTING_MAX)).unwrap_err();
    assert_eq!(error.offset(), NESTING_MAX);
    assert!(error.message().contains("expected"), "{error}");
}

// covers: EMS-CLI-A12, EMS-CLI-A16
#[test]
fn string_literals_are_counted_over_the_whole_selector() {
    let set = |count: usize| {
        let literals: Vec<String> = (0..count).map(|index| format!("'{index}'")).collect();
        format!("a IN ({})", literals.join(","))
    };
    let selector = Selector::parse(&set(LITERALS_MAX)).unwrap();
    assert_eq!(selector.evaluate(&A(1)), Verdict::False);
    assert!(
        Selector::parse(&set(LITERALS_MAX + 1))
            .unwrap_err()
            .message()
            .contains("32767")
    );
    let split = format!("{} AND b = 'x'", set(LITERALS_MAX));
    let error = Selector::parse(&split).unwrap_err();
    assert_eq!(error.offset(), split.len() - 3);
    assert!(Selector::parse(&format!("{} AND b LIKE 'x'", set(LITERALS_MAX - 1))).is_ok());
    assert!(Selector::parse(&format!("{} AND b LIKE 'x' ESCAPE '!'", set(LITERALS_MAX - 1))).is_err());
}

#[test]
fn a_text_beyond_the_limit_is_refused_unread() {
    let text = format!("{}a = 1", " ".repeat(TEXT_BYTES_MAX - 5));
    assert!(Selector::parse(&text).is_ok());
    assert!(
        Selector::parse(&format!(" {text}"))
            .unwrap_err()
            .message()
            .contains("at most 1048576")
    );
}

// covers: EMS-CLI-A11
#[test]
fn the_original_destination_is_for_undelivered_messages_alone() {
    assert!(Selector::parse("JMSDestination LIKE 'Queue%'").is_err());
    let selector = Selector::parse_in("JMSDestination LIKE 'Queue%'", Scope::Undelivered).unwrap();
    assert!(selector.uses(HeaderField::Destination) && !selector.uses(HeaderField::Type));
}

#[test]
fn no_text_means_no_selector_where_one_is_optional() {
    assert_eq!(Selector::parse_optional(" \t\n", Scope::Ordinary), Ok(None));
    assert!(Selector::parse_optional("a", Scope::Ordinary).unwrap().is_some());
    assert!(Selector::parse_optional("a =", Scope::Ordinary).is_err());
}

#[test]
fn white_space_and_the_case_of_keywords_do_not_make_another_selector() {
    let parse = |text| Selector::parse(text).unwrap();
    assert_eq!(
        parse("a=1 and b  In('x','it''s')"),
        parse("a = 1\nAND b IN ( 'x', 'it''s' )")
    );
    assert_eq!(parse("a=1 and b").normal_text(), "a = 1 AND b");
    assert_eq!(parse(" a=1").text(), " a=1");
    assert_ne!(parse("a = 'x'"), parse("a = 'X'"));
    assert_ne!(parse("a = 1"), parse("A = 1"));
    assert_ne!(parse("a = '  '"), parse("a = ' '"));
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn arbitrary_text_is_parsed_or_refused_inside_itself(text in ".{0,60}") {
        if let Err(error) = Selector::parse(&text) {
            prop_assert!(error.offset() <= text.chars().count());
            prop_assert_eq!(error.render().lines().count(), 3);
        }
    }

    #[test]
    fn arbitrary_words_are_parsed_or_refused(words in proptest::collection::vec(
        prop::sample::select(vec!["a", "'x'", "1", "2.5", "TRUE", "NULL", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS",
            "ESCAPE", "=", "<>", "<", "+", "-", "*", "/", "(", ")", ",", "JMSType", "JMSReplyTo"]), 0..14)) {
        let text = words.join(" ");
        match Selector::parse(&text) {
            Ok(selector) => {
                let verdict = selector.evaluate(&A(1));
                prop_assert_eq!(selector.matches(&A(1)), verdict == Verdict::True);
            }
            Err(error) => prop_assert!(error.offset() <= text.chars().count()),
        }
    }
}
