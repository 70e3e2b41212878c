//! Who sent a message, told where a destination asks for it (EMS-MSG-A11, EMS-DEST-A35, EMS-DEST-A36).

use super::*;
use crate::log::disk::Disk as _;

fn naming() -> Properties {
    Properties {
        sender_name: true,
        ..Properties::default()
    }
}

fn enforcing() -> Properties {
    Properties {
        sender_name_enforced: true,
        ..Properties::default()
    }
}

fn declining(name: &'static str) -> Message {
    Message::text("declining").with(name, Value::Bool(true))
}

/// Who sent what waits in a source, by its order.
fn senders(bench: &mut Bench, source: SourceId) -> Vec<String> {
    let found: Vec<_> = bench.state().browse(source, 0).collect();
    let sender = |bench: &mut Bench, position, copy| bench.message_at(position).head.sender(copy).to_owned();
    found
        .into_iter()
        .map(|found| sender(bench, found.position, found.copy))
        .collect()
}

fn by(user: &'static str) -> Bench {
    let mut bench = Bench::new();
    bench.user = user;
    bench
}

// covers: EMS-MSG-A11, EMS-DEST-A35, EMS-DEST-A36
#[test]
fn a_message_names_its_sender_as_its_destination_and_its_flag_say() {
    let mut bench = by("ada");
    let both = Properties {
        sender_name: true,
        ..enforcing()
    };
    for (name, properties, told) in [
        ("plain", Properties::default(), ["", "", "", "", "", ""]),
        ("naming", naming(), ["ada", "", "", "ada", "ada", ""]),
        ("enforcing", enforcing(), ["ada", "ada", "ada", "ada", "ada", ""]),
        ("both", both, ["ada", "ada", "ada", "ada", "ada", ""]),
    ] {
        let queue = bench.queue(name, properties);
        bench.send(queue, &Message::text("a"));
        bench.send(queue, &declining("JMS_STERNA_DISABLE_SENDER"));
        bench.send(queue, &declining("JMS_TIBCO_DISABLE_SENDER"));
        // Only the boolean true declines.
        for value in [Value::Text("true"), Value::Bool(false)] {
            bench.send(queue, &Message::text("b").with("JMS_STERNA_DISABLE_SENDER", value));
        }
        bench.user = "";
        bench.send(queue, &Message::text("of nobody"));
        bench.user = "ada";
        bench.settle();
        assert_eq!(senders(&mut bench, queue.source()), told, "{name}");
    }
}

#[test]
fn a_name_stays_over_restarts_moves_and_later_properties() {
    let mut bench = by("ada");
    let properties = Properties {
        redelivery_max: 2,
        ..naming()
    };
    let queue = bench.queue("orders", properties);
    bench.send(queue, &Message::text("a").preserved());
    bench.send(queue, &declining("JMS_STERNA_DISABLE_SENDER").preserved());
    let tx = Tx { owner: 1, number: 1 };
    bench.send_in(tx, queue, &Message::text("c").preserved()).unwrap();
    bench.state().commit(tx).unwrap();
    bench.settle();
    // What was decided when it arrived holds, whatever the queue says now.
    bench.queues.clear();
    bench.queue(
        "orders",
        Properties {
            redelivery_max: 2,
            ..Properties::default()
        },
    );
    bench.send(queue, &Message::text("d").preserved());
    bench.settle();
    for restart in [Bench::restart, Bench::restart_cleanly] {
        restart(&mut bench);
        assert_eq!(senders(&mut bench, queue.source()), ["ada", "", "ada", ""]);
    }
    for _ in 0..2 {
        while let Some((_, sequence, _)) = bench.take(queue.source()) {
            bench.state().release(queue.source(), sequence, true);
        }
        bench.settle();
    }
    assert_eq!(senders(&mut bench, queue.source()), [""; 0]);
    bench.restart();
    assert_eq!(senders(&mut bench, UNDELIVERED.source()), ["ada", "", "ada", ""]);
}

