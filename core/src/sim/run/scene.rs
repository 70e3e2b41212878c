//! What a seed's run is set in: destinations, bridges, and who connects with which sessions, producers and consumers.
//!
//! All seeds share one set of destinations, chosen so that each property stands alone somewhere; what differs is who uses
//! them, how, and what goes wrong.

use super::env::Env;
use crate::name::{DestinationName, Pattern};
use crate::proto::AcknowledgeMode;
use crate::selector::Selector;
use crate::sim::Random;
use crate::sim::facts::{BridgeFacts, Place, PlaceId, Predicate, Sort};
use crate::sim::history::Event;
use crate::state::{Bridge, BridgeTarget, Kind, OverflowPolicy, Properties, UNDELIVERED_NAME};
use std::sync::Arc;

/// Queues; each shows something else.
pub const QUEUES: [&str; 10] = [
    "plain", "busy", "limited", "only", "lazy", "small", "rolling", "short", "bridged", "forget",
];
/// Queues that nobody configured: they are made when somebody asks for them.
pub const DYNAMIC: [&str; 2] = ["made.a", "made.b"];
/// Topics.
pub const TOPICS: [&str; 4] = ["t.a.x", "t.a.y", "t.b", "t.c"];
/// A topic of which each message has as many copies as there may be, in a queue where they expire.
const WIDE: &str = "wide";
const WIDTH: usize = 128;

/// Where something is sent or taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    /// Queue or topic.
    pub sort: Sort,
    /// Name or pattern.
    pub name: String,
}

impl At {
    /// A queue.
    #[must_use]
    pub fn queue(name: &str) -> Self {
        Self {
            sort: Sort::Queue,
            name: name.to_owned(),
        }
    }

    /// A topic.
    #[must_use]
    pub fn topic(name: &str) -> Self {
        Self {
            sort: Sort::Topic,
            name: name.to_owned(),
        }
    }

    /// As on the wire.
    #[must_use]
    pub fn to_proto(&self) -> crate::proto::Destination {
        let kind = match self.sort {
            Sort::Queue => crate::proto::DestinationKind::Queue,
            Sort::Topic => crate::proto::DestinationKind::Topic,
        };
        crate::proto::Destination {
            kind: kind.into(),
            name: self.name.clone(),
        }
    }
}

/// A producer that a session has as long as its client lives.
#[derive(Clone, Debug)]
pub struct ProducerPlan {
    /// Where to; none: anonymous, to any of `Scene::targets`.
    pub at: Option<At>,
    /// Its name, if its program names it.
    pub name: Option<String>,
}

/// A consumer that a session opens whenever it is connected.
#[derive(Clone, Debug)]
pub struct ConsumerPlan {
    /// Where from.
    pub at: At,
    /// What it selects.
    pub predicate: Predicate,
    /// Not what its own client sent.
    pub no_local: bool,
    /// Name, durable, shared.
    pub subscription: Option<(String, bool, bool)>,
    /// Only looks.
    pub browse: bool,
}

/// A session of a client.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// How it acknowledges.
    pub mode: AcknowledgeMode,
    /// It does nothing but take, send on and commit, one after the other.
    pub relays: bool,
    /// Who sends.
    pub producers: Vec<ProducerPlan>,
    /// Who takes.
    pub consumers: Vec<ConsumerPlan>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Its client id.
    pub client_id: String,
    /// Its sessions.
    pub sessions: Vec<SessionPlan>,
}

/// All queues.
pub fn queues() -> impl Iterator<Item = &'static str> {
    QUEUES.into_iter().chain(DYNAMIC)
}

fn any_queue(env: &mut Env) -> At {
    let names: Vec<&str> = queues().collect();
    At::queue(env.pick(&names).unwrap_or("plain"))
}

/// The properties of a queue by its name.
#[must_use]
pub fn properties(name: &str) -> Properties {
    let plain = Properties::default();
    match name {
        "limited" => Properties {
            redelivery_max: 3,
            redelivery_delay_ms: 300,
            ..plain
        },
        "only" => Properties {
            exclusive: true,
            ..plain
        },
        "lazy" => Properties {
            store: "$sys.nonfailsafe".to_owned(),
            ..plain
        },
        "small" => Properties {
            messages_max: 12,
            overflow: OverflowPolicy::RejectIncoming,
            ..plain
        },
        "rolling" => Properties {
            messages_max: 12,
            overflow: OverflowPolicy::DiscardOld,
            ..plain
        },
        "short" => Properties {
            expiration_ms: Some(1500),
            ..plain
        },
        _ => plain,
    }
}

