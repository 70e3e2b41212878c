"""The tables below `events/`: what happened since the cut before, in the order of the log."""

from sterna_audit.columns import COPIES, COPY, Column, checksum, few, growing, text

REASONS = {
    1: "ACKNOWLEDGED",
    2: "EXPIRED",
    3: "DISCARDED",
    4: "PURGED",
    5: "MAX_REDELIVERY",
    6: "MOVED",
    7: "DEAD",
    8: "DAMAGED",
    9: "DELETED",
}
"""Why a deliverable ended, by the number in `ends.reason`."""

_POSITION = growing("position", "of the record that says so")
_REASONS = ", ".join(f"{number} {name}" for number, name in REASONS.items())

TABLES: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    (
        "stored",
        "Messages that were stored.",
        (
            growing("position", "of the message's record"),
            few("producer", "the incarnation of the producer that sent it"),
            growing("sequence", "the producer's number for it"),
            few("destination", "where it was sent"),
            growing("time_ms", "when it arrived, milliseconds since 1970"),
            few("bytes", "of the message with its body, in bytes", "int32"),
            few("priority", "0 to 9", "int8"),
            few("flags", "sum of 1 preserved as undelivered, 2 its body was uploaded", "int8"),
            checksum("upper"),
            checksum("lower"),
        ),
    ),
    (
        "lives",
        "The stored messages that have a life or a delay.",
        (
            growing("position", "of the message's record"),
            few("time_to_live_ms", "how long it lives from its arrival on, in milliseconds; 0 for ever"),
            few("delay_ms", "how long it is held back from its arrival on, in milliseconds; 0 not at all"),
        ),
    ),
    (
        "copies",
        "Copies that bridges made, or that have the destination's own expiration.",
        COPIES,
    ),
    (
        "transacted",
        "The stored messages that were sent in a transaction.",
        (growing("position", "of the message's record"), few("transaction", "which")),
    ),
    (
        "arrivals",
        "Deliverables that began: a message reached a queue or a subscription; in a transaction, from its commit on.",
        (
            growing("position", "of the message's record"),
            COPY,
            few("source", "which queue or subscription"),
            growing("sequence", "its number there"),
        ),
    ),
    (
        "ends",
        "Deliverables that ended: a run of sequences of one source, each of them.",
        (
            _POSITION,
            few("source", "which queue or subscription"),
            growing("first", "the first sequence of the run"),
            growing("last", "the last one"),
            growing("time_ms", "when, milliseconds since 1970"),
            few("reason", f"why: {_REASONS}", "int8"),
            few("actor", "who, as a key of `names`; 0 nobody"),
            few("transaction", "0 at once, otherwise from the commit of this transaction on"),
        ),
    ),
    (
        "moves",
        "Deliverables that changed their source; each is a row of `ends`, too, unless a non-durable subscription's.",
        (
            growing("position", "of the move's record"),
            growing("message", "position of the message's record"),
            COPY,
            few("from_source", "where it was"),
            growing("from_sequence", "its sequence there"),
            few("to_source", "where it went"),
            growing("to_sequence", "its sequence there"),
        ),
    ),
    (
        "decisions",
        "What became of transactions.",
        (
            _POSITION,
            few("transaction", "which"),
            few("decision", "1 prepared, 2 committed, 3 rolled back", "int8"),
            growing("time_ms", "when, milliseconds since 1970"),
            few("xid", "of an external transaction, as a key of `names`; 0 none"),
        ),
    ),
    (
        "catalogue",
        "Destinations and durable subscriptions that began or ended.",
        (
            _POSITION,
            few("what", "1 destination begins, 2 ends, 3 subscription begins, 4 ends", "int8"),
            few("id", "of the destination or subscription"),
            few("kind", "1 queue, 2 topic, 0 of a subscription", "int8"),
            few("origin", "1 static, 2 dynamic", "int8"),
            few("generation", "grows when a destination of the same name begins anew"),
            few("name", "key of `names`"),
            few("actor", "who did it, as a key of `names`; 0 nobody"),
        ),
    ),
    (
        "watermarks",
        "What may have been delivered: after a start it comes flagged as redelivered.",
        (_POSITION, few("source", "which"), growing("below", "sequences below may have been delivered")),
    ),
    (
        "epochs",
        "Epochs that began.",
        (
            _POSITION,
            few("epoch", "which"),
            few("start", "its start id; missing: the log's own word that it began", is_nullable=True),
        ),
    ),
    (
        "opened",
        "Producers without a name that began; those with one are in `state/producers`.",
        (
            _POSITION,
            growing("producer", "the incarnation"),
            few("user", "who it was admitted as, as a key of `names`; 0 anonymous"),
            few("client_id", "of its connection, as a key of `names`; 0 none was chosen"),
            growing("time_ms", "when, milliseconds since 1970"),
        ),
    ),
    (
        "configured",
        "The configuration was handed to the engine: what holds from here on may be another than before.",
        (
            _POSITION,
            few("objects", "how many destinations and subscriptions it changed; bridges are not among them"),
            growing("time_ms", "when, milliseconds since 1970"),
        ),
    ),
    (
        "losses",
        "Records that a start found lost.",
        (
            _POSITION,
            few(
                "what",
                "1 a forced start dropped what it could not read, 2 the tail of the log was never synced",
                "int8",
            ),
            growing("from", "position from which on records are lost"),
            few("bytes", "how much of the log that is"),
            few("records", "how many records; missing if that cannot be known", is_nullable=True),
            few("why", "as a key of `names`"),
            growing("time_ms", "when it was found, milliseconds since 1970"),
        ),
    ),
    (
        "names",
        "The texts that events point at, once in a snapshot.",
        (
            growing(
                "key", "the number by which events name it, made with a secret of the store: it does not tell the name"
            ),
            text("what", "destination, subscription, actor, user, client id, xid or reason"),
            text("text", "the name itself", person="what"),
            text("client_id", "of a subscription's client", is_nullable=True, person=True),
            text("pattern", "of a subscription", is_nullable=True),
            text("selector", "of a subscription; empty: all", is_nullable=True),
        ),
    ),
)
"""Name, meaning and columns of each."""
