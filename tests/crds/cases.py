"""What is accepted and refused: one table for the models in Python and for the rules in Kubernetes.

`refused` is what the answer of Kubernetes must say; `here` what ours must say, where the words differ. A case of an
update has several specs, written one after the other; the last one is the one that is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

REF = {"clusterRef": {"name": "prod"}}
CLUSTER: dict[str, Any] = {"etcd": {"managed": {}}, "insecure": True}
SECURE: dict[str, Any] = {"etcd": {"managed": {}}, "tls": {"secretName": "tls"}}
BRIDGE: dict[str, Any] = {**REF, "source": {"queue": "a"}, "targets": [{"queue": "b"}]}
DURABLE: dict[str, Any] = {**REF, "topic": "news", "clientId": "app"}
FACTORY: dict[str, Any] = {**REF, "url": "sterna://a:7222,b"}
USER: dict[str, Any] = {**REF, "passwordSecret": {"name": "app-password"}}
UNSIGNED: dict[str, Any] = {"principals": "none", "unsigned": True}
SNAPSHOT: dict[str, Any] = {**REF, "snapshots": UNSIGNED, "storage": {"volumeClaim": "audits"}}
AUDIT: dict[str, Any] = {**SNAPSHOT, "schedule": "0 3 * * *"}

# The least that each kind takes.
LEAST: dict[str, dict[str, Any]] = {
    "MessagingCluster": CLUSTER,
    "Queue": REF,
    "Topic": REF,
    "Bridge": BRIDGE,
    "DurableSubscription": DURABLE,
    "Store": REF,
    "ConnectionFactory": FACTORY,
    "User": USER,
    "StoreSnapshot": SNAPSHOT,
    "AuditJob": AUDIT,
}


@dataclass(frozen=True)
class Case:
    """One object. `refused` None: it is accepted."""

    kind: str
    spec: Any
    refused: str | None = None
    here: str | None = None
    name: str = "thing"


@dataclass(frozen=True)
class Change:
    """Specs that an object has one after the other. `refused` None: all are accepted."""

    kind: str
    specs: tuple[Any, ...]
    refused: str | None = None
    name: str = "thing"


DOTS = "dots stand between elements, never first, last or doubled"
WHOLE = "a wildcard (* or >) is a whole element"
LAST = "> is allowed as the last element only"
DOLLAR = "names that begin with $ belong to the broker"
TEMPORARY = "below TMP there is only TMP.>, the settings of temporary destinations"
LONG = "at most 64 elements of 127 characters"
NO_WILDCARD = "the name of one destination is needed here, no wildcard"
ONE_OF = "needs either queue or topic, one of them"


def _names() -> list[Case]:
    """Names and patterns, in each place that takes them."""
    long_name = ".".join(["a" * 60, "b" * 60, "c" * 60, "d" * 62])
    good = ["a", "orders.new", "*", ">", "a.*.b", "a.>", "TMP.>", "TMP", "A_b c", ".".join("a" * 64), long_name]
    bad = [
        ("", "should be at least 1 chars long", "at least 1 character"),
        (".a", DOTS, "is empty: dots stand between"),
        ("a.", DOTS, "is empty: dots stand between"),
        ("a..b", DOTS, "is empty: dots stand between"),
        ("a*", WHOLE, "a wildcard is a whole element"),
        ("a.>b", WHOLE, "a wildcard is a whole element"),
        ("a.>.b", LAST, "allowed as the last element only"),
        (">.b", LAST, "allowed as the last element only"),
        ("$sys.x", DOLLAR, "belong to the broker"),
        ("TMP.x", TEMPORARY, "is no destination"),
        ("x" * 128, LONG, "at most 127 are allowed"),
        (".".join("a" * 65), LONG, "at most 64 are allowed"),
        (long_name + "d", LONG, "may have at most"),
        ("x" * 250, "may not be more than 249", "at most 249"),
    ]
    cases = [Case(kind, {**REF, "name": name}) for kind in ("Queue", "Topic") for name in good]
    cases += [Case(kind, {**REF, "name": name}, *why) for kind in ("Queue", "Topic") for name, *why in bad]
    for name, *why in bad:
        cases.append(Case("Bridge", {**BRIDGE, "source": {"topic": name}}, *why))
        cases.append(Case("DurableSubscription", {**DURABLE, "topic": name}, *why))
        if why[0] not in (WHOLE, LAST):
            cases.append(Case("Bridge", {**BRIDGE, "targets": [{"topic": name}]}, *why))
    stands = "holds the settings of temporary destinations and stands for no destination"
    cases += [
        Case("Bridge", {**BRIDGE, "source": {"queue": "a.>"}}),
        Case("Bridge", {**BRIDGE, "source": {"queue": "TMP.>"}}, stands, stands),
        Case("DurableSubscription", {**DURABLE, "topic": "TMP.>"}, stands, stands),
        Case("Bridge", {**BRIDGE, "targets": [{"queue": "a.*"}]}, NO_WILDCARD, "the name of one destination is needed"),
        Case("Bridge", {**BRIDGE, "targets": [{"queue": ">"}]}, NO_WILDCARD, "the name of one destination is needed"),
    ]
    return cases


def _destinations() -> list[Case]:
    too_long = "metadata.name is too long for a destination's name"
    only = "TMP.> takes maxMessages, maxBytes and overflowPolicy alone"
    settings = {**REF, "name": "TMP.>", "maxMessages": 3, "maxBytes": 5, "overflowPolicy": "rejectIncoming"}
    everything = {
        **REF,
        "expirationMs": 0,
        "store": "x",
        "deletionPolicy": "delete",
        "adoption": "adopt",
        "broker": "b-0",
    }
    cases = []
    for kind in ("Queue", "Topic"):
        cases += [
            Case(kind, everything),
            Case(kind, settings),
            Case(kind, {**settings, "deletionPolicy": "delete"}),
            Case(kind, {**settings, "store": "x"}, only, "alone, not store"),
            Case(kind, {**settings, "expirationMs": 1}, only, "alone, not expirationMs"),
            Case(kind, {**settings, "broker": "b"}, only, "alone, not broker"),
            Case(kind, {**settings, "prefetch": 3}, only, "alone, not prefetch"),
            Case(kind, {**settings, "senderName": True}, only, "alone, not senderName"),
            Case(kind, {**settings, "senderNameEnforced": True}, only, "alone, not senderNameEnforced"),
            Case(kind, {**REF, "senderName": True, "senderNameEnforced": False}),
            Case(kind, {**settings, "secure": True}, only, "alone, not secure"),
            Case(kind, {**REF, "secure": True}),
            Case(kind, {**REF, "secure": "yes"}, "spec.secure", "true or false"),
            Case(
                kind,
                {**REF, "name": "a.*", "broker": "b"},
                "a wildcard entry has no place",
                "wildcard entry has no place",
            ),
            Case(kind, {**REF, "broker": "a.b"}, "should match", "may not hold dots"),
            Case(kind, REF, name="a" * 127),
            Case(kind, {**REF, "name": "a"}, name="a" * 128),
            Case(kind, REF, too_long, "as the destination's name", name="a" * 128),
            Case(kind, REF, too_long, "as the destination's name", name=".".join("a" * 65)),
            Case(kind, REF, too_long, "as the destination's name", name=".".join(["a" * 82] * 3)),
            Case(kind, {}, "spec.clusterRef: Required value", ""),
            Case(kind, ..., "spec: Required value", ""),
            Case(kind, None, "spec: Required value", "must be a set of fields"),
            Case(kind, {**REF, "paused": {}}),
            Case(kind, {**REF, "paused": {"until": "2030-01-31T18:00:00Z"}}),
            Case(kind, {**REF, "paused": {"until": "2030-01-31T18:00:00.5+02:00"}}),
            Case(kind, {**REF, "paused": {"until": "tomorrow"}}, "must be of type date-time", "must be a time"),
            Case(kind, {"clusterRef": {"name": "prod", "namespace": "messaging"}}),
            Case(kind, {"clusterRef": {"name": "Prod"}}, "should match", "is no object name"),
            Case(kind, {"clusterRef": {"name": "prod", "namespace": "a.b"}}, "should match", "should match"),
        ]
    return [*cases, *_queues(settings, only)]


def _queues(settings: dict[str, object], only: str) -> list[Case]:
    """What queues have and topics have not, or otherwise; `only`: what is said of it in temporary queues' settings."""
    return [
        Case("Queue", {**settings, "maxRedelivery": 3}, only, "alone, not maxRedelivery"),
        Case("Queue", {**settings, "exclusive": True}, only, "alone, not exclusive"),
        *(Case("Queue", {**REF, "prefetch": value}) for value in ("none", 0, 100_000)),
        *(
            Case(
                "Queue",
                {**REF, "prefetch": value},
                "must be none or a whole number from 0 to 100000",
                "must be `none` or",
            )
            for value in ("some", -1, 100_001)
        ),
        Case("Topic", {**REF, "prefetch": "none"}, "must be of type integer", "`none` is for queues alone"),
        Case("Queue", {**REF, "maxRedelivery": 1}, "1 is not allowed: 0 (no limit), or 2 to 255", "1 is not allowed"),
        *(Case("Queue", {**REF, "maxRedelivery": value}) for value in (0, 2, 255)),
        *(
            Case(
                "Queue", {**REF, "redeliveryDelayMs": value}, "must be 0 or from 15000 to 28800000", "must be 0 or from"
            )
            for value in (1, 14_999)
        ),
        *(Case("Queue", {**REF, "redeliveryDelayMs": value}) for value in (0, 15_000, 28_800_000)),
        Case("Queue", {**settings, "redeliveryDelayMs": 15_000}, only, "alone, not redeliveryDelayMs"),
        Case("Queue", {**settings, "deadLetterQueue": "dead"}, only, "alone, not deadLetterQueue"),
        *(Case("Queue", {**REF, "deadLetterQueue": value}) for value in ("$sys.undelivered", "dead.a")),
        Case(
            "Queue", {**REF, "deadLetterQueue": "$sys.other"}, "only $sys.undelivered may stand", "belong to the broker"
        ),
        Case("Queue", {**REF, "deadLetterQueue": "dead.*"}, "the name of one destination", "is the wildcard '*'"),
    ]


