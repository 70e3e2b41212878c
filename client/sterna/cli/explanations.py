"""What `sterna explain` says of each error: what it means, when it comes, and what to do about it.

One entry for each code of the contract, and for each class of the SDK that has no code of its own.
docs/reference/errors.md is made from it; a test fails when a code or a class has no entry.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is said of one error.

    Attributes:
        means: what it says, and what became of the request, in one sentence or two.
        comes: when it comes, a sentence for each case.
        do: what helps, in the order in which to try it.
    """

    means: str
    comes: tuple[str, ...]
    do: tuple[str, ...]


#: By the name of the code in messaging.proto, in the order of the contract.
CODES: dict[str, Explanation] = {
    "MALFORMED_FRAME": Explanation(
        "The bytes are no frame of the contract. The stream ends; of the frame nothing took effect.",
        (
            "A client of one's own encodes a frame wrongly.",
            "A proxy between client and broker alters what it passes on.",
        ),
        (
            "Encode frames as proto/sterna/v1/messaging.proto says.",
            "Connect without the proxy, to see who is at fault.",
        ),
    ),
    "UNSUPPORTED_VERSION": Explanation(
        "The broker speaks none of the versions of the contract that the client offered.",
        ("The client is much newer, or much older, than the broker.",),
        ("Use a client that speaks a version which the message names.",),
    ),
    "PROTOCOL_VIOLATION": Explanation(
        "A frame came out of place: before Hello, for a session that is not there, with a gap in its numbers. "
        "The stream ends.",
        ("A client of one's own does not keep the order that the contract describes.",),
        ("Compare the order of frames with messaging.proto.", "With the SDK it is a defect: report it with both logs."),
    ),
    "INVALID_NAME": Explanation(
        "The name of a destination, a subscription or a client breaks the rules for names.",
        (
            "An element is empty, or a character stands there that none may have.",
            "A pattern (`*`, `>`) stands where one destination must be named.",
            "The name is longer than 249 characters (a subscription's: 255), or has a prefix of the broker's own.",
        ),
        ("Correct the name as the message says; docs/concepts.md has the rules.",),
    ),
    "INVALID_SELECTOR": Explanation(
        "The selector cannot be read. The message shows the character, counted from 1.",
        (
            "A literal has no closing quote, an operator no second side, a bracket no partner.",
            "The same in a manifest: then the object is refused, and what was there before goes on.",
        ),
        ("Correct it at that character. Texts stand in single quotes; property names are case sensitive.",),
    ),
    "INVALID_MESSAGE": Explanation(
        "A header field, a property or the body breaks the rules for messages. The message is not stored.",
        (
            "A property has a reserved name, or a value of a type that properties cannot have.",
            "A text is no UTF-8, or a body of maps and lists is nested too deep.",
        ),
        ("Correct the part that `subject` names.",),
    ),
    "INVALID_ARGUMENT": Explanation(
        "Some other field of the request has a value that it cannot have. Nothing took effect.",
        (
            "A manifest has a field that its kind does not know, or a value out of range.",
            "Two options exclude each other.",
        ),
        ("Correct the field that `subject` names; docs/reference/manifests.md lists fields with their ranges.",),
    ),
    "LIMIT_EXCEEDED": Explanation(
        "A limit is reached, which `subject` names. What would have gone beyond it was refused whole.",
        (
            "A message is larger than `limits.messageBytes`, or a frame than `limits.frameBytes`.",
            "A connection has as many sessions, producers or consumers as it may, or the broker as many connections.",
            "Calls of Receive are not acknowledged (`limits.leases`).",
            "Too many wrong passwords came from one place for one user: the message says how long to wait.",
        ),
        (
            "Close what is not needed any more: an SDK object that is never closed counts until its connection ends.",
            "Raise the limit in the Broker manifest (`spec.limits`), where the machine has room for it.",
        ),
    ),
    "NOT_ALLOWED": Explanation(
        "It is not possible on this destination or in this session, whoever asks.",
        (
            "A commit in a session that is not transacted; a durable subscription in acknowledge mode NONE.",
            "A durable subscription to a temporary topic; a shared one that leaves out its own connection's messages.",
        ),
        ("Use a session, a mode or a destination that permits it; the message says which rule it is.",),
    ),
    "UNAUTHENTICATED": Explanation(
        "The broker does not know who this is.",
        (
            "No user and password were given, and nobody may come in without.",
            "The password is wrong, or was replaced and its overlap has ended.",
            "The name in the client certificate is no user of this broker.",
        ),
        (
            "Give user and password by STERNA_USER and STERNA_PASSWORD_FILE, or a client certificate.",
            "Compare the name in the certificate with the users of the broker.",
        ),
    ),
    "PERMISSION_DENIED": Explanation(
        "The broker knows who this is, and refuses.",
        (
            "A stream joins a connection by its token, and comes from another user than that connection.",
            "Rights by destination do not exist yet: whoever is let in may use them all.",
        ),
        ("Connect as the user who opened the connection.",),
    ),
    "NO_SUCH_DESTINATION": Explanation(
        "The destination does not exist, and no wildcard entry of the broker lets it be created.",
        (
            "The name is misspelt, or is a queue where a topic was meant.",
            "It was deleted, or was a temporary one whose connection has ended.",
            "The broker has manifests, and none of them has a name or pattern that covers this one.",
            "A name is looked up that no connection factory, static queue or static topic has, nor an alias of one.",
        ),
        (
            "Look at `sterna get queue`, `sterna get topic` and `sterna get factory`.",
            "Create it, or a wildcard entry that covers its name, with `sterna apply`.",
        ),
    ),
    "NO_SUCH_SUBSCRIPTION": Explanation(
        "No durable subscription has this name under this client id.",
        ("The client id is another one: a durable belongs to client id and name.", "It was deleted."),
        ("Look at `sterna get durable`, which shows both.",),
    ),
    "NO_SUCH_TRANSACTION": Explanation(
        "The session has no transaction of this number.",
        ("It has ended before, by itself (see TRANSACTION_ROLLED_BACK) or by a commit whose answer was lost.",),
        ("Begin another one; what was received in it and comes again was not committed.",),
    ),
    "ALREADY_EXISTS": Explanation(
        "The name or number is taken.",
        ("A session, producer, consumer or transaction of this number is open already.",),
        ("Choose another one, or close what has it.",),
    ),
    "IN_USE": Explanation(
        "Somebody uses it, so that it can be neither ended nor taken over.",
        (
            "A durable subscription has an active consumer, here or on another connection.",
            "A queue is to be deleted that holds messages, or a topic of which durable subscriptions do.",
        ),
        (
            "Close the consumer first; `sterna get connections` shows who is there.",
            "Delete with `--with-messages` what only holds messages that nobody needs.",
        ),
    ),
    "CLIENT_ID_IN_USE": Explanation(
        "Another connection holds this client id.",
        (
            "The application runs twice with one client id.",
            "Its former process is dead, and the broker has not noticed yet: it does after the silence of a heartbeat.",
        ),
        ("Give each process a client id of its own.", "After a crash try again for some seconds, as the SDK does."),
    ),
    "MOVED": Explanation(
        "The destination lives on another broker of the cluster; `addresses` says where.",
        ("A broker is emptied, a destination was placed anew, or a client connected to the wrong one.",),
        ("Nothing, with the SDK: it follows. Other clients connect to one of the addresses.",),
    ),
    "UNKNOWN_PRODUCER": Explanation(
        "The broker has forgotten this producer: whether its unconfirmed messages arrived cannot be told any more.",
        (
            "It was away for longer than the broker keeps what it knows of a producer.",
            "The broker began with another store than before.",
        ),
        ("Open a new producer. Compare with what receivers have, or send again and accept duplicates.",),
    ),
    "CLOSED": Explanation(
        "The connection, session, producer or consumer was closed before, or has ended with what it hung on.",
        (
            "It is used after its `close()`, or after the `async with` that it was made in.",
            "The destination of a consumer was deleted.",
        ),
        ("Open a new one.", "A listener's `on_error` says why it has ended."),
    ),
    "CONFLICT": Explanation(
        "It exists otherwise than asked for. Nothing was changed.",
        (
            "A durable subscription of this name has another topic, selector or kind.",
            "Somebody else has changed the object since it was read (its revision is another one).",
        ),
        ("Use the definition that exists, or end it first.", "Read the object again, and apply the change to that."),
    ),
    "OWNED": Explanation(
        "It belongs to somebody else, whom the message names, and is changed there.",
        (
            "The object comes from a file of the broker's configuration folder.",
            "It is the operator's: its manifest is in Kubernetes.",
        ),
        ("Change the file, or the object in Kubernetes.",),
    ),
    "SPANS_HOMES": Explanation(
        "It would reach over several brokers of a cluster, which nothing here does in one step.",
        (
            "A transaction has messages for destinations that live on different brokers.",
            "A subscription to a pattern, or a bridge, would have its parts on different brokers.",
        ),
        ("Give what works together one home (`spec.broker`).", "Use one session for each broker."),
    ),
    "DESTINATION_FULL": Explanation(
        "The destination holds as much as it may. The message was refused and is not stored.",
        ("`maxMessages` or `maxBytes` is reached and its `overflowPolicy` refuses.",),
        (
            "Look for whoever should consume it: `sterna get queue` shows consumers and what waits.",
            "Raise the limit, or choose an overflow policy that discards.",
        ),
    ),
    "STORE_FULL": Explanation(
        "There is no space on the broker's disk, or its quota is used up. What was refused is not stored.",
        ("The volume is full, or smaller than what consumers leave lying.",),
        (
            "Consume or purge: what is acknowledged frees its space.",
            "Enlarge the volume; /metrics says how much is left (`sterna_log_free_bytes`).",
        ),
    ),
    "STORE_FAILED": Explanation(
        "The broker's disk failed a write: it confirms nothing any more, and ends.",
        ("A write or an fsync returned an error. After that nobody can know what the disk has.",),
        (
            "Look at the broker's log and the kernel's for the disk's error.",
            "Replace the disk if it is at fault, and start the broker again: it says what is lost, if anything is.",
        ),
    ),
    "MESSAGE_DAMAGED": Explanation(
        "A stored message fails its checksum. It alone is concerned: those around it are delivered.",
        ("The disk has lost or altered bytes.",),
        ("Look at the broker's log, which names the place; bring the message again from its sender.",),
    ),
    "TRANSACTION_ROLLED_BACK": Explanation(
        "Nothing of the transaction took effect. What it had received comes again, flagged.",
        (
            "A message of it was refused: the destination is full, or gone.",
            "The connection broke inside the transaction.",
            "It was open for longer, or grew larger, than the broker permits.",
        ),
        ("Do the transaction again. `cause` says which of these it was.",),
    ),
    "SHUTTING_DOWN": Explanation(
        "The broker is about to stop, and takes no more.",
        ("It got SIGTERM: a restart, an update, a machine that goes.",),
        ("Nothing, with the SDK: it connects again. Others connect to another broker, or later.",),
    ),
    "UNAVAILABLE": Explanation(
        "Not now. It was not done; the same request may succeed later.",
        (
            "The broker is starting, or has more to do than it takes on.",
            "The destination is being moved to another broker, or is to be emptied and takes no more.",
            "The cluster's etcd does not answer, and what was asked for needs it.",
        ),
        ("Try again; `send` of the SDK does so within its timeout.", "If it lasts: /readyz says what is missing."),
    ),
    "SLOW_CONSUMER": Explanation(
        "The broker cut the connection off: the client did not read what it had asked for.",
        ("The application blocks the thread that reads, or grants credit for more than it can take in.",),
        ("Read in a task of its own, or ask for less ahead (`prefetch`, `prefetch_bytes`).",),
    ),
    "IDLE": Explanation(
        "One side heard nothing from the other for the heartbeat interval, and ended the connection.",
        (
            "The network between is cut.",
            "The application's event loop is blocked, so that no heartbeat leaves.",
        ),
        ("Move long computations out of the event loop.", "Nothing else: the SDK connects again."),
    ),
    "NO_RESPONDERS": Explanation(
        "Nobody consumes where a request went: it was not kept, and nobody will answer it.",
        ("The service that should answer does not run, or listens at another destination.",),
        ("Start it. `sterna get queue NAME` shows how many consumers there are.",),
    ),
    "INTERNAL": Explanation(
        "A defect of the broker.",
        ("None that anybody expects.",),
        ("Report it with the broker's log.",),
    ),
}

