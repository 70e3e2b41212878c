//! What the engine itself costs: frames of published messages in, deliveries out, acknowledgements in. The disk's time is
//! not counted (its jobs run between the timed stretches), nor is gRPC. Times are the thread's own on a processor, so that
//! whatever else the machine does counts little.
//!
//! `cargo run --release --example engine_bench -- [messages]`

use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use sterna_core::engine::{Answer, Engine, Question, Settings};
use sterna_core::log::FileDisk;
use sterna_core::proto::{self, client_frame::Frame, reply, server_frame};
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
        let begin = on_processor();
        self.engine.handle(1, &batch);
        on_processor().saturating_sub(begin)
    }

    fn settle(&mut self) -> Result<(), Fault> {
        let now = self.engine.now();
        self.engine.tick(Now {
            wall_ms: now.wall_ms + 1,
            monotonic_ms: now.monotonic_ms + 1,
        });
        loop {
            let polled = self.engine.poll();
            for ticket in polled.tickets {
                let answer = match ticket.question {
                    Question::Hello { .. } | Question::Pattern { .. } => Answer::Admitted { user: String::new() },
                    Question::Destination { .. } | Question::Properties { .. } => Answer::Create(Properties::default()),
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

    /// The source in the answer that opens the consumer.
    fn opened_source(&mut self) -> Result<u64, Fault> {
        let batch = self.engine.take_output(1, 4096).ok_or("the consumer was not opened")?;
        let batch = proto::ServerBatch::decode(&*batch)?;
        let opened = batch.frames.into_iter().find_map(|frame| match frame.frame {
            Some(server_frame::Frame::Reply(proto::Reply {
                result: Some(reply::Result::ConsumerOpened(opened)),
                ..
            })) => Some(opened.source),
            _ => None,
        });
        Ok(opened.ok_or("the consumer was not opened")?)
    }

    fn drain(&mut self) -> Duration {
        let begin = on_processor();
        while let Some(batch) = self.engine.take_output(1, 1 << 20) {
            self.out = batch;
        }
        on_processor().saturating_sub(begin)
    }
}

/// The time this thread has spent on a processor.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
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

#[expect(clippy::too_many_lines, reason = "a script, from begin to end")]
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
    let source = bench.opened_source()?;
    let mut delivering = Duration::ZERO;
    let mut acknowledging = Duration::ZERO;
    let mut done = 0;
    while done + 4096 < sent {
        done += 4096;
        while bench.engine.connections()[0].delivered_total < done {
            bench.settle()?;
            delivering += bench.drain();
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
        let begin = on_processor();
        bench.send(
            1,
            Frame::Credit(proto::Credit {
                consumer: 1,
                message_limit: done + 4096,
                ..Default::default()
            }),
        );
        bench.engine.poll();
        delivering += on_processor().saturating_sub(begin);
    }
    println!("deliver (poll and take_output): {}", rate(done, delivering));
    println!("acknowledge (handle, ranges of 256): {}", rate(done, acknowledging));
    let left = bench.engine.broker_totals().totals.messages;
    println!("left in the queue: {left} of {sent} (expected about {})", sent - done);
    Ok(())
}
