//! The message view against the generated types: what prost encodes, the view reads.

use crate::message::{
    BodyKind, CORRELATION_ID_BYTES_MAX, MessageError, MessageView, NESTING_MAX, PropertyValue, Selectable,
};
use crate::proto::{
    Array, DeliveryMode, Destination, ForeignBody, MapBody, Message, ObjectBody, Property, StreamBody, UploadedBody,
    Value, message::Body, value::Kind,
};
use crate::selector::{Scope, Selector};
use crate::sim::seeds::{CASES, cases};
use crate::wire::put_bytes_field;
use proptest::prelude::*;
use prost::Message as _;

fn property(name: &str, kind: Kind) -> Property {
    Property {
        name: name.to_owned(),
        value: Some(value(kind)),
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn check_properties(properties: Vec<Property>) -> Result<(), MessageError> {
    let bytes = Message {
        properties,
        ..Message::default()
    }
    .encode_to_vec();
    MessageView::parse(&bytes).unwrap().check_properties()
}

fn check_body(body: Body) -> Result<(), MessageError> {
    let bytes = Message {
        body: Some(body),
        ..Message::default()
    }
    .encode_to_vec();
    MessageView::parse(&bytes).unwrap().check_body()
}

// covers: EMS-MSG-A01, EMS-MSG-A02
#[test]
fn header_properties_and_body_are_found_where_they_lie() {
    let message = Message {
        delivery_mode: DeliveryMode::NonPersistent.into(),
        priority: Some(7),
        time_to_live_ms: 60_000,
        delivery_delay_ms: 5,
        correlation_id: Some("request 9".to_owned()),
        reply_to: Some(Destination {
            kind: 1,
            name: "replies".to_owned(),
        }),
        r#type: "order".to_owned(),
        properties: vec![
            property("a", Kind::LongValue(-3)),
            property("b", Kind::StringValue("x".to_owned())),
        ],
        body: Some(Body::Text("héllo".to_owned())),
        encoding: "ISO-8859-1".to_owned(),
        compression: String::new(),
    };
    let bytes = message.encode_to_vec();
    let view = MessageView::parse(&bytes).unwrap();
    assert_eq!(
        (view.delivery_mode(), view.priority()),
        (DeliveryMode::NonPersistent, 7)
    );
    assert_eq!((view.time_to_live_ms(), view.delivery_delay_ms()), (60_000, 5));
    assert_eq!(
        (view.correlation_id(), view.message_type()),
        (Some("request 9"), "order")
    );
    assert_eq!(
        Destination::decode(view.reply_to().unwrap()).unwrap(),
        message.reply_to.unwrap()
    );
    assert_eq!(
        (view.body().kind, view.body().size_bytes(), view.body().text()),
        (BodyKind::Text, 6, Ok(Some("héllo")))
    );
    let properties: Vec<_> = view.properties().collect::<Result<_, _>>().unwrap();
    assert_eq!(
        properties,
        [("a", PropertyValue::Long(-3)), ("b", PropertyValue::String("x"))]
    );
    assert_eq!((view.property_count(), view.bytes()), (2, &bytes[..]));
    assert!(view.check_properties().is_ok() && view.check_body().is_ok());
}

// covers: EMS-MSG-A15, EMS-MSG-A16
#[test]
fn an_empty_message_is_a_persistent_event_of_priority_4() {
    let view = MessageView::parse(&[]).unwrap();
    assert_eq!((view.delivery_mode(), view.priority()), (DeliveryMode::Persistent, 4));
    assert_eq!(
        (view.body().kind, view.property_count(), view.reply_to()),
        (BodyKind::None, 0, None)
    );
    assert_eq!(view.property("a"), None);
    let bytes = Message {
        priority: Some(0),
        ..Message::default()
    }
    .encode_to_vec();
    assert_eq!(MessageView::parse(&bytes).unwrap().priority(), 0);
}

#[test]
fn header_fields_out_of_range_are_refused_by_name() {
    let refused = |message: Message| {
        let error = MessageView::parse(&message.encode_to_vec()).unwrap_err();
        (error.subject(), error)
    };
    let priority = refused(Message {
        priority: Some(10),
        ..Message::default()
    });
    assert_eq!(priority, ("priority", MessageError::Priority(10)));
    let mode = refused(Message {
        delivery_mode: 3,
        ..Message::default()
    });
    assert_eq!(mode, ("delivery_mode", MessageError::DeliveryMode(3)));
    let (bytes, limit) = (CORRELATION_ID_BYTES_MAX + 1, CORRELATION_ID_BYTES_MAX);
    let correlation = refused(Message {
        correlation_id: Some("x".repeat(bytes)),
        ..Message::default()
    });
    assert_eq!(
        correlation,
        ("correlation_id", MessageError::CorrelationIdTooLong { bytes, limit })
    );
    let mut twice = Message {
        body: Some(Body::Text("a".to_owned())),
        ..Message::default()
    }
    .encode_to_vec();
    twice.extend(
        Message {
            body: Some(Body::Bytes(vec![1])),
            ..Message::default()
        }
        .encode_to_vec(),
    );
    assert_eq!(MessageView::parse(&twice).unwrap_err(), MessageError::SeveralBodies);
}

// covers: EMS-MSG-A25
#[test]
fn properties_keep_their_type_and_are_never_bytes() {
    let properties = vec![
        property("null", Kind::NullValue(0)),
        property("bool", Kind::BoolValue(true)),
        property("byte", Kind::ByteValue(-128)),
        property("short", Kind::ShortValue(32_767)),
        property("int", Kind::IntValue(i32::MIN)),
        property("long", Kind::LongValue(i64::MIN)),
        property("float", Kind::FloatValue(0.5)),
        property("double", Kind::DoubleValue(-0.25)),
        property("char", Kind::CharValue(0xd800)),
        property("JMSXGroupID", Kind::StringValue("g".to_owned())),
    ];
    let bytes = Message {
        properties,
        ..Message::default()
    }
    .encode_to_vec();
    let view = MessageView::parse(&bytes).unwrap();
    let expected = [
        ("null", PropertyValue::Null),
        ("bool", PropertyValue::Bool(true)),
        ("byte", PropertyValue::Byte(-128)),
        ("short", PropertyValue::Short(32_767)),
        ("int", PropertyValue::Int(i32::MIN)),
        ("long", PropertyValue::Long(i64::MIN)),
        ("float", PropertyValue::Float(0.5)),
        ("double", PropertyValue::Double(-0.25)),
        ("char", PropertyValue::Char(0xd800)),
        ("JMSXGroupID", PropertyValue::String("g")),
    ];
    for (name, value) in expected {
        assert_eq!(view.property(name), Some(value), "{name}");
    }
    assert!(view.check_properties().is_ok());

    for kind in [
        Kind::BytesValue(vec![1]),
        Kind::MapValue(MapBody::default()),
        Kind::StreamValue(StreamBody::default()),
        Kind::ArrayValue(Array::default()),
    ] {
        let error = check_properties(vec![property("p", kind)]).unwrap_err();
        assert!(
            matches!(error, MessageError::PropertyKind { ref name, .. } if name == "p"),
            "{error}"
        );
    }
}

#[test]
fn properties_need_names_of_their_own_and_values_in_range() {
    let long = Kind::LongValue(1);
    let missing = check_properties(vec![property("a", long.clone()), property("", long.clone())]);
    assert_eq!(
        missing,
        Err(MessageError::NameMissing {
            subject: "properties",
            index: 1
        })
    );
    assert_eq!(
        check_properties(vec![property("JMSPriority", long)]),
        Err(MessageError::ReservedName("JMSPriority".to_owned()))
    );
    for (kind, name) in [
        (Kind::ByteValue(128), "byte"),
        (Kind::ShortValue(-32_769), "short"),
        (Kind::CharValue(0x1_0000), "char"),
    ] {
        let expected = MessageError::ValueOutOfRange {
            name: "p".to_owned(),
            kind: name,
        };
        assert_eq!(check_properties(vec![property("p", kind)]), Err(expected));
    }
    let empty = vec![Property {
        name: "e".to_owned(),
        value: None,
    }];
    assert_eq!(check_properties(empty), Err(MessageError::ValueMissing("e".to_owned())));
}

#[test]
fn of_a_repeated_property_the_last_counts() {
    let properties = vec![property("a", Kind::LongValue(1)), property("a", Kind::BoolValue(true))];
    let bytes = Message {
        properties,
        ..Message::default()
    }
    .encode_to_vec();
    let view = MessageView::parse(&bytes).unwrap();
    assert_eq!(view.property("a"), Some(PropertyValue::Bool(true)));
    assert!(view.has_flag("a") && !view.has_flag("b"));
}

#[test]
fn properties_are_found_however_they_are_encoded() {
    let long = "v".repeat(300);
    let (name, encoded) = ("n".repeat(200), value(Kind::StringValue(long.clone())).encode_to_vec());
    let mut usual = Vec::new();
    put_bytes_field(&mut usual, 1, name.as_bytes());
    put_bytes_field(&mut usual, 2, &encoded);
    // Backwards, and with a field that only a later version of the contract knows.
    let mut odd = Vec::new();
    put_bytes_field(&mut odd, 2, &value(Kind::LongValue(5)).encode_to_vec());
    put_bytes_field(&mut odd, 9, b"later");
    put_bytes_field(&mut odd, 1, b"odd");
    let mut bytes = Vec::new();
    put_bytes_field(&mut bytes, 8, &usual);
    put_bytes_field(&mut bytes, 99, b"later");
    put_bytes_field(&mut bytes, 8, &odd);
    let view = MessageView::parse(&bytes).unwrap();
    assert_eq!(view.property(&name), Some(PropertyValue::String(&long)));
    assert_eq!(view.property("odd"), Some(PropertyValue::Long(5)));
    assert_eq!((view.properties().count(), view.check_properties()), (2, Ok(())));
}

// covers: EMS-MSG-A08
#[test]
fn the_string_true_is_no_flag() {
    let properties = vec![property(
        "JMS_STERNA_PRESERVE_UNDELIVERED",
        Kind::StringValue("true".to_owned()),
    )];
    let bytes = Message {
        properties,
        ..Message::default()
    }
    .encode_to_vec();
    assert!(
        !MessageView::parse(&bytes)
            .unwrap()
            .has_flag("JMS_STERNA_PRESERVE_UNDELIVERED")
    );
}

// covers: EMS-MSG-A12, EMS-MSG-A13
#[test]
fn bodies_of_every_kind_pass_and_nest() {
    let inner = MapBody {
        entries: vec![property("deep", Kind::BytesValue(vec![0, 1]))],
    };
    let numbers = Array {
        items: vec![value(Kind::IntValue(1)), value(Kind::IntValue(2))],
    };
    let entries = vec![
        property("map", Kind::MapValue(inner.clone())),
        property("array", Kind::ArrayValue(numbers)),
    ];
    let items = vec![
        value(Kind::MapValue(inner)),
        value(Kind::NullValue(0)),
        value(Kind::CharValue(65)),
    ];
    for (body, kind) in [
        (Body::Text("x".to_owned()), BodyKind::Text),
        (Body::Bytes(vec![0xff]), BodyKind::Bytes),
        (Body::Map(MapBody { entries }), BodyKind::Map),
        (Body::Stream(StreamBody { items }), BodyKind::Stream),
        (
            Body::Object(ObjectBody {
                data: vec![0xff],
                content_type: "a/b".to_owned(),
            }),
            BodyKind::Object,
        ),
        (
            Body::Uploaded(UploadedBody {
                upload_id: 7,
                r#as: 1,
                content_type: String::new(),
            }),
            BodyKind::Uploaded,
        ),
        (
            Body::Foreign(ForeignBody {
                protocol: "mqtt-5".to_owned(),
                data: vec![0xff],
            }),
            BodyKind::Foreign,
        ),
    ] {
        let bytes = Message {
            body: Some(body),
            ..Message::default()
        }
        .encode_to_vec();
        let view = MessageView::parse(&bytes).unwrap();
        assert_eq!((view.body().kind, view.check_body()), (kind, Ok(())));
    }
}

#[test]
fn bodies_that_nobody_could_read_are_refused() {
    let twice = vec![property("a", Kind::LongValue(1)), property("a", Kind::LongValue(2))];
    assert_eq!(
        check_body(Body::Map(MapBody { entries: twice })),
        Err(MessageError::EntryTwice("a".to_owned()))
    );
    let mixed = Array {
        items: vec![value(Kind::IntValue(1)), value(Kind::LongValue(2))],
    };
    let items = vec![value(Kind::ArrayValue(mixed))];
    assert_eq!(
        check_body(Body::Stream(StreamBody { items })),
        Err(MessageError::MixedArray)
    );
    let not_text = [0x4a, 1, 0xff];
    assert!(matches!(
        MessageView::parse(&not_text).unwrap().check_body(),
        Err(MessageError::Wire(_))
    ));

    let nested = |depth: usize| {
        let mut stream = StreamBody::default();
        for _ in 1..depth {
            stream = StreamBody {
                items: vec![value(Kind::StreamValue(stream))],
            };
        }
        Body::Stream(stream)
    };
    assert_eq!(check_body(nested(NESTING_MAX)), Ok(()));
    assert_eq!(
        check_body(nested(NESTING_MAX + 1)),
        Err(MessageError::NestedTooDeep(NESTING_MAX))
    );
}

// covers: EMS-CLI-A10, EMS-MSG-A10
#[test]
fn selectors_see_the_message_and_what_the_broker_knows_of_it() {
    let message = Message {
        delivery_mode: DeliveryMode::Reliable.into(),
        r#type: "order".to_owned(),
        properties: vec![
            property("delay", Kind::ShortValue(61)),
            property("code", Kind::CharValue(u32::from(b'x'))),
            property("JMSXDeliveryCount", Kind::IntValue(99)),
            property("gone", Kind::NullValue(0)),
        ],
        ..Message::default()
    };
    let bytes = message.encode_to_vec();
    let view = MessageView::parse(&bytes).unwrap();
    let fields = Selectable {
        destination: "Topic[a.b]",
        message_id: "ID:b.1:2",
        ..Selectable::new(&view, 1_000)
    };
    for (text, expected) in [
        (
            "delay > 60 AND JMSType = 'order' AND JMSDeliveryMode = 'RELIABLE' AND JMSPriority = 4",
            true,
        ),
        (
            "code = 'x' AND gone IS NULL AND JMSTimestamp = 1000 AND JMSMessageID LIKE 'ID:%'",
            true,
        ),
        ("JMSDestination = 'Topic[a.b]'", true),
        ("JMSXDeliveryCount IS NULL AND JMSCorrelationID IS NULL", true),
        ("JMSXDeliveryCount = 99", false),
    ] {
        let selector = Selector::parse_in(text, Scope::Undelivered).unwrap();
        assert_eq!(selector.matches(&fields), expected, "{text}");
    }
    let again = Selectable {
        delivery_count: 2,
        ..fields
    };
    assert!(Selector::parse("JMSXDeliveryCount = 2").unwrap().matches(&again));
}

#[test]
fn who_sent_a_message_is_the_brokers_word_whatever_its_producer_writes() {
    let names = ["JMS_STERNA_SENDER", "JMS_TIBCO_SENDER"];
    let forged = |name: &&str| property(name, Kind::StringValue("mallory".to_owned()));
    let message = Message {
        properties: names.iter().map(forged).collect(),
        ..Message::default()
    };
    let bytes = message.encode_to_vec();
    let view = MessageView::parse(&bytes).unwrap();
    let unnamed = Selectable::new(&view, 1_000);
    let named = Selectable {
        sender: "ada",
        ..unnamed
    };
    for name in names {
        let matches = |text: String, fields: &Selectable<'_>| Selector::parse(&text).unwrap().matches(fields);
        assert!(matches(format!("{name} = 'ada'"), &named));
        assert!(matches(format!("{name} IS NULL"), &unnamed));
        for fields in [&named, &unnamed] {
            assert!(!matches(format!("{name} = 'mallory'"), fields));
        }
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(view) = MessageView::parse(&bytes) {
            let _ = (view.check_properties(), view.check_body(), view.property("a"), view.body().text());
            prop_assert!(view.properties().count() <= view.property_count());
        }
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(position: prop::sample::Index, replacement: u8, length: prop::sample::Index) {
        let entries = vec![property("m", Kind::StringValue("text".to_owned())), property("n", Kind::DoubleValue(1.0))];
        let message = Message {
            priority: Some(5),
            correlation_id: Some("c".to_owned()),
            properties: entries.clone(),
            body: Some(Body::Map(MapBody { entries })),
            ..Message::default()
        };
        let mut bytes = message.encode_to_vec();
        let position = position.index(bytes.len());
        bytes[position] = replacement;
        bytes.truncate(length.index(bytes.len() + 1));
        if let Ok(view) = MessageView::parse(&bytes) {
            let _ = (view.check_properties(), view.check_body(), view.property("m"));
        }
    }
}
