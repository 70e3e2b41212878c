//! What goes wrong in a run: power, process, disk, wires, readers, clocks.

use super::broker::World;
use super::env::Beside;
use crate::sim::history::Event;
use crate::sim::{Faults, Worker};

impl World {
    /// Starts the broker again if it cannot go on.
    pub fn restart_if_finished(&mut self) {
        if !self.machine.is_finished() {
            return;
        }
        let lives = self.machine.host.is_some() && !self.machine.disk.is_down();
        if lives && !self.calm && !self.env.random.one_in(4) {
            // Its process lives a little longer, and tells whoever is connected.
            return;
        }
        let power = self.machine.disk.is_down() || self.env.random.one_in(2);
        self.crash(power);
    }

    /// Stops the broker and starts it again, once or several times.
    pub fn crash(&mut self, power: bool) {
        self.machine.crash(&mut self.env, power);
        self.after_stop();
    }

    /// Tells everybody that the broker is gone, and starts it again.
    pub fn after_stop(&mut self) {
        self.zombies.clear();
        self.stalled = super::broker::Stalled::default();
        self.purges.clear();
        self.forget_decisions();
        for client in &mut self.clients {
            client.disconnected(&mut self.env);
        }
        self.places.restarted();
        if self.env.random.one_in(3) {
            let ms = self.env.between(1, 5000);
            self.env.clock.advance(ms);
        }
        if !self.machine.has_heir() {
            self.jump_wall(8);
        }
        self.restarts += 1;
        for attempt in 0.. {
            if !self.calm && attempt < 2 && self.env.random.one_in(4) {
                // Power may be lost again while it starts.
                let at = self.machine.disk.operations() + self.env.between(1, 12);
                self.machine.set_faults(Faults {
                    crash_at: Some(at),
                    ..Faults::default()
                });
            }
            self.env.note(Event::Started);
            self.machine.start(&mut self.env, self.follower.as_mut());
            if self.machine.host.is_some() || !self.machine.disk.is_down() {
                break;
            }
            self.machine.crash(&mut self.env, true);
        }
        if let Some(auditor) = &mut self.auditor {
            auditor.look_at_start(&mut self.env, &mut self.machine);
        }
    }

    fn jump_wall(&mut self, one_in: u64) {
        if self.env.random.one_in(one_in) {
            // Back only as far as the drain waits: after a restart delays end by the wall clock.
            let ms = self.env.pick(&[-20_000, -500, 500, 20_000]).unwrap_or(0);
            let ms = if self.env.random.one_in(8) { 3_600_000 } else { ms };
            let wall = self.env.clock.wall_ms() + ms;
            self.env.clock.set_wall(wall);
            self.wall_jumped = true;
            self.env.tell(|| format!("the wall clock jumps by {ms} ms"));
            self.advance(0);
        }
    }

    /// Cuts a client's stream. The broker hears of it at once, or later.
    pub fn cut(&mut self, index: usize, heard: bool) {
        let Some(link) = &self.clients[index].link else { return };
        let stream = link.stream;
        // Some of what was on its way arrives all the same.
        for _ in 0..self.env.random.below(4) {
            self.deliver_upward(index);
        }
        let consumers: Vec<_> = self.clients[index]
            .sessions
            .iter()
            .flat_map(|session| session.consumers.iter().map(|consumer| consumer.id))
            .collect();
        self.clients[index].disconnected(&mut self.env);
        self.zombies.push(stream);
        if heard {
            self.bury(stream);
            consumers
                .into_iter()
                .for_each(|id| self.env.note(Event::ConsumerGone(id)));
        }
    }

    /// The broker hears that a stream is gone.
    pub fn bury(&mut self, stream: u64) {
        self.zombies.retain(|other| *other != stream);
        self.machine.ready.remove(&stream);
        if let Some(host) = &mut self.machine.host {
            host.engine_mut().close_stream(stream);
            self.machine.touched = true;
        }
    }

    /// What the disk does from now on.
    fn disk_faults(&mut self, kind: u64) -> Faults {
        let operations = self.machine.disk.operations();
        match kind {
            10 | 11 => Faults {
                crash_at: Some(operations + self.env.between(1, 30)),
                ..lasting()
            },
            12 => Faults {
                fail_sync_at: Some(operations + self.env.between(1, 20)),
                fail_sync_for: self.env.pick(&[0, 5, u64::MAX]).unwrap_or(0),
                ..lasting()
            },
            13 => {
                let left_max = if self.env.beside == Beside::Rooms { 300 } else { 100_000 };
                let left = self.env.between(0, left_max);
                self.env.tell(|| format!("the disk has {left} bytes left"));
                Faults {
                    space_bytes: Some(self.machine.disk.used_bytes() + left),
                    ..lasting()
                }
            }
            14 => Faults {
                shortage_one_in: self.env.pick(&[1, 3, 12]).unwrap_or(3),
                ..lasting()
            },
            _ => lasting(),
        }
    }

    /// The broker's process ends, in one way or another; or one of its threads does.
    fn something_ends(&mut self) {
        match self.env.random.below(9) {
            8 => self.take_over(),
            0..=2 => self.crash(true),
            3 | 4 => self.crash(false),
            5 => {
                self.machine.stop(&mut self.env);
                self.after_stop();
            }
            6 => {
                self.machine.drop_host(&mut self.env);
                self.after_stop();
            }
            _ => {
                let worker = self.env.pick(&[Worker::Writer, Worker::Background]);
                self.machine
                    .break_worker(&mut self.env, worker.unwrap_or(Worker::Writer));
            }
        }
    }

    /// Breaks one thing.
    pub fn something_breaks(&mut self) {
        match self.env.random.below(26) {
            0..=4 => {
                let index = self.env.random.below(self.clients.len() as u64) as usize;
                let heard = self.env.random.one_in(2);
                self.env.tell(|| format!("client {index} is cut off"));
                self.cut(index, heard);
            }
            5..=8 => {
                if let Some(stream) = self.env.pick(&self.zombies.clone()) {
                    self.bury(stream);
                }
            }
            9 => self.something_ends(),
            kind @ 10..=15 => {
                let faults = self.disk_faults(kind);
                self.machine.set_faults(faults);
            }
            // A sync that takes its time, on one thread and not on the other.
            20..=22 => {
                self.stalled.writer = self.env.between(1, 60);
                self.env.tell(|| "the writer is stalled".to_owned());
            }
            23 => {
                self.stalled.background = self.env.between(1, 60);
                self.env.tell(|| "upkeep and reads are stalled".to_owned());
            }
            24 => self.probe_damage(),
            25 => {
                self.probe_damage();
                self.probe_live();
            }
            16 => self.jump_wall(1),
            17 | 18 => {
                let index = self.env.random.below(self.clients.len() as u64) as usize;
                if let Some(link) = &mut self.clients[index].link {
                    link.slow = !link.slow;
                }
            }
            _ => {
                // Long enough for heartbeats to be missed and slow readers to be noticed.
                let ms = self.env.pick(&[2_000, 11_000, 31_000]).unwrap_or(2_000);
                self.advance(ms);
            }
        }
    }
}

/// Faults that are there all the time: short writes.
fn lasting() -> Faults {
    Faults {
        short_write_one_in: 5,
        ..Faults::default()
    }
}
