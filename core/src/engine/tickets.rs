//! Tickets: what the compiled tables do not know, the host is asked.
//!
//! While a ticket is open, the frames that follow on that session (on the stream, for a greeting) are parked in order;
//! the answer lets them go on. Whether a client may connect, and whether a destination may be created and with which
//! properties, are policies: they live in the host, not here.

use super::engine::Engine;
use super::errors::{Refused, refuse};
use super::session::Verdict;
use crate::name::DestinationName;
use crate::proto::{ErrorCode, Hello};
use crate::state::{DestinationId, Kind, Origin, Properties, SourceId, Viewed};

/// Destinations whose properties one poll asks for.
const PROPERTIES_MAX: usize = 256;

/// What a destination is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To send to it.
    Produce,
    /// To take from it.
    Consume,
    /// To look at it.
    Browse,
}

impl Purpose {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Browse => "browse",
        }
    }
}

/// What the host is asked.
#[derive(Debug, Clone)]
pub enum Question {
    /// May this client connect?
    Hello {
        /// What it says of itself, credentials included.
        hello: Box<Hello>,
        /// Where it comes from.
        peer: String,
        /// Whether the stream is the broker's own.
        internal: bool,
    },
    /// May this destination, which does not exist, be created?
    Destination {
        /// Queue or topic.
        kind: Kind,
        /// Its name.
        name: DestinationName,
        /// What for.
        purpose: Purpose,
        /// The user who wants it.
        user: String,
    },
    /// What is this dynamic destination, which exists, configured to do? Nobody waits for the answer but its messages.
    Properties {
        /// Queue or topic.
        kind: Kind,
        /// Its name.
        name: DestinationName,
    },
    /// May this pattern of topics be subscribed to here?
    Pattern {
        /// The pattern's text.
        pattern: String,
        /// The user who wants it.
        user: String,
    },
}

/// A question with the number by which it is answered.
#[derive(Debug, Clone)]
pub struct TicketRequest {
    /// Names the ticket in the answer.
    pub ticket: u64,
    /// The stream it came from.
    pub stream: u64,
    /// The question.
    pub question: Question,
}

/// What the host answers.
#[derive(Debug)]
pub enum Answer {
    /// The client may connect, as this user; or the pattern may be subscribed to.
    Admitted {
        /// Empty: anonymous.
        user: String,
    },
    /// The destination may be created with these properties.
    Create(Properties),
    /// No.
    Refused(Refused),
}

/// A ticket that waits for its answer.
#[derive(Debug)]
pub enum Ticket {
    /// A greeting.
    Hello {
        /// The stream.
        stream: u64,
        /// The greeting, to go on with.
        hello: Box<Hello>,
    },
    /// A destination.
    Destination {
        /// The key of the session that waits.
        session: u64,
        /// Queue or topic.
        kind: Kind,
        /// Its name.
        name: DestinationName,
    },
    /// The properties of a destination.
    Properties {
        /// The destination.
        id: DestinationId,
    },
    /// A pattern.
    Pattern {
        /// The key of the session that waits.
        session: u64,
        /// Its text.
        pattern: String,
    },
}

/// What the tables say about a destination.
pub(super) enum Resolved {
    /// It exists.
    Known(DestinationId),
    /// The host has been asked; the frame has to wait.
    Asked,
}

impl Engine {
    /// Asks the host about a greeting.
    pub(super) fn ask_hello(&mut self, stream: u64, hello: Hello) {
        let ticket = self.next_key();
        let Some(state) = self.streams.get(&stream) else { return };
        let hello = Box::new(hello);
        let question = Question::Hello {
            hello: hello.clone(),
            peer: state.peer.clone(),
            internal: state.internal,
        };
        self.tickets.insert(ticket, Ticket::Hello { stream, hello });
        self.asked.push(TicketRequest {
            ticket,
            stream,
            question,
        });
    }