#: By the name of the class, for errors that the SDK finds without a broker's word.
CLASSES: dict[str, Explanation] = {
    "UnreachableError": Explanation(
        "No broker answered at any address of the URL. The command line shows it as UNREACHABLE.",
        ("No broker runs there, or the port is another one.", "A firewall or a NetworkPolicy is between."),
        ("Start a broker there, or correct the URL (`--server`, STERNA_URL, `sterna context`).",),
    ),
    "TlsError": Explanation(
        "TLS failed, and `cause` says at what.",
        (
            "The broker's certificate is of an authority that is not trusted here, has expired, or has another name.",
            "One side speaks TLS and the other does not.",
        ),
        ("Compare the TLS settings of both sides.",),
    ),
    "ConnectionLostError": Explanation(
        "The stream to the broker broke, or connecting again was given up. The command line shows it as UNREACHABLE.",
        ("The broker was away for longer than `reconnect=` permits.",),
        ("Look whether it runs.", "What was sent and is not confirmed may be stored, or not."),
    ),
    "ConversionError": Explanation(
        "A value was asked for as a type that it does not read as.",
        ("A property that holds a text without digits is read as a number.",),
        ("Ask for the type that was set; docs/sdk.md has the table.",),
    ),
    "EndOfStreamError": Explanation(
        "A stream body was read beyond its last item.",
        ("The reader expects more items than the sender wrote.",),
        ("Compare both sides.",),
    ),
    "TransactionInDoubtError": Explanation(
        "The connection broke while the commit was under way: it took effect whole or not at all, unknown which.",
        ("The answer to the commit did not come.",),
        ("What was received in it and comes again was not committed: decide by that, or by keys of your own.",),
    ),
    "RequestTimeoutError": Explanation(
        "No reply came in time; a later one is dropped.",
        ("Whoever answers is slow, or did not get the request.",),
        ("Give more time, or ask again where asking twice does no harm.",),
    ),
    "SendTimeoutError": Explanation(
        "The message was not confirmed in time. It may be stored all the same, now or later: it is still being sent.",
        (
            "The broker is away or overloaded.",
            "Flow control holds its senders back: where it goes, or where a bridge leads from there, too much waits.",
        ),
        (
            "Do not send it again unless two of it do no harm; `flush()` tells when it is settled.",
            "Where `sterna get queue NAME -o json` has `flowControlledSessions` above 0: consume, or raise its limit.",
        ),
    ),
    "FlushError": Explanation(
        "Messages of `send_soon` failed since the last flush; `failures` has each with its own error.",
        ("Any error that a send can have.",),
        ("Explain the code of the first one, which the message shows.",),
    ),
    "LedgerError": Explanation(
        "The ledger of a connection cannot be written, or a ledger's file not be read; `subject` is the file.",
        ("The disk is full, or the folder not writable.",),
        ("Make room, and open the connection again. What was sent and not confirmed is in doubt.",),
    ),
    "LedgerDamagedError": Explanation(
        "A ledger's file is damaged at `offset`, in bytes from its beginning.",
        ("The file was altered, or its disk has lost bytes.",),
        ("Keep the file: the audit says what can be read of it. Begin another one.",),
    ),
}
