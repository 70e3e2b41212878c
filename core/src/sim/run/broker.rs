//! The world of a run: clients, the machine, and the wires between them, one step at a time.

use super::auditing::Auditor;
use super::client::Client;
use super::env::{Beside, Env};
use super::follower::Follower;
use super::link::{Down, Link};
use super::machine::Machine;
use super::places::Places;
use super::scene;
use crate::proto::ServerBatch;
use crate::sim::history::Event;
use crate::sim::{Random, Worker};
use prost::Message as _;

/// See the module's documentation.
pub struct World {
    /// What all parts share.
    pub env: Env,
    /// The broker and its disk.
    pub machine: Machine,
    /// Who is connected.
    pub clients: Vec<Client>,
    /// Which consumers take from where.
    pub places: Places,
    /// Streams that were cut and of which the broker does not know yet.
    pub zombies: Vec<u64>,
    /// Purges whose durability has to be waited for: the log's end then.
    pub purges: Vec<(crate::sim::facts::PlaceId, crate::log::Position)>,
    /// Decisions about prepared transactions whose durability has to be waited for.
    pub deciding: Vec<(super::env::Prepared, crate::log::Position)>,
    /// A second state fed from the first one's log.
    pub follower: Option<Follower>,
    /// Whoever exports cuts, in some runs.
    pub auditor: Option<Auditor>,
    /// Times the broker stopped and started.
    pub restarts: u64,
    /// Nothing goes wrong any more.
    pub calm: bool,
    /// The last number of a stream.
    pub last_stream: u64,
    /// The last number of a producer.
    pub producers: u32,
    pub(super) comparisons: u64,
    pub(super) takeovers: u64,
    pub(super) probes: u64,
    /// The wall clock was set in this run.
    pub(super) wall_jumped: bool,
    pub(super) stalled: Stalled,
}

/// Which thread of the host gets no further for a while, and for how many more of its turns.
#[derive(Clone, Copy, Default)]
pub(super) struct Stalled {
    /// The log's writer: what is appended waits, and with it whatever is told when it is durable.
    pub writer: u64,
    /// The one for reads and upkeep.
    pub background: u64,
}