    /// Finds a destination, or asks the host whether it may be created.
    pub(super) fn resolve(
        &mut self,
        session_key: u64,
        kind: Kind,
        name: &str,
        purpose: Purpose,
    ) -> Result<Resolved, Refused> {
        // Who only looks may see what is left here.
        if let Some(known) = self.state.destination(kind, name).map(|found| found.id)
            && !matches!(purpose, Purpose::Browse)
        {
            self.lives_here(known)?;
        }
        // The properties of a dynamic destination are asked for again after a restart, and under another configuration.
        if let Some(destination) = self.state.destination(kind, name)
            && (destination.settled || destination.origin != Origin::Dynamic)
        {
            return Ok(Resolved::Known(destination.id));
        }
        let parsed = DestinationName::parse(name)
            .map_err(|error| refuse(ErrorCode::InvalidName, name_excerpt(name), format!("{error}.")))?;
        let missing = || {
            refuse(
                ErrorCode::NoSuchDestination,
                name_excerpt(name),
                format!("There is no {kind} named {name}."),
            )
        };
        if kind == Kind::Queue && Viewed::of(name).is_some() {
            let message = format!("{name} can be looked at; nothing is sent to it or taken from it.");
            return Err(refuse(ErrorCode::NotAllowed, name_excerpt(name), message));
        }
        if parsed.is_system() || parsed.is_temporary() {
            return Err(missing());
        }
        DestinationName::parse_chosen(name)
            .map_err(|error| refuse(ErrorCode::InvalidName, name_excerpt(name), format!("{error}.")))?;
        let session = self.sessions.get_mut(&session_key).ok_or_else(missing)?;
        if let Some(verdict) = &session.verdict
            && verdict.kind == super::wire_kind(kind)
            && verdict.name == name
        {
            return Err(verdict.refused.clone());
        }
        let stream = session.stream;
        let user = self
            .connections
            .get(&session.connection)
            .map(|connection| connection.identity.user.to_string());
        self.last_key += 1;
        let ticket = self.last_key;
        session.ticket = Some(ticket);
        self.tickets.insert(
            ticket,
            Ticket::Destination {
                session: session_key,
                kind,
                name: parsed.clone(),
            },
        );
        let question = Question::Destination {
            kind,
            name: parsed,
            purpose,
            user: user.unwrap_or_default(),
        };
        self.asked.push(TicketRequest {
            ticket,
            stream,
            question,
        });
        Ok(Resolved::Asked)
    }

    /// Whether a pattern may be subscribed to; if nobody has said so yet, the host is asked and the frame has to wait.
    pub(super) fn resolve_pattern(&mut self, session_key: u64, pattern: &str) -> Result<bool, Refused> {
        if self.settings.cluster.is_empty() {
            return Ok(true);
        }
        let closed = || refuse(ErrorCode::Closed, "session", "The session was closed.");
        let session = self.sessions.get_mut(&session_key).ok_or_else(closed)?;
        if session.allowed_pattern.as_deref() == Some(pattern) {
            session.allowed_pattern = None;
            return Ok(true);
        }
        if let Some(verdict) = &session.verdict
            && verdict.kind == super::wire_kind(Kind::Topic)
            && verdict.name == pattern
        {
            return Err(verdict.refused.clone());
        }
        let stream = session.stream;
        self.last_key += 1;
        let ticket = self.last_key;
        session.ticket = Some(ticket);
        let connection = self.connections.get(&session.connection);
        let user = connection.map(|connection| connection.identity.user.to_string());
        let pattern = pattern.to_owned();
        let waiting = Ticket::Pattern {
            session: session_key,
            pattern: pattern.clone(),
        };
        self.tickets.insert(ticket, waiting);
        let user = user.unwrap_or_default();
        self.asked.push(TicketRequest {
            ticket,
            stream,
            question: Question::Pattern { pattern, user },
        });
        Ok(false)
    }

    /// Whether a ticket is about a destination, and so how its answer is to be read.
    #[must_use]
    pub fn asks_about_destination(&self, ticket: u64) -> bool {
        matches!(
            self.tickets.get(&ticket),
            Some(Ticket::Destination { .. } | Ticket::Properties { .. })
        )
    }

    /// Takes the host's answer; what waited for it goes on. An answer to a ticket whose client has gone changes nothing.
    pub fn answer(&mut self, ticket: u64, answer: Answer) {
        match self.tickets.remove(&ticket) {
            Some(Ticket::Hello { stream, hello }) => match answer {
                Answer::Admitted { user } => self.admit(stream, *hello, user),
                Answer::Create(_) => self.fail_stream(stream, misanswered()),
                Answer::Refused(refused) => self.fail_stream(stream, refused),
            },
            Some(Ticket::Destination { session, kind, name }) => {
                let existing = self.state.destination(kind, name.as_str()).map(|found| found.id);
                let verdict = match (answer, existing) {
                    (Answer::Create(properties), _) => self.make_destination(kind, &name, properties).err(),
                    (Answer::Admitted { .. }, _) => Some(misanswered()),
                    // It is here, and lives on another broker: nobody gets it here.
                    (Answer::Refused(refused), Some(_)) if refused.code == ErrorCode::Moved as i32 => Some(refused),
                    // It exists: it is used as it is until nobody needs it.
                    (Answer::Refused(_), Some(id)) => {
                        self.state.settle_destination(id);
                        self.state.want_properties(id);
                        None
                    }
                    (Answer::Refused(refused), None) => Some(refused),
                };
                self.resume_session(session, kind, name.as_str().to_owned(), verdict);
            }
            Some(Ticket::Properties { id }) => self.note_properties(id, answer),
            Some(Ticket::Pattern { session, pattern }) => self.answer_pattern(session, pattern, answer),
            None => {}
        }
    }

