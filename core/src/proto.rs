//! The wire contract as Rust types, generated from `proto/sterna/v1` by `core/protogen` (`make generate`).
//!
//! For the frames that are rare: hello, sessions, producers, consumers, transactions, and every frame in tests. Publish,
//! deliver and acknowledge are read and written by hand with [`crate::wire`]. Fields that carry payloads are
//! [`bytes::Bytes`], so decoding a frame from `Bytes` copies none of them.

// What protoc's comments say stands in the protos; generated code is not held to the rules for written code.
#![allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]

include!("proto/sterna.v1.rs");