/// What the checker knows of the queues, `$sys.undelivered` last.
pub fn places(env: &mut Env) -> Vec<PlaceId> {
    let mut places = Vec::new();
    for name in queues() {
        let properties = properties(name);
        places.push(env.place(Place {
            redelivery_max: u32::from(properties.redelivery_max),
            redelivery_delay_ms: properties.redelivery_delay_ms,
            exclusive: properties.exclusive,
            may_discard: name == "rolling",
            refuses_late: name == "small",
            at_most_once: name == "forget",
            expiration_ms: properties.expiration_ms,
            ..Place::queue(name)
        }));
    }
    places.push(env.place(Place {
        undelivered: true,
        ..Place::queue(UNDELIVERED_NAME)
    }));
    for place in &places {
        env.note(Event::PlaceUp(*place));
    }
    env.history.facts.bridges = bridges();
    places
}

/// The bridges: with and without selectors, from a pattern, overlapping, and one that would chain.
#[must_use]
pub fn bridges() -> Vec<BridgeFacts> {
    let bridge = |from: &At, to: &At, predicate| BridgeFacts {
        from_sort: from.sort,
        from: from.name.clone(),
        to_sort: to.sort,
        to: to.name.clone(),
        predicate,
    };
    let wide = std::iter::repeat_with(|| bridge(&At::topic(WIDE), &At::queue("short"), Predicate::All));
    let others = [
        bridge(&At::topic("t.a.*"), &At::queue("bridged"), Predicate::Color(1)),
        bridge(&At::topic("t.a.x"), &At::queue("bridged"), Predicate::Heavier(70)),
        bridge(&At::queue("busy"), &At::topic("t.c"), Predicate::All),
        // Would chain from `t.a.*`, and must not.
        bridge(&At::queue("bridged"), &At::queue("plain"), Predicate::All),
    ];
    others.into_iter().chain(wide.take(WIDTH)).collect()
}

/// The bridges as the state takes them.
#[must_use]
pub fn compiled_bridges() -> Vec<Bridge> {
    let kind = |sort| match sort {
        Sort::Queue => Kind::Queue,
        Sort::Topic => Kind::Topic,
    };
    bridges()
        .into_iter()
        .enumerate()
        .filter_map(|(number, facts)| {
            let text = facts.predicate.text();
            let selector = if text.is_empty() {
                None
            } else {
                Some(Arc::new(Selector::parse(&text).ok()?))
            };
            let name = DestinationName::parse(&facts.to).ok()?;
            let target = BridgeTarget {
                kind: kind(facts.to_sort),
                name,
                selector,
            };
            let source = Pattern::parse(&facts.from).ok()?;
            Some(Bridge {
                name: number.to_string(),
                kind: kind(facts.from_sort),
                source,
                targets: vec![target],
            })
        })
        .collect()
}

/// Who takes part.
pub fn clients(env: &mut Env) -> Vec<ClientPlan> {
    if env.random.one_in(4) {
        return relay(env);
    }
    let count = env.between(2, 4);
    (0..count)
        .map(|number| {
            let sessions = env.between(1, 2);
            let mut plans: Vec<SessionPlan> = (0..sessions).map(|_| session(env, number)).collect();
            if number == 0 {
                // Somebody sends in every run.
                plans[0].producers.push(ProducerPlan {
                    at: Some(At::queue("plain")),
                    name: None,
                });
            }
            ClientPlan {
                client_id: format!("client-{number}"),
                sessions: plans,
            }
        })
        .collect()
}

/// Some of those who send name their producers. Not in transacted sessions, where nobody may.
pub fn name_producers(plans: &mut [ClientPlan], random: &mut Random) {
    let sessions = plans.iter_mut().flat_map(|client| client.sessions.iter_mut());
    let sessions = sessions.filter(|session| session.mode != AcknowledgeMode::Transacted);
    for (number, producer) in (0_u32..).zip(sessions.flat_map(|session| session.producers.iter_mut())) {
        if producer.at.is_some() && !random.one_in(4) {
            producer.name = Some(format!("program {number}"));
        }
    }
}