    fn answer_pattern(&mut self, key: u64, pattern: String, answer: Answer) {
        let refused = match answer {
            Answer::Admitted { .. } => None,
            Answer::Create(_) => Some(misanswered()),
            Answer::Refused(refused) => Some(refused),
        };
        if refused.is_none()
            && let Some(session) = self.sessions.get_mut(&key)
        {
            session.allowed_pattern = Some(pattern.clone());
        }
        self.resume_session(key, Kind::Topic, pattern, refused);
    }

    fn make_destination(&mut self, kind: Kind, name: &DestinationName, properties: Properties) -> Result<(), Refused> {
        let exclusive = properties.exclusive;
        let made = self.state.ensure_destination(kind, name, Origin::Dynamic, properties);
        let source = made.map_err(|error| super::errors::of_state(&error))?.source();
        self.set_exclusive(source, exclusive);
        Ok(())
    }

    fn set_exclusive(&mut self, source: SourceId, exclusive: bool) {
        if let Some(receivers) = self.receivers.get_mut(&source) {
            receivers.exclusive = exclusive;
            self.mark_dirty(source);
        }
    }

    /// Asks for the properties of some destinations whose messages wait for that.
    pub(super) fn ask_properties(&mut self) {
        for id in self.state.take_wanted(PROPERTIES_MAX) {
            let Some(found) = self.state.destination_by_id(id) else {
                continue;
            };
            let (kind, name) = (found.kind, found.name.clone());
            let ticket = self.next_key();
            self.tickets.insert(ticket, Ticket::Properties { id });
            self.asked.push(TicketRequest {
                ticket,
                stream: 0,
                question: Question::Properties { kind, name },
            });
        }
    }

    fn note_properties(&mut self, id: DestinationId, answer: Answer) {
        let properties = match answer {
            Answer::Create(properties) => Some(properties),
            Answer::Admitted { .. } | Answer::Refused(_) => None,
        };
        let exclusive = properties.as_ref().is_some_and(|properties| properties.exclusive);
        if self.state.note_properties(id, properties) {
            self.set_exclusive(id.source(), exclusive);
        }
    }

    /// After a change of the configuration: asks at once about the dynamic destinations that are in use; the others are
    /// asked about when they are opened, or when something becomes due there. What bridges lead to nobody opens.
    pub(super) fn ask_about_dynamic(&mut self) {
        self.state.unsettle_dynamic();
        let catalogue = self.state.catalogue();
        let targets = catalogue.bridges().iter().flat_map(|bridge| &bridge.targets);
        let targets: Vec<DestinationId> = targets
            .filter_map(|target| catalogue.id_of(target.kind, target.name.as_str()))
            .collect();
        for id in targets {
            self.state.want_properties(id);
        }
        let mut used: Vec<(Kind, DestinationName)> = self
            .state
            .catalogue()
            .destinations()
            .filter(|found| found.origin == Origin::Dynamic)
            .filter(|found| found.producers > 0 || self.receivers.contains_key(&found.id.source()))
            .map(|found| (found.kind, found.name.clone()))
            .collect();
        used.sort_unstable_by(|left, right| left.1.as_str().cmp(right.1.as_str()));
        for (kind, name) in used {
            if let Some(id) = self.state.catalogue().id_of(kind, name.as_str()) {
                self.state.want_properties(id);
            }
            let ticket = self.next_key();
            // No session waits for it.
            let session = 0;
            let waiting = Ticket::Destination {
                session,
                kind,
                name: name.clone(),
            };
            self.tickets.insert(ticket, waiting);
            self.asked.push(TicketRequest {
                ticket,
                stream: 0,
                question: Question::Destination {
                    kind,
                    name,
                    purpose: Purpose::Produce,
                    user: String::new(),
                },
            });
        }
    }

    /// Handles the frames that a session parked, until one of them has to wait again.
    fn resume_session(&mut self, key: u64, kind: Kind, name: String, refused: Option<Refused>) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        session.ticket = None;
        session.verdict = refused.map(|refused| Verdict {
            kind: super::wire_kind(kind),
            name,
            refused,
        });
        // What was held back for room may have asked: it hears the verdict before it is forgotten, or it would ask again
        // at each poll, and each answer brings a poll.
        if !self.resume(key) {
            // It may have to wait anew, and stands among those that do once.
            self.stalled.retain(|&other| other != key);
        }
        self.replay(key);
    }

    fn replay(&mut self, key: u64) {
        while let Some(session) = self.sessions.get_mut(&key) {
            if session.ticket.is_some() {
                break;
            }
            let stream = session.stream;
            let Some(frame) = session.parked.pop() else {
                session.verdict = None;
                session.allowed_pattern = None;
                break;
            };
            self.handle_parked(stream, key, frame);
        }
    }
}

fn misanswered() -> Refused {
    refuse(
        ErrorCode::Internal,
        "ticket",
        "The broker answered a ticket of another kind.",
    )
}

/// A name as it may stand in an error: not longer than a legal one.
pub(super) fn name_excerpt(name: &str) -> String {
    name.chars().take(256).collect()
}