def _bridges() -> list[Case]:
    twice = "is named twice: join the selectors with OR"
    loop = "is the source: a bridge cannot lead back to it"
    many = [{"queue": f"q{number}"} for number in range(128)]
    return [
        Case("Bridge", {**BRIDGE, "targets": many}),
        Case("Bridge", {**BRIDGE, "targets": [*many, {"queue": "more"}]}, "must have at most 128 items", "at most 128"),
        Case("Bridge", {**BRIDGE, "targets": []}, "should have at least 1 items", "at least 1"),
        Case("Bridge", {**BRIDGE, "source": {}}, ONE_OF, "needs either `queue` or `topic`"),
        Case("Bridge", {**BRIDGE, "source": {"queue": "a", "topic": "a"}}, ONE_OF, "needs either `queue` or `topic`"),
        Case("Bridge", {**BRIDGE, "targets": [{"selector": "a = 1"}]}, ONE_OF, "needs either `queue` or `topic`"),
        Case("Bridge", {**BRIDGE, "targets": [{"queue": "b"}, {"topic": "b"}, {"topic": "a"}]}),
        Case("Bridge", {**BRIDGE, "targets": [{"queue": "b"}, {"queue": "b"}]}, f"a queue {twice}", twice),
        Case(
            "Bridge", {**BRIDGE, "targets": [{"topic": "b"}, {"queue": "c"}, {"topic": "b"}]}, f"a topic {twice}", twice
        ),
        Case("Bridge", {**BRIDGE, "targets": [{"queue": "b"}, {"queue": "a"}]}, f"the queue {loop}", loop),
        Case("Bridge", {**BRIDGE, "source": {"topic": "a"}, "targets": [{"topic": "a"}]}, f"the topic {loop}", loop),
        Case("Bridge", {**BRIDGE, "deletionPolicy": "onlyIfEmpty"}, "Unsupported value", "'delete' or 'retain'"),
    ]


