//! Requests that are refused where nobody could answer them now.

use super::*;

fn refused(result: Result<Accepted, PublishError>) -> bool {
    match result {
        Ok(_) => false,
        Err(PublishError::NoResponders { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_request_is_refused_while_nobody_consumes_and_nothing_of_it_is_kept() {
    let mut bench = Bench::new();
    let queue = bench.queue("questions", Properties::default());
    assert!(refused(bench.try_send(queue, &Message::text("?").asking())));
    assert!(refused(bench.try_send(queue, &Message::text("?").volatile().asking())));
    bench.settle();
    assert!(bench.take_all(queue.source()).is_empty());
    // Without a place for the reply it is no request, without the property it may wait.
    let flag = ("JMS_STERNA_NEEDS_RESPONDER", Value::Bool(true));
    assert!(!refused(
        bench.try_send(queue, &Message::text("a").with(flag.0, flag.1))
    ));
    let mut waits = Message::text("b");
    waits.reply_to = "replies";
    assert!(!refused(bench.try_send(queue, &waits)));
    bench.state().attach(queue.source(), false);
    assert!(!refused(bench.try_send(queue, &Message::text("c").asking())));
    bench.state().detach(queue.source(), false);
    assert!(refused(bench.try_send(queue, &Message::text("?").asking())));
    bench.settle();
    assert_eq!(bench.take_all(queue.source()), ["a", "b", "c"]);
}

#[test]
fn a_topic_has_responders_where_a_subscription_that_wants_it_is_consumed() {
    let mut bench = Bench::new();
    let topic = bench.topic("news.sport", Properties::default());
    let durable = bench.subscribe("d", "news.>", |wanted| wanted.selector = selector("n > 5"));
    let six = || Message::text("6").with("n", Value::Int(6)).asking();
    assert!(refused(bench.try_send(topic, &six())));
    bench.state().attach(durable, false);
    assert!(!refused(bench.try_send(topic, &six())));
    assert!(refused(
        bench.try_send(topic, &Message::text("5").with("n", Value::Int(5)).asking())
    ));
    bench.settle();
    assert_eq!(bench.take_all(durable), ["6"]);
}

#[test]
fn the_end_of_a_bridge_may_answer() {
    let mut bench = Bench::new();
    let source = bench.topic("asked", Properties::default());
    let target = bench.queue("answered", Properties::default());
    bench.bridge(Kind::Topic, "asked", Kind::Queue, "answered", None);
    assert!(refused(bench.try_send(source, &Message::text("?").asking())));
    bench.state().attach(target.source(), false);
    assert!(!refused(bench.try_send(source, &Message::text("!").asking())));
    bench.settle();
    assert_eq!(bench.take_all(target.source()), ["!"]);
}

#[test]
fn what_had_arrived_is_confirmed_again_although_nobody_consumes_any_more() {
    let mut bench = Bench::new();
    let queue = bench.queue("questions", Properties::default());
    bench.state().attach(queue.source(), false);
    let incarnation = bench.state().next_incarnation().unwrap();
    let question = Message::text("?").asking();
    assert!(!refused(bench.send_as(queue, &question, (incarnation, 1), None)));
    bench.state().detach(queue.source(), false);
    let again = bench.send_as(queue, &question, (incarnation, 1), None).unwrap();
    assert!(again.duplicate);
    assert!(refused(bench.send_as(queue, &question, (incarnation, 2), None)));
}
