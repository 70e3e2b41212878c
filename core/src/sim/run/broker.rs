//! The world of a run: clients, the machine, and the wires between them, one step at a time.

use super::client::Client;
use super::env::Env;
use super::follower::Follower;
use super::link::Down;
use super::machine::Machine;
use super::places::Places;
use super::scene;
use crate::proto::ServerBatch;
use crate::sim::history::Event;
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
    /// Times the broker stopped and started.
    pub restarts: u64,
    /// Nothing goes wrong any more.
    pub calm: bool,
    /// The last number of a stream.
    pub last_stream: u64,
    /// The last number of a producer.
    pub producers: u32,
    pub(super) comparisons: u64,
    pub(super) stalled: Stalled,
    second: u64,
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
        let plans = scene::clients(&mut env);
        env.tell(|| format!("{plans:#?}"));
        let clients = (0u32..)
            .zip(plans)
            .map(|(id, plan)| Client::new(id, plan, &mut producers))
            .collect();
        let mut follower = env.random.one_in(2).then(|| Follower::new(&machine, seed));
        if let (Some(follower), Some(engine)) = (&mut follower, &mut machine.engine) {
            follower.claim(&mut env, engine.state_mut());
        }
        Self {
            env,
            machine,
            clients,
            places: Places::new(&queues),
            zombies: Vec::new(),
            purges: Vec::new(),
            deciding: Vec::new(),
            follower,
            restarts: 0,
            calm: false,
            last_stream: 0,
            producers,
            comparisons: 0,
            stalled: Stalled::default(),
            second: 0,
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
        match self.env.random.below(100) {
            0..=17 => self.client_acts(),
            18..=37 => self.batch_arrives(),
            38..=54 => self.client_reads(),
            55..=69 => self.broker_puts_out(),
            70..=79 if turn(&mut self.stalled.writer) => {
                self.machine.step_write(&mut self.env);
            }
            // While one thread waits for the disk, the other one has it to itself.
            70..=84 if turn(&mut self.stalled.background) => self.upkeep_goes_on(),
            70..=84 => {}
            85..=88 if turn(&mut self.stalled.background) => {
                self.machine.step_reads(&mut self.env);
            }
            85..=88 => {}
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
        if self.clients[index].link.is_some() {
            self.clients[index].act(&mut self.env);
        } else {
            self.connect(index);
        }
    }

    /// Lets a client greet on a new stream.
    pub fn connect(&mut self, index: usize) {
        let Some(engine) = &mut self.machine.engine else { return };
        self.last_stream += 1;
        engine.tick(self.env.now());
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
        let Some(engine) = &mut self.machine.engine else {
            return false;
        };
        let Some(link) = &mut self.clients[index].link else {
            return false;
        };
        let Some(batch) = link.up.pop_front() else { return false };
        self.env
            .tell(|| format!("client {index} is heard on stream {}", link.stream));
        engine.handle(link.stream, &batch);
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
        let engine = self.machine.engine.as_ref();
        if engine.is_some_and(|engine| engine.state().out_of_space()) {
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
        self.poll();
        let ready: Vec<u64> = self.machine.ready.iter().copied().collect();
        if let Some(stream) = self.env.pick(&ready) {
            self.take_output(stream);
        }
        self.close_ended();
    }

    /// Asks the broker what is ready; notes purges that have become durable.
    pub fn poll(&mut self) -> Option<u64> {
        let deadline = self.machine.poll();
        self.settle_decisions();
        if let Some(engine) = &self.machine.engine {
            let committed = engine.state().committed();
            let (durable, waiting) = std::mem::take(&mut self.purges)
                .into_iter()
                .partition(|(_, end)| committed >= *end);
            self.purges = waiting;
            let durable: Vec<(crate::sim::facts::PlaceId, crate::log::Position)> = durable;
            durable
                .into_iter()
                .for_each(|(place, _)| self.env.note(Event::Purged(place)));
        }
        deadline
    }

    /// Takes one batch from a stream. Whether there was one.
    pub fn take_output(&mut self, stream: u64) -> bool {
        if self.zombies.contains(&stream) {
            // Nobody puts anything on a wire that is cut.
            self.machine.ready.remove(&stream);
            return false;
        }
        let bytes_max = self.env.pick(&[200, 4 << 10, 1 << 20]).unwrap_or(4096);
        let Some(engine) = &mut self.machine.engine else {
            return false;
        };
        let Some(bytes) = engine.take_output(stream, bytes_max) else {
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
        let Some(engine) = &self.machine.engine else { return };
        let ended: Vec<usize> = (0..self.clients.len())
            .filter(|index| {
                let link = self.clients[*index].link.as_ref();
                link.is_some_and(|link| link.down.is_empty() && engine.is_closing(link.stream))
            })
            .collect();
        for index in ended {
            self.cut(index, true);
        }
    }

    /// One step of the upkeep that is under way, or, when it meets a fast disk, several pieces of it.
    fn upkeep_goes_on(&mut self) {
        let steps = self.env.pick(&[1, 1, 3, 12]).unwrap_or(1);
        for _ in 0..steps {
            self.machine.step_upkeep(&mut self.env);
        }
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
        let second = self.env.clock.monotonic_ms() / 1000;
        if second != self.second {
            self.second = second;
            self.machine.once_a_second();
        }
    }

    /// Sends what is durable to the follower.
    fn follower_reads(&mut self) {
        if let (Some(follower), Some(engine)) = (&mut self.follower, &mut self.machine.engine) {
            follower.read(&mut self.env, engine.state_mut());
        }
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
        let (Some(place), Some(engine)) = (self.places.queue(name), &mut self.machine.engine) else {
            return;
        };
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