impl World {
    /// A world at its beginning.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut env = Env::new(seed);
        let queues = scene::places(&mut env);
        let mut machine = Machine::new(&mut env, seed);
        let mut producers = 0;
        let mut plans = scene::clients(&mut env);
        if env.beside == Beside::Names {
            scene::name_producers(&mut plans, &mut Random::new(seed));
        }
        env.tell(|| format!("{plans:#?}"));
        let clients = (0u32..)
            .zip(plans)
            .map(|(id, plan)| Client::new(id, plan, &mut producers))
            .collect();
        let mut follower = env.random.one_in(2).then(|| Follower::new(&machine, seed));
        let auditor = env.audits.then(|| Auditor::new(&mut env));
        machine.bounds = auditor.as_ref().map(Auditor::bounds);
        machine.start(&mut env, follower.as_mut());
        Self {
            env,
            machine,
            clients,
            places: Places::new(&queues),
            zombies: Vec::new(),
            purges: Vec::new(),
            deciding: Vec::new(),
            follower,
            auditor,
            restarts: 0,
            calm: false,
            last_stream: 0,
            producers,
            comparisons: 0,
            takeovers: 0,
            probes: 0,
            wall_jumped: false,
            stalled: Stalled::default(),
        }
    }

    /// How often a follower was found equal.
    #[must_use]
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// One step.
    pub fn step(&mut self) {
        self.restart_if_finished();
        if self.env.audits && self.env.random.one_in(8) {
            self.exporter_acts();
        }
        match self.env.random.below(100) {
            0..=17 => self.client_acts(),
            18..=37 => self.batch_arrives(),
            38..=54 => self.client_reads(),
            55..=69 => self.broker_puts_out(),
            70..=88 => self.workers_go_on(),
            89..=91 => {
                self.answer();
            }
            92..=95 => self.time_passes(),
            96 => self.follower_reads(),
            97 if self.env.random.one_in(2) => {
                self.coordinate();
            }
            97 => self.purge(),
            _ => self.something_breaks(),
        }
    }

    fn client_acts(&mut self) {
        let index = self.env.random.below(self.clients.len() as u64) as usize;
        if self.env.beside == Beside::Rooms {
            let host = self.machine.host.as_ref();
            self.env.room = host.map(|host| host.engine().state().log().room_left());
        }
        if self.clients[index].link.is_some() {
            self.clients[index].act(&mut self.env);
        } else {
            self.connect(index);
        }
    }

    /// Lets a client greet on a new stream.
    pub fn connect(&mut self, index: usize) {
        let Some(host) = &mut self.machine.host else { return };
        self.last_stream += 1;
        self.machine.touched = true;
        host.tick(self.env.now());
        let engine = host.engine_mut();
        // Who sweeps up at the end stays, however long that takes.
        engine.open_stream(self.last_stream, "sim", self.clients[index].quiet);
        self.clients[index].connect(self.last_stream);
        self.clients[index].flush(&mut self.env);
    }

    fn batch_arrives(&mut self) {
        let waiting: Vec<usize> = (0..self.clients.len())
            .filter(|index| self.has_upward(*index))
            .collect();
        if let Some(index) = self.env.pick(&waiting) {
            self.deliver_upward(index);
        }
    }

    fn has_upward(&self, index: usize) -> bool {
        self.clients[index]
            .link
            .as_ref()
            .is_some_and(|link| !link.up.is_empty())
    }

    /// Hands the oldest batch of a client to the broker. Whether there was one.
    pub fn deliver_upward(&mut self, index: usize) -> bool {
        let Some(host) = &mut self.machine.host else {
            return false;
        };
        let Some(link) = &mut self.clients[index].link else {
            return false;
        };
        let Some(batch) = link.up.pop_front() else { return false };
        self.env
            .tell(|| format!("client {index} is heard on stream {}", link.stream));
        host.tick(self.env.now());
        host.handle(link.stream, &batch);
        self.machine.touched = true;
        self.note_room();
        true
    }

    /// Answers one of the broker's questions; what waited for it is handled then. Whether there was one.
    pub fn answer(&mut self) -> bool {
        let answered = self.machine.answer(&mut self.env);
        self.note_room();
        answered
    }

    /// Notes that the log has no room: what was just handled may have been refused for it.
    fn note_room(&mut self) {
        let host = self.machine.host.as_ref();
        if host.is_some_and(|host| host.engine().state().out_of_space()) {
            self.env.note(Event::OutOfRoom);
        }
    }

    fn client_reads(&mut self) {
        let waiting: Vec<usize> = (0..self.clients.len())
            .filter(|index| {
                self.clients[*index]
                    .link
                    .as_ref()
                    .is_some_and(|link| !link.slow && !link.down.is_empty())
            })
            .collect();
        if let Some(index) = self.env.pick(&waiting) {
            self.clients[index].receive(&mut self.env);
        }
    }

    fn broker_puts_out(&mut self) {
        if self.machine.is_due(&self.env) {
            self.poll();
        }
        let ready: Vec<u64> = self.machine.ready.iter().copied().collect();
        if let Some(stream) = self.env.pick(&ready) {
            self.take_output(stream);
        }
        self.close_ended();
    }

    /// Asks the broker what is ready; notes purges that have become durable.
    pub fn poll(&mut self) {
        self.poll_machine();
        self.settle_decisions();
        if let Some(host) = &self.machine.host {
            let committed = host.engine().state().committed();
            let (durable, waiting) = std::mem::take(&mut self.purges)
                .into_iter()
                .partition(|(_, end)| committed >= *end);
            self.purges = waiting;
            let durable: Vec<(crate::sim::facts::PlaceId, crate::log::Position)> = durable;
            durable
                .into_iter()
                .for_each(|(place, _)| self.env.note(Event::Purged(place)));
        }
    }

    /// Asks the broker, and looks whether a cut began or ended.
    pub(super) fn poll_machine(&mut self) {
        if let Some(auditor) = &mut self.auditor {
            auditor.look_before(&mut self.machine);
        }
        self.machine.poll(&mut self.env);
        if let Some(auditor) = &mut self.auditor {
            auditor.look_after(&mut self.env, &mut self.machine);
        }
    }

    /// Notes whose consumers are gone because the broker has ended their call: what they do not take goes to others, before
    /// they hear of it.
    fn note_given_up(&mut self) {
        let Some(host) = &self.machine.host else { return };
        for client in &mut self.clients {
            let given_up = |link: &&mut Link| !link.given_up && host.engine().has_given_up(link.stream);
            let Some(link) = client.link.as_mut().filter(given_up) else {
                continue;
            };
            link.given_up = true;
            for consumer in client.sessions.iter().flat_map(|session| &session.consumers) {
                self.env.consumer_down(consumer.id, consumer.place);
            }
        }
    }

    /// Takes one batch from a stream. Whether there was one.
    pub fn take_output(&mut self, stream: u64) -> bool {
        self.note_given_up();
        if self.zombies.contains(&stream) {
            // Nobody puts anything on a wire that is cut.
            self.machine.ready.remove(&stream);
            return false;
        }
        let bytes_max = self.env.pick(&[200, 4 << 10, 1 << 20]).unwrap_or(4096);
        let Some(host) = &mut self.machine.host else {
            return false;
        };
        let Some(bytes) = host.take_output(stream, bytes_max) else {
            self.machine.ready.remove(&stream);
            return false;
        };
        let batch = match ServerBatch::decode(bytes.as_slice()) {
            Ok(batch) => batch,
            Err(error) => {
                self.env.complaints.push(format!("a batch cannot be read: {error}"));
                return true;
            }
        };
        let mut clients = self.clients.iter_mut();
        let Some(client) = clients.find(|client| client.link.as_ref().is_some_and(|link| link.stream == stream)) else {
            self.env
                .complaints
                .push(format!("there is output for stream {stream}, which nobody has"));
            return true;
        };
        let deliveries = client.observe(&mut self.env, &mut self.places, &batch);
        if let Some(link) = &mut client.link {
            link.down.push_back(Down { batch, deliveries });
        }
        true
    }

    /// Ends the calls that the broker wants to end, once what it had to say has been read.
    pub fn close_ended(&mut self) {
        let Some(host) = &self.machine.host else { return };
        let ended: Vec<usize> = (0..self.clients.len())
            .filter(|index| {
                let link = self.clients[*index].link.as_ref();
                link.is_some_and(|link| link.down.is_empty() && host.engine().is_closing(link.stream))
            })
            .collect();
        for index in ended {
            self.cut(index, true);
        }
    }

    /// A worker does a job, or both do one each at the same time. One that is stalled gets no further meanwhile.
    fn workers_go_on(&mut self) {
        let free = (turn(&mut self.stalled.writer), turn(&mut self.stalled.background));
        match free {
            (true, true) => {
                self.workers_step();
            }
            // While one thread waits for the disk, the other one has it to itself.
            (true, false) => {
                self.machine.run(Worker::Writer);
            }
            (false, true) => {
                self.machine.run(Worker::Background);
            }
            (false, false) => {}
        }
    }

    /// Jobs of both workers at once, or one after the other, or several of one as on a fast disk. Whether there were any.
    pub(super) fn workers_step(&mut self) -> bool {
        if !self.env.random.one_in(4) && self.machine.run_both() {
            return true;
        }
        let first = self.env.pick(&[Worker::Writer, Worker::Background, Worker::Background]);
        let (first, second) = match first {
            Some(Worker::Background) => (Worker::Background, Worker::Writer),
            _ => (Worker::Writer, Worker::Background),
        };
        if !self.machine.run(first) {
            return self.machine.run(second);
        }
        let more = self.env.pick(&[0, 0, 2, 11]).unwrap_or(0);
        for _ in 0..more {
            // Its result is looked at, and the next job of its kind follows.
            self.poll();
            if !self.machine.run(first) {
                break;
            }
        }
        true
    }

    fn time_passes(&mut self) {
        let ms = self.env.pick(&[1, 1, 5, 20, 100, 400]).unwrap_or(1);
        self.advance(ms);
    }

    /// Lets time pass, and the broker notice.
    pub fn advance(&mut self, ms: u64) {
        self.env.clock.advance(ms);
        self.env.note(Event::Ticked);
        self.machine.tick(&mut self.env);
    }

    /// Sends what is durable to the follower.
    fn follower_reads(&mut self) {
        if let (Some(follower), Some(host)) = (&mut self.follower, &mut self.machine.host) {
            follower.read(
                &mut self.env,
                host.engine_mut().state_mut(),
                &self.machine.disk,
                self.calm,
            );
        }
        self.compare_now();
        if self.env.random.one_in(8) {
            self.compare_follower();
        }
    }

    fn purge(&mut self) {
        if !self.env.random.one_in(4) {
            return;
        }
        let names = ["plain", "busy", "bridged", "short"];
        let Some(name) = self.env.pick(&names) else { return };
        let (Some(place), Some(host)) = (self.places.queue(name), &mut self.machine.host) else {
            return;
        };
        let engine = host.engine_mut();
        self.machine.touched = true;
        self.env.note(Event::PurgeAsked(place));
        if engine.purge_queue(name).is_ok() {
            self.purges.push((place, engine.state().end()));
        } else {
            self.env.note(Event::PurgeRefused(place));
        }
    }
}

/// Whether a thread gets on; a turn of one that is stalled passes.
fn turn(stalled: &mut u64) -> bool {
    let free = *stalled == 0;
    *stalled = stalled.saturating_sub(1);
    free
}
