//! The body's checksum against `tests/vectors/body_checksums.json`, whose sums another implementation made: whoever makes
//! the sum elsewhere (SDK, audits) reads the same file.

use std::path::Path;

use prost::Message as _;
use serde_json::Value;

use super::{BodyKind, MessageError, MessageView};
use crate::proto::{Message, message::Body};
use crate::wire::Reader;

struct Vector {
    name: String,
    message: Vec<u8>,
    uploaded: Vec<u8>,
    checksum: u128,
    several_bodies: bool,
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn vectors() -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/body_checksums.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(file["algorithm"], "XXH3-128, seed 0");
    let cases = file["cases"].as_array().unwrap().iter();
    cases
        .map(|case| Vector {
            name: case["name"].as_str().unwrap().to_owned(),
            message: unhex(case["message"].as_str().unwrap()),
            uploaded: unhex(case["uploaded"].as_str().unwrap_or_default()),
            checksum: {
                let digits = case["checksum"].as_str().unwrap();
                assert_eq!(digits.len(), 32);
                u128::from_str_radix(digits, 16).unwrap()
            },
            several_bodies: case["several_bodies"].as_bool().unwrap_or_default(),
        })
        .collect()
}

/// The last body on the wire, found as protobuf says, whether a broker takes the message or not.
fn last_body(message: &[u8]) -> super::Body<'_> {
    let mut body = super::Body {
        kind: BodyKind::None,
        bytes: &[],
    };
    let mut reader = Reader::new(message);
    while let Some(field) = reader.next_field().unwrap() {
        if BodyKind::of(field.number) != BodyKind::None {
            body = super::Body {
                kind: BodyKind::of(field.number),
                bytes: field.bytes().unwrap(),
            };
        }
    }
    body
}

#[test]
fn a_bodys_checksum_is_what_another_implementation_says() {
    let mut kinds = Vec::new();
    for vector in vectors() {
        let body = last_body(&vector.message);
        assert_eq!(body.checksum(&vector.uploaded), vector.checksum, "{}", vector.name);
        kinds.push(body.kind);
        let view = MessageView::parse(&vector.message);
        if vector.several_bodies {
            assert_eq!(view.unwrap_err(), MessageError::SeveralBodies, "{}", vector.name);
        } else {
            let view = view.unwrap();
            assert_eq!((view.body(), view.check()), (body, Ok(())), "{}", vector.name);
        }
    }
    for kind in [
        BodyKind::None,
        BodyKind::Text,
        BodyKind::Bytes,
        BodyKind::Map,
        BodyKind::Stream,
        BodyKind::Object,
        BodyKind::Uploaded,
        BodyKind::Foreign,
    ] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
    assert!(kinds.len() >= 40, "{} vectors", kinds.len());
}

#[test]
fn the_body_that_counts_is_the_one_that_protobuf_decodes() {
    for vector in vectors() {
        let kind = match Message::decode(&*vector.message).unwrap().body {
            None => BodyKind::None,
            Some(Body::Text(_)) => BodyKind::Text,
            Some(Body::Bytes(_)) => BodyKind::Bytes,
            Some(Body::Map(_)) => BodyKind::Map,
            Some(Body::Stream(_)) => BodyKind::Stream,
            Some(Body::Object(_)) => BodyKind::Object,
            Some(Body::Uploaded(_)) => BodyKind::Uploaded,
            Some(Body::Foreign(_)) => BodyKind::Foreign,
        };
        assert_eq!(last_body(&vector.message).kind, kind, "{}", vector.name);
    }
}

#[test]
fn the_reference_to_an_upload_and_the_other_fields_are_not_in_the_sum() {
    let sum = |message: Message, uploaded: &[u8]| {
        let bytes = message.encode_to_vec();
        MessageView::parse(&bytes).unwrap().body().checksum(uploaded)
    };
    let text = |priority| Message {
        priority: Some(priority),
        body: Some(Body::Text("body".to_owned())),
        ..Message::default()
    };
    assert_eq!(sum(text(1), b""), sum(text(9), b""));
    assert_eq!(sum(text(1), b""), sum(text(1), b"somebody else's upload"));
    let bytes = Message {
        body: Some(Body::Bytes(b"body".to_vec())),
        ..Message::default()
    };
    assert_eq!(sum(bytes, b""), sum(text(1), b""), "the kind is not in it");
    let uploaded = |upload_id| Message {
        body: Some(Body::Uploaded(crate::proto::UploadedBody {
            upload_id,
            ..Default::default()
        })),
        ..Message::default()
    };
    assert_eq!(sum(uploaded(7), b"body"), sum(text(1), b""));
    assert_ne!(sum(uploaded(7), b"body"), sum(uploaded(7), b"bodY"));
}