/// Messages go from one queue to the next by transactions alone: what holds a segment is gone with a single commit, and
/// nothing else ends anything.
fn relay(env: &mut Env) -> Vec<ClientPlan> {
    let stations = ["plain", "made.a", "limited", "made.b"];
    let hops = env.between(1, 3) as usize;
    let producer = |name: &str| ProducerPlan {
        at: Some(At::queue(name)),
        name: None,
    };
    let taking = |name: &str| ConsumerPlan {
        at: At::queue(name),
        predicate: Predicate::All,
        no_local: false,
        subscription: None,
        browse: false,
    };
    let mut sessions = vec![SessionPlan {
        mode: AcknowledgeMode::Individual,
        relays: false,
        producers: vec![producer(stations[0]), producer(stations[0])],
        consumers: Vec::new(),
    }];
    sessions.extend(stations.windows(2).take(hops).map(|hop| SessionPlan {
        mode: AcknowledgeMode::Transacted,
        relays: true,
        producers: vec![producer(hop[1])],
        consumers: vec![taking(hop[0])],
    }));
    let plan = |(number, session)| ClientPlan {
        client_id: format!("client-{number}"),
        sessions: vec![session],
    };
    sessions.into_iter().enumerate().map(plan).collect()
}

fn session(env: &mut Env, client: u64) -> SessionPlan {
    use AcknowledgeMode::{Auto, Client, DupsOk, ExplicitClient, ExplicitClientDupsOk, Individual, None, Transacted};
    let modes = [
        Auto,
        Client,
        DupsOk,
        None,
        ExplicitClient,
        ExplicitClientDupsOk,
        Individual,
        Transacted,
        Transacted,
    ];
    let mode = env.pick(&modes).unwrap_or(Individual);
    let producers = (0..env.between(0, 2)).map(|_| producer(env)).collect();
    let consumers = (0..env.between(0, 3)).map(|_| consumer(env, client, mode)).collect();
    SessionPlan {
        mode,
        relays: false,
        producers,
        consumers,
    }
}

fn producer(env: &mut Env) -> ProducerPlan {
    if env.random.one_in(60) {
        return ProducerPlan {
            at: Some(At::topic(WIDE)),
            name: None,
        };
    }
    ProducerPlan {
        at: if env.random.one_in(4) { None } else { Some(target(env)) },
        name: None,
    }
}

/// Where a message may be sent.
pub fn target(env: &mut Env) -> At {
    if env.random.one_in(3) {
        At::topic(env.pick(&TOPICS).unwrap_or("t.b"))
    } else {
        any_queue(env)
    }
}

fn consumer(env: &mut Env, client: u64, mode: AcknowledgeMode) -> ConsumerPlan {
    let predicate = match env.random.below(6) {
        0 => Predicate::Color(env.random.below(3) as i64),
        1 => Predicate::Heavier(50),
        _ => Predicate::All,
    };
    let plain = ConsumerPlan {
        at: At::queue("plain"),
        predicate,
        no_local: false,
        subscription: None,
        browse: false,
    };
    if mode == AcknowledgeMode::None {
        // Where it may take from, nothing is owed.
        return ConsumerPlan {
            at: At::queue("forget"),
            ..plain
        };
    }
    match env.random.below(10) {
        0..=5 => ConsumerPlan {
            at: any_queue(env),
            browse: env.random.one_in(6),
            ..plain
        },
        6 => ConsumerPlan {
            at: At::topic(env.pick(&["t.a.*", "t.>", "t.a.x", "t.b"]).unwrap_or("t.b")),
            no_local: env.random.one_in(3),
            ..plain
        },
        7 => ConsumerPlan {
            // A durable belongs to its client, so each client has its own of this name.
            at: At::topic("t.a.*"),
            predicate: if client & 1 == 0 {
                Predicate::All
            } else {
                Predicate::Color(1)
            },
            subscription: Some(("mine".to_owned(), true, false)),
            browse: false,
            no_local: client == 1,
        },
        8 => ConsumerPlan {
            at: At::topic("t.>"),
            predicate: Predicate::All,
            no_local: false,
            subscription: Some(("wide".to_owned(), true, true)),
            browse: false,
        },
        _ => ConsumerPlan {
            at: At::topic("t.b"),
            predicate: Predicate::All,
            no_local: false,
            subscription: Some(("team".to_owned(), false, true)),
            browse: false,
        },
    }
}
