//! Writes `core/src/proto/sterna.v1.rs` from `proto/sterna/v1/{message,messaging}.proto`.
//!
//! Run as `cargo run --manifest-path core/protogen/Cargo.toml`, from any folder. The result is committed, and the same
//! protos give the same bytes, so a check can run this and ask whether anything changed. The protos are compiled by
//! `protox`: no `protoc` needs to be installed. With a folder as its argument the program writes there instead.

use std::error::Error;
use std::path::{Path, PathBuf};

/// Fields that carry message payloads: shared slices of the frame they came in, instead of copies.
const SHARED_BYTES: [&str; 3] = [
    ".sterna.v1.Publish.messages",
    ".sterna.v1.Delivery.message",
    ".sterna.v1.Upload.data",
];

fn main() -> Result<(), Box<dyn Error>> {
    // Asked when running, not when compiling: a repository that was moved keeps its compiled programs.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let core = Path::new(&here).join("..");
    let out = std::env::args_os()
        .nth(1)
        .map_or_else(|| core.join("src/proto"), PathBuf::from);
    let protos = core.join("../proto");
    let files = ["sterna/v1/message.proto", "sterna/v1/messaging.proto"].map(|file| protos.join(file));
    let descriptors = protox::compile(files, [protos])?;
    std::fs::create_dir_all(&out)?;
    prost_build::Config::new()
        .bytes(SHARED_BYTES)
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