def _others() -> list[Case]:
    missing = "clientId is missing: only a shared subscription may do without"
    alone = "noLocal is not for shared subscriptions: their consumers are several clients"
    shared = {**REF, "topic": "a", "shared": True}
    system = "is always sync: give the destinations another store"
    store = "metadata.name is too long for a store's name"
    return [
        Case("DurableSubscription", {**REF, "topic": "a"}, missing, missing),
        Case("DurableSubscription", shared),
        Case("DurableSubscription", {**shared, "noLocal": True}, alone, alone),
        Case("DurableSubscription", {**DURABLE, "noLocal": True, "selector": "a = 1", "name": "Any name/ü"}),
        Case("DurableSubscription", DURABLE, name="a" * 253),
        Case("DurableSubscription", {**DURABLE, "name": "ü" * 255, "clientId": "c" * 255}),
        Case("DurableSubscription", {**DURABLE, "name": "n" * 256}, "may not be more than 255", "at most 255"),
        Case("DurableSubscription", {**DURABLE, "clientId": "c" * 256}, "may not be more than 255", "at most 255"),
        Case("Store", {**REF, "mode": "async", "quotaBytes": 5}),
        Case("Store", {**REF, "name": "$sys.failsafe", "quotaBytes": 5}),
        Case("Store", {**REF, "name": "$sys.failsafe", "mode": "sync"}),
        Case("Store", {**REF, "name": "$sys.failsafe", "mode": "async"}, f"$sys.failsafe {system}", system),
        Case(
            "Store",
            {**REF, "name": "$sys.nonfailsafe", "mode": "sync"},
            "$sys.nonfailsafe is always async: give the destinations another store",
            "is always async",
        ),
        Case(
            "Store",
            {**REF, "name": "$mine"},
            "of stores that begin with $ there are only",
            "there are only $sys.failsafe",
        ),
        Case("Store", REF, store, "as the store's name", name="a" * 65),
        Case("Store", {**REF, "name": "x"}, name="a" * 65),
        Case("User", {**USER, "name": "Grüße@example.com", "overlapSeconds": 0, "revokeImmediately": True}),
        Case("User", {**USER, "name": "a:b"}, "should match", "holds a colon"),
        Case("User", {**USER, "name": "Some One $"}),
        Case("User", {**USER, "name": "a\tb"}, "should match", "holds control characters"),
        Case("User", {**USER, "name": "a\u2028b"}, "should match", "holds control characters"),
        Case("User", USER, name="a" * 253),
        Case("User", REF, "spec.passwordSecret: Required value", "is missing"),
    ]