#[test]
fn a_message_in_memory_or_spilled_names_its_sender() {
    let mut options = small_options();
    options.volatile_bytes = 4096;
    let mut bench = Bench::on(SimDisk::new(1), options);
    let queue = bench.queue("orders", naming());
    for number in 0..100 {
        bench.user = if number % 2 == 0 { "ada" } else { "" };
        bench.send(queue, &Message::text("x".repeat(500)).volatile());
        bench.settle();
    }
    let spilled = bench.disk.list().unwrap().iter().any(|name| name.ends_with(".spill"));
    assert!(spilled, "most of it is in a file");
    let found = senders(&mut bench, queue.source());
    let expected: Vec<&str> = (0..100)
        .map(|number| if number % 2 == 0 { "ada" } else { "" })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn of_a_copy_that_a_bridge_makes_its_own_destination_decides() {
    let mut bench = by("ada");
    let named = bench.topic("named", naming());
    let plain = bench.topic("plain", Properties::default());
    let targets = [
        ("t.plain", Properties::default()),
        ("t.named", naming()),
        ("t.all", enforcing()),
    ];
    let targets = targets.map(|(name, properties)| bench.queue(name, properties));
    let direct = ["named", "plain"].map(|name| bench.subscribe(name, name, |_| {}));
    for source in ["named", "plain"] {
        for target in ["t.plain", "t.named", "t.all"] {
            bench.bridge(Kind::Topic, source, Kind::Queue, target, None);
        }
    }
    for topic in [named, plain] {
        bench.send(topic, &Message::text("a"));
        bench.send(topic, &declining("JMS_TIBCO_DISABLE_SENDER"));
    }
    bench.settle();
    for restarted in [false, true] {
        if restarted {
            bench.restart();
        }
        assert_eq!(senders(&mut bench, direct[0]), ["ada", ""]);
        assert_eq!(senders(&mut bench, direct[1]), ["", ""]);
        assert_eq!(senders(&mut bench, targets[0].source()), ["", "", "", ""]);
        assert_eq!(senders(&mut bench, targets[1].source()), ["ada", "", "ada", ""]);
        assert_eq!(senders(&mut bench, targets[2].source()), ["ada", "ada", "ada", "ada"]);
    }
}

#[test]
fn selectors_see_who_sent_a_message_where_it_goes_and_where_it_waits() {
    let mut bench = by("ada");
    let topic = bench.topic("news", naming());
    let queue = bench.queue("orders", naming());
    let plain = bench.queue("plain", Properties::default());
    let crossed = bench.queue("crossed", Properties::default());
    bench.bridge(
        Kind::Topic,
        "news",
        Kind::Queue,
        "crossed",
        Some("JMS_STERNA_SENDER = 'ada'"),
    );
    let of_ada = bench.subscribe("a", "news", |wanted| {
        wanted.selector = selector("JMS_TIBCO_SENDER = 'ada'")
    });
    let of_nobody = bench.subscribe("n", "news", |wanted| {
        wanted.selector = selector("JMS_STERNA_SENDER IS NULL")
    });
    for place in [topic, queue, plain] {
        for (user, text) in [("ada", "of ada"), ("bob", "of bob"), ("", "of nobody")] {
            bench.user = user;
            let forged = Value::Text("ada");
            bench.send(place, &Message::text(text).with("JMS_STERNA_SENDER", forged));
        }
    }
    bench.settle();
    assert_eq!(bench.texts(of_ada), ["of ada"]);
    assert_eq!(bench.texts(of_nobody), ["of nobody"]);
    assert_eq!(bench.texts(crossed.source()), ["of ada"]);
    let wanted = selector("JMS_STERNA_SENDER = 'bob'").unwrap();
    let (text, _, _) = bench
        .take_with(queue.source(), &mut Cursor::default(), Some(&wanted))
        .unwrap();
    assert_eq!(text, "of bob");
    let wanted = selector("JMS_STERNA_SENDER IS NOT NULL").unwrap();
    let found = bench.take_with(plain.source(), &mut Cursor::default(), Some(&wanted));
    assert!(found.is_none(), "a queue that does not ask tells nobody");
}

#[test]
fn compaction_keeps_the_name() {
    let mut bench = Bench::on(SimDisk::new(5), super::compaction::compacting());
    let topic = bench.topic("news", naming());
    let kept = bench.subscribe("kept", "news", |_| {});
    let read = bench.subscribe("read", "news", |_| {});
    let filler = bench.queue("filler", Properties::default());
    bench.user = "ada";
    bench.send(topic, &Message::text("kept"));
    bench.settle();
    let references = |bench: &mut Bench| {
        let position = bench.state().browse(kept, 0).next().unwrap().position;
        bench.message_at(position).head.references.len()
    };
    assert_eq!(references(&mut bench), 2);
    // Its record is written anew with one reference less.
    let (_, sequence, _) = bench.take(read).unwrap();
    bench.acknowledge(read, sequence);
    for _ in 0..2_000 {
        bench.send(filler, &Message::text("x".repeat(500)));
        bench.settle();
        let (_, sequence, _) = bench.take(filler.source()).unwrap();
        bench.acknowledge(filler.source(), sequence);
    }
    bench.settle();
    bench.restart();
    assert_eq!(references(&mut bench), 1, "it was written anew");
    assert_eq!(senders(&mut bench, kept), ["ada"]);
}
