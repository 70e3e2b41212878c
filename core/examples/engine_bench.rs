//! What the engine itself costs: frames of published messages in, deliveries out, acknowledgements in. The disk's time is
//! not counted (its jobs run between the timed stretches), nor is gRPC.
//!
//! `cargo run --release --example engine_bench -- [messages]`

use prost::Message as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use sterna_core::engine::{Answer, Engine, Question, Settings};
use sterna_core::log::FileDisk;
use sterna_core::proto::{self, client_frame::Frame, server_frame};
use sterna_core::state::{Now, Properties, State, StateOptions};

const FRAME_MESSAGES: u64 = 64;
const WINDOW_FRAMES: u64 = 64;

type Fault = Box<dyn std::error::Error>;

struct Bench {
    engine: Engine,
    out: Vec<u8>,
}

impl Bench {
    fn send(&mut self, session: u32, frame: Frame) -> Duration {
        let frame = proto::ClientFrame {
            session,
            request: 1,
            frame: Some(frame),
        };
        let batch = proto::ClientBatch { frames: vec![frame] }.encode_to_vec();
        let begin = Instant::now();
        self.engine.handle(1, &batch);
        begin.elapsed()
    }

    fn settle(&mut self) -> Result<(), Fault> {
        loop {
            let polled = self.engine.poll();
            for ticket in polled.tickets {
                let answer = match ticket.question {
                    Question::Hello { .. } => Answer::Admitted { user: String::new() },
                    Question::Destination { .. } => Answer::Create(Properties::default()),
                };
                self.engine.answer(ticket.ticket, answer);
            }
            let job = self.engine.next_write()?;
            let idle = job.is_none();
            if let Some(job) = job {
                self.engine.complete_write(job.run())?;
            }
            while let Some(job) = self.engine.maintenance()? {
                self.engine.complete_maintenance(job.run())?;
            }
            for job in self.engine.take_reads() {
                self.engine.complete_read(job.run());
            }
            if idle {
                return Ok(());
            }
        }
    }

    fn drain(&mut self) -> Duration {
        let begin = Instant::now();
        while let Some(batch) = self.engine.take_output(1, 1 << 20) {
            self.out = batch;
        }
        begin.elapsed()
    }
}

fn message() -> Vec<u8> {
    let property = |name: &str, value| proto::Property {
        name: name.to_owned(),
        value: Some(proto::Value { kind: Some(value) }),
    };
    proto::Message {
        properties: vec![
            property("carrier", proto::value::Kind::StringValue("UA".to_owned())),
            property("flight", proto::value::Kind::IntValue(1545)),
            property("delayed", proto::value::Kind::BoolValue(true)),
        ],
        body: Some(proto::message::Body::Bytes(vec![7; 1024])),
        ..Default::default()
    }
    .encode_to_vec()
}

fn rate(messages: u64, spent: Duration) -> String {
    format!("{:.2} M/s", messages as f64 / spent.as_secs_f64() / 1e6)
}

fn main() -> Result<(), Fault> {
    let messages: u64 = std::env::args().nth(1).map_or(Ok(400_000), |text| text.parse())?;
    let frames = messages / FRAME_MESSAGES;
    let folder = tempfile::tempdir()?;
    let now = Now {
        wall_ms: 1_700_000_000_000,
        monotonic_ms: 1,
    };
    let (state, _) = State::open(Arc::new(FileDisk::new(folder.path())?), StateOptions::default(), now)?;
    let mut bench = Bench {
        engine: Engine::new(state, Settings::default(), now),
        out: Vec::new(),
    };
    bench.engine.open_stream(1, "bench", true);
    bench.send(
        0,
        Frame::Hello(proto::Hello {
            protocol_version: 1,
            ..Default::default()
        }),
    );
    bench.settle()?;
    bench.send(1, Frame::OpenSession(proto::OpenSession::default()));
    let queue = || {
        Some(proto::Destination {
            kind: 1,
            name: "bench".to_owned(),
        })
    };
    bench.send(
        1,
        Frame::OpenProducer(proto::OpenProducer {
            producer: 1,
            destination: queue(),
            ..Default::default()
        }),
    );
    bench.settle()?;
    bench.drain();

    let message = bytes::Bytes::from(message());
    let mut publishing = Duration::ZERO;
    let mut confirming = Duration::ZERO;
    for index in 0..frames {
        publishing += bench.send(
            1,
            Frame::Publish(proto::Publish {
                producer: 1,
                first_sequence: index * FRAME_MESSAGES + 1,
                messages: vec![message.clone(); FRAME_MESSAGES as usize],
                ..Default::default()
            }),
        );
        if index % WINDOW_FRAMES == 0 {
            bench.settle()?;
            confirming += bench.drain();
        }
    }
    bench.settle()?;
    confirming += bench.drain();
    let sent = frames * FRAME_MESSAGES;
    println!(
        "publish (handle, frames of {FRAME_MESSAGES} x {} bytes): {}",
        message.len(),
        rate(sent, publishing)
    );
    println!("confirm (take_output): {}", rate(sent, confirming));

    let credit = proto::Credit {
        message_limit: 4096,
        ..Default::default()
    };
    bench.send(
        1,
        Frame::OpenConsumer(proto::OpenConsumer {
            consumer: 1,
            destination: queue(),
            credit: Some(credit),
            ..Default::default()
        }),
    );
    bench.settle()?;
    bench.drain();
    let mut delivering = Duration::ZERO;
    let mut acknowledging = Duration::ZERO;
    let mut source = 0;
    let mut done = 0;
    while done + 4096 < sent {
        done += 4096;
        bench.settle()?;
        delivering += bench.drain();
        if source == 0 {
            source = proto::ServerBatch::decode(&*bench.out)?
                .frames
                .iter()
                .find_map(|frame| matches!(frame.frame, Some(server_frame::Frame::Deliver(_))).then_some(16))
                .unwrap_or(16);
        }
        let sets = |first, last| {
            vec![proto::AckSet {
                source,
                ranges: vec![proto::SequenceRange { first, last }],
                epoch: 0,
            }]
        };
        for step in 0..16 {
            let first = done - 4096 + step * 256 + 1;
            acknowledging += bench.send(
                1,
                Frame::Acknowledge(proto::Ack {
                    sets: sets(first, first + 255),
                    transaction: 0,
                }),
            );
        }
        let begin = Instant::now();
        bench.send(
            1,
            Frame::Credit(proto::Credit {
                consumer: 1,
                message_limit: done + 4096,
                ..Default::default()
            }),
        );
        bench.engine.poll();
        delivering += begin.elapsed();
    }
    println!("deliver (poll and take_output): {}", rate(done, delivering));
    println!("acknowledge (handle, ranges of 256): {}", rate(done, acknowledging));
    let left = bench.engine.broker_totals().totals.messages;
    println!("left in the queue: {left} of {sent} (expected about {})", sent - done);
    Ok(())
}