def _factories() -> list[Case]:
    """Connection factories, and the aliases of whatever is looked up."""
    kind, own = "ConnectionFactory", "an alias is the own name already"
    wild = "aliases are of one destination: a wildcard entry is not looked up"
    secure = {**REF, "url": "sternas://a"}
    pair = "certificateFile and keyFile go together"
    scheme = "tls is for a url that begins with sternas://"
    held, pem = (
        "names a file of the client's machine, and holds nothing of it",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQ",
    )
    urls = ("sterna://a", "sternas://a.b:1,[::1]:65535+c_d", "sterna://" + "a" * 991)
    no_urls = ("a:7222", "http://a", "sterna://", "sterna://a,", "sterna://a:0", "sterna://a:65536", "sterna://a|b")
    names = ("Orders", "java:comp/env/Orders", "a.b", "ü" * 255)
    no_names = ("a b", "a*", "a.>", "a\u2028b")
    return [
        *(Case(kind, {**REF, "url": url}) for url in urls),
        *(Case(kind, {**REF, "url": url}, "should match", "must be one such as") for url in no_urls),
        *(
            Case(kind, {**REF, "url": url}, "should match", "holds neither user nor password")
            for url in ("sterna://me:secret@a", "sterna://a?client_id=c")
        ),
        Case(kind, REF, "spec.url: Required value", "is missing"),
        *(Case(kind, {**FACTORY, "name": name}) for name in names),
        *(Case(kind, {**FACTORY, "name": name}, "should match", "may not hold blanks") for name in no_names),
        Case(kind, {**FACTORY, "name": "$a"}, "should match", "belong to the broker"),
        Case(kind, {**FACTORY, "name": "a://b"}, "a name to look up may not hold ://", "may not hold ://"),
        Case(kind, FACTORY, name="a" * 253),
        Case(kind, {**secure, "tls": {"caFile": "c", "certificateFile": "d", "keyFile": "k", "serverName": "b"}}),
        Case(kind, {**secure, "tls": {}}),
        Case(kind, {**FACTORY, "tls": {"caFile": "c"}}, scheme, scheme),
        Case(kind, {**secure, "tls": {"certificateFile": "c"}}, pair, pair),
        Case(kind, {**secure, "tls": {"keyFile": "k"}}, pair, pair),
        *(
            Case(kind, {**secure, "tls": {"caFile": ca, "certificateFile": certificate, "keyFile": key}}, held, held)
            for certificate, key, ca in ((pem, "k", "a"), ("c", pem, "a"), ("c", "k", pem))
        ),
        Case(kind, {**FACTORY, "clientId": "Zürich/1 a"}),
        *(
            Case(kind, {**FACTORY, "clientId": client_id}, "should match", "may not hold control characters")
            for client_id in ("a\nb", "\x1b[31m", "a\x85")
        ),
        Case(kind, {**FACTORY, "aliases": ["b", "c/d"]}),
        Case(kind, {**FACTORY, "aliases": ["b", "b"]}, "Duplicate value", "b is named twice"),
        Case(kind, {**FACTORY, "aliases": ["thing"]}, own, "is the own name already"),
        Case(kind, {**FACTORY, "name": "b", "aliases": ["b"]}, own, "is the own name already"),
        Case(kind, {**FACTORY, "name": "b", "aliases": ["thing"]}),
        Case(kind, {**FACTORY, "aliases": [f"a{number}" for number in range(17)]}, "at most 16 items", "at most 16"),
        Case("Queue", {**REF, "aliases": ["b", "c/d"]}),
        *(
            case
            for one in ("Queue", "Topic")
            for case in (
                Case(one, {**REF, "aliases": ["thing"]}, own, "is the own name already"),
                Case(one, {**REF, "name": "a.*", "aliases": ["b"]}, wild, wild),
                Case(one, {**REF, "aliases": ["a://b"]}, "a name to look up may not hold ://", "may not hold ://"),
            )
        ),
        Case("Topic", {**REF, "name": "a.>", "aliases": []}),
        Case("Queue", {**REF, "name": "TMP.>", "aliases": ["b"]}, "TMP.> takes", "alone, not aliases"),
    ]


