"""The tables below `state/`: what there was at the cut's position of the log."""

from sterna_audit.columns import COPIES, COPY, Column, checksum, few, growing, text, yes

_PRIORITY = few("priority", "0 to 9", "int8")
_TRANSACTION = few("transaction", "the open transaction that it belongs to", is_nullable=True)

TABLES: tuple[tuple[str, str, tuple[Column, ...]], ...] = (
    (
        "deliverables",
        "Messages that are due to somebody: one row for each source and message.",
        (
            few("source", "the queue or durable subscription; a queue's number is its destination's"),
            growing("sequence", "its number in the source; within a source never given twice"),
            growing("position", "of the message's record in the log: row of `messages`"),
            COPY,
            _PRIORITY,
            few("state", "0 waiting, 1 delayed, 2 in flight, 3 sent, 4 taken in an open transaction", "int8"),
            few("attempts", "how often it was delivered", "int16"),
            few("bytes", "of the message as it counts for limits, in bytes"),
            growing(
                "move", "position of the move's record that brought it here; missing if none did", is_nullable=True
            ),
            few("reason", "why it was moved (see `ends.reason`); missing if it was not", "int8", is_nullable=True),
            few("origin", "the destination that it was sent to, if it was moved", is_nullable=True),
            _TRANSACTION,
        ),
    ),
    (
        "messages",
        "The messages that `deliverables` point at: one row for each record, however many are due it.",
        (
            growing("position", "of its record in the log"),
            few("epoch", "in which it arrived"),
            few("producer", "the incarnation of the producer that sent it"),
            growing("sequence", "the producer's number for it"),
            few("destination", "where it was sent"),
            growing("arrived_ms", "when it arrived, in milliseconds since 1970"),
            few("time_to_live_ms", "how long it lives from its arrival on, in milliseconds; 0 for ever"),
            few("delay_ms", "how long it is held back from its arrival on, in milliseconds; 0 not at all"),
            _PRIORITY,
            few("flags", "sum of 1 preserved as undelivered, 2 its body was uploaded", "int8"),
            few("bytes", "of the message with its body, in bytes"),
            checksum("upper"),
            checksum("lower"),
            _TRANSACTION,
        ),
    ),
    (
        "copies",
        "Copies of those messages that bridges made, or that have the destination's own expiration.",
        COPIES,
    ),
    (
        "destinations",
        "Queues and topics.",
        (
            few("id", "number of the destination in this store"),
            few("kind", "1 queue, 2 topic", "int8"),
            few(
                "origin",
                "1 static, by a manifest, 2 dynamic, by its first use, 4 the broker's own (`$sys.undelivered`)",
                "int8",
            ),
            few("generation", "grows when a destination of the same name begins anew"),
            text("name", "as clients write it"),
        ),
    ),
    (
        "subscriptions",
        "Durable subscriptions.",
        (
            few("id", "number of the subscription: its source"),
            text("client_id", "of the client that it belongs to", person=True),
            text("name", "of the subscription"),
            text("pattern", "which topics it has, with wildcards"),
            text("selector", "which of their messages; empty: all"),
            yes("shared", "whether several consumers share it"),
            yes("no_local", "whether it leaves out what its own connection sent"),
            yes("is_static", "whether a manifest made it"),
        ),
    ),
    (
        "sources",
        "Queues and durable subscriptions as sources of deliverables.",
        (
            few("source", "its number"),
            few("next_sequence", "the number that the next deliverable gets"),
            few("watermark", "what is below this sequence may have been delivered"),
        ),
    ),
    (
        "producers",
        "Up to where each producer's messages are known, by destination.",
        (
            few("producer", "the incarnation"),
            few("destination", "where it sends"),
            growing("sequence", "of its last message there"),
            text("user", "who it was admitted as", is_nullable=True, person=True),
            text("name", "of the client", is_nullable=True, person=True),
        ),
    ),
    (
        "transactions",
        "Transactions that are open or prepared.",
        (
            few("transaction", "its number"),
            few("decision", "0 open, 1 prepared", "int8"),
            growing("time_ms", "when it was prepared, milliseconds since 1970; 0 of one that is open"),
            text("xid", "of an external transaction: format:global:branch, the latter two in hex", is_nullable=True),
            few("messages", "how many were sent in it"),
            few("taken", "how many were taken in it"),
        ),
    ),
    (
        "taken",
        "What ends when a transaction that is prepared is committed.",
        (
            few("transaction", "its number"),
            few("source", "the queue or subscription"),
            growing("first", "first sequence of a run"),
            growing("last", "last sequence of the run"),
        ),
    ),
    (
        "starts",
        "The start id of each epoch: with incarnation and sequence it makes a message id.",
        (few("epoch", "the epoch"), few("start", "its start id")),
    ),
    (
        "counters",
        "Counted apart from all tables, since the epoch began. `began` and `arrived` less what ended is what is held.",
        (
            few("source", "the queue or subscription; of a topic, its number"),
            text(
                "counter",
                "`began`: there were at the start; `arrived`; what ended, by its reason as in `ends`; and without a "
                "record: `volatile` came in unlogged, `released` came back, `delivered`, `duplicates`, `unwanted`",
            ),
            growing("value", "how many"),
        ),
    ),
    (
        "configuration",
        "Manifests in force. Users are not among them.",
        (
            text("kind", "such as Queue"),
            text("name", "of the manifest"),
            few("revision", "which revision of it"),
            text("spec", "its specification, in JSON"),
        ),
    ),
)
"""Name, meaning and columns of each."""