def _audits() -> list[Case]:
    """What StoreSnapshot and AuditJob have in common, and what is the latter's alone."""
    place = "needs either volumeClaim or bucket, one of them"
    signed = "needs signKeySecret, or unsigned: true if nobody is to vouch for snapshots, one of them"
    hashed = "principalsKeySecret is for principals: hashed, and hashed needs it"
    named = "metadata.name: at most 40 lower-case letters, digits and -"
    together = "user and passwordSecret go together"
    within = "requests are more than limits allow; a request that is not written has its default"
    key = {"name": "keys", "key": "private.pem"}
    cases = []
    for kind, least in (("StoreSnapshot", SNAPSHOT), ("AuditJob", AUDIT)):
        cases += [
            Case(kind, least, name="a" * 40),
            Case(kind, least, named, named, name="a" * 41),
            Case(kind, least, named, named, name="a.b"),
            Case(kind, {**least, "storage": {}}, place, place),
            Case(kind, {**least, "storage": {"volumeClaim": "a", "bucket": {"uri": "s3://abc"}}}, place, place),
            Case(kind, {**least, "storage": {"bucket": {"uri": "s3://abc/d", "endpoint": "http://minio:9000"}}}),
            Case(kind, {**least, "storage": {"bucket": {"uri": "s3://abc?x=y"}}}, "should match", "should match"),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "unsigned": False}}, signed, signed),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "signKeySecret": key}}, signed, signed),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "principals": "hashed"}}, hashed, hashed),
            Case(kind, {**least, "snapshots": {"unsigned": True}}, hashed, hashed),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "principalsKeySecret": key}}, hashed, hashed),
            Case(kind, {**least, "snapshots": {"unsigned": True, "principals": "hashed", "principalsKeySecret": key}}),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "rate": "20M", "waitSeconds": 0}}),
            Case(kind, {**least, "snapshots": {**UNSIGNED, "rate": "fast"}}, "should match", "should match"),
            Case(kind, {**least, "connect": {"user": "ann"}}, together, together),
            Case(kind, {**least, "pod": {"tolerations": [{"key": "a", "value": "b"}]}}),
            Case(
                kind,
                {**least, "pod": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
                *["value is for operator Equal"] * 2,
            ),
            Case(kind, {**least, "pod": {"tolerations": [{}]}}, *["without key, operator has to be Exists"] * 2),
            Case(kind, {**least, "connect": {"user": "ann", "passwordSecret": {"name": "p"}}}),
            Case(kind, {**least, "pod": {"resources": {"limits": {"memory": "3Gi", "cpu": "500m"}}}}),
            Case(kind, {**least, "pod": {"resources": {"limits": {"memory": "3071Mi"}}}}, within, within),
            Case(kind, {**least, "pod": {"resources": {"requests": {"memory": "5Gi"}}}}, within, within),
        ]
    keys = "needs keys, or snapshots.unsigned: true if signatures need not be there, one of them"
    signing = {"principals": "none", "signKeySecret": key}
    settings = "the names of Spark's settings begin with spark."
    return [
        *cases,
        Case("StoreSnapshot", {**SNAPSHOT, "brokers": ["prod-broker-0", "prod-broker-1"]}),
        Case("StoreSnapshot", {**SNAPSHOT, "brokers": ["a", "a"]}, "Duplicate value", "a broker is named twice"),
        Case("AuditJob", {**AUDIT, "snapshots": signing}, keys, keys),
        Case("AuditJob", {**AUDIT, "keys": [key]}, keys, keys),
        Case("AuditJob", {**AUDIT, "snapshots": signing, "keys": [key]}),
        *(Case("AuditJob", {**AUDIT, "schedule": one}) for one in ("*/5 * * * *", "@daily", "0 3 1 JAN MON-FRI")),
        *(
            Case("AuditJob", {**AUDIT, "schedule": one}, "should match", "should match")
            for one in ("daily", "0 3 * *", "0 3 * * * *", "@every 1h", "0  3 * * *")
        ),
        Case("AuditJob", {**AUDIT, "concurrencyPolicy": "Allow"}, "Unsupported value", "'Forbid'"),
        Case("AuditJob", {**AUDIT, "jobs": ["chain", "fan-out"]}),
        Case("AuditJob", {**AUDIT, "jobs": ["chain", "chain"]}, "Duplicate value", "an audit is named twice"),
        Case("AuditJob", {**AUDIT, "retention": {"snapshots": "30,90d", "results": 30}}),
        Case("AuditJob", {**AUDIT, "retention": {"snapshots": "90d,30"}}, "should match", "should match"),
        Case("AuditJob", {**AUDIT, "spark": {"master": "spark://a:7077", "conf": {"spark.x": "1"}}}),
        Case("AuditJob", {**AUDIT, "spark": {"master": "k8s://a"}}, "should match", "should match"),
        Case("AuditJob", {**AUDIT, "spark": {"conf": {"x": "1"}}}, settings, settings),
        Case("AuditJob", {**AUDIT, "ledgers": "s3://abc/ledgers"}),
        Case("AuditJob", {**AUDIT, "ledgers": "ledgers/2030"}),
        *(
            Case("AuditJob", {**AUDIT, "ledgers": one}, "should match", "should match")
            for one in ("../else", "a/../b", "/a", "a/", "s3://abc?x")
        ),
        Case("AuditJob", SNAPSHOT, "spec.schedule: Required value", "is missing"),
    ]


def cases() -> list[Case]:
    """The whole table but for clusters."""
    return [*_names(), *_destinations(), *_bridges(), *_others(), *_factories(), *_audits()]


def ids(table: Sequence[Case | Change]) -> list[str]:
    """Names for the tests: kind, place in the table, and the first words of the refusal."""
    words = [re.sub("[^a-z0-9]+", "-", (case.refused or "taken").lower())[:40].strip("-") for case in table]
    return [f"{case.kind}-{number}-{word}" for number, (case, word) in enumerate(zip(table, words, strict=True))]
