"""Manifests from text: what is taken, and what is said about what is not."""

import json
from pathlib import Path

import pytest
from ruamel.yaml.scanner import Scanner
from sterna_resources import ManifestError, examine_text, read_files, read_text
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.queue import Queue
from sterna_resources.topic import Topic

HEAD = "apiVersion: sterna.dev/v1alpha1\n"
QUEUE = HEAD + "kind: Queue\nmetadata: {name: orders}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        read_text(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.covers("EMS-DEST-B02", "EMS-DEST-B03")
def test_several_documents_of_several_kinds_are_read_in_order() -> None:
    text = (
        QUEUE + "---\n# only a remark\n---\n" + HEAD + "kind: Topic\nmetadata: {name: news}\n"
        "spec: {name: 'news.>', maxBytes: 1000000, store: $sys.nonfailsafe}\n"
    )
    text = text.replace("---", "spec: {prefetch: 2, exclusive: true}\n---", 1)
    manifests = read_text(text, "f.yaml")
    assert [(manifest.resource.kind, manifest.resource.subject) for manifest in manifests] == [
        ("Queue", "orders"),
        ("Topic", "news.>"),
    ]
    assert str(manifests[1].place) == "f.yaml:8:1"
    queue, topic = (manifest.resource for manifest in manifests)
    assert isinstance(queue, Queue)
    assert isinstance(topic, Topic)
    assert (queue.spec.prefetch, queue.spec.exclusive, queue.spec.max_bytes) == (2, True, None)
    assert (topic.spec.name, topic.spec.max_bytes, topic.spec.store) == ("news.>", 1_000_000, "$sys.nonfailsafe")


def test_a_manifest_keeps_what_was_written_and_no_more() -> None:
    text = QUEUE + "spec: {maxMessages: 10, prefetch: none, exclusive: false}\n"
    [manifest] = read_text(text, "f.yaml")
    assert manifest.resource.document() == {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "orders"},
        "spec": {"maxMessages": 10, "prefetch": "none", "exclusive": False},
    }


def test_json_and_yaml_mean_the_same() -> None:
    document = {
        "apiVersion": "sterna.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "orders"},
        "spec": {"maxRedelivery": 3},
    }
    [as_json] = read_text(json.dumps(document, indent=2), "f.json")
    [as_yaml] = read_text(QUEUE + "spec: {maxRedelivery: 3}\n", "f.yaml")
    assert as_json.resource == as_yaml.resource
    assert len(read_text(json.dumps([document]), "f.json")) == 1


@pytest.mark.covers("EMS-ADMIN-E11", "EMS-ADMIN-E14", "EMS-ADMIN-E15", "EMS-ADMIN-E16")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            QUEUE + "spec:\n  maxMesages: 3\n",
            "f.yaml:5:3: spec.maxMesages: unknown field; did you mean maxMessages?",
            id="unknown-field-with-suggestion",
        ),
        pytest.param(
            QUEUE + "spec: {maxBytes: 1, zzz: 3}\n",
            "f.yaml:4:21: spec.zzz: unknown field (known: clusterRef, deletionPolicy, "
            "adoption, paused, name, expirationMs, maxBytes, maxMessages, flowControlBytes, "
            "overflowPolicy, senderName, senderNameEnforced, secure, store, broker, aliases, prefetch, "
            "maxRedelivery, redeliveryDelayMs, deadLetterQueue, exclusive)",
            id="unknown-field-without-suggestion",
        ),
        pytest.param(
            HEAD
            + "kind: Bridge\nmetadata: {name: b}\nspec:\n"
            + "  source: {topic: a}\n  targets:\n    - {queue: z, selecter: a}\n",
            "f.yaml:7:18: spec.targets[0].selecter: unknown field; did you mean selector?",
            id="unknown-field-in-a-list",
        ),
        pytest.param(
            QUEUE + 'spec: {maxBytes: "12"}\n',
            "f.yaml:4:8: spec.maxBytes: must be a whole number",
            id="text-for-a-number",
        ),
        pytest.param(
            QUEUE + "spec: {maxBytes: -1}\n",
            "f.yaml:4:8: spec.maxBytes: input should be greater than or equal to 0",
            id="below-the-bound",
        ),
        pytest.param(
            QUEUE + "spec: {exclusive: yes please}\n",
            "f.yaml:4:8: spec.exclusive: must be true or false",
            id="text-for-a-flag",
        ),
        pytest.param(HEAD + "kind: Queue\nmetadata: {}\n", "f.yaml:3:1: metadata.name: is missing", id="name-missing"),
        pytest.param(
            "kind: Queue\n",
            "f.yaml:1:1: apiVersion: is missing: write `apiVersion: sterna.dev/v1alpha1`",
            id="version-missing",
        ),
        pytest.param(
            "apiVersion: sterna.dev/v2\nkind: Queue\n",
            "f.yaml:1:1: apiVersion: is 'sterna.dev/v2', this broker knows sterna.dev/v1alpha1 alone",
            id="another-version",
        ),
        pytest.param(
            HEAD + "kind: Queu\n",
            "f.yaml:2:1: kind: unknown kind 'Queu'; did you mean Queue? "
            "(known: Queue, Topic, Bridge, DurableSubscription, Store, ConnectionFactory, Broker)",
            id="unknown-kind",
        ),
        pytest.param(
            "- a\n", "f.yaml:1:1: must be a set of fields; separate several manifests by a line ---", id="list"
        ),
        pytest.param("plain\n", "f.yaml:1:1: must be a set of fields", id="scalar"),
        pytest.param(
            HEAD + "kind: Queue\nmetadata: {name: a, name: b}\n",
            "f.yaml:3:21: metadata.name: stands twice, first in line 3",
            id="field-twice",
        ),
        pytest.param(
            QUEUE + "spec: {maxRedelivery: 1}\n",
            "f.yaml:4:8: spec.maxRedelivery: 1 is not allowed: 0 (no limit), or 2 to 255",
            id="max-redelivery-1",
        ),
        pytest.param(
            QUEUE + "spec: {redeliveryDelayMs: 14999}\n",
            "f.yaml:4:8: spec.redeliveryDelayMs: must be 0 or from 15000 to 28800000",
            id="redelivery-delay-too-short",
        ),
        pytest.param(
            QUEUE + "spec: {maxRedelivery: 256}\n",
            "f.yaml:4:8: spec.maxRedelivery: input should be less than or equal to 255",
            id="max-redelivery-256",
        ),
        pytest.param(
            QUEUE + "spec: {prefetch: many}\n",
            "f.yaml:4:8: spec.prefetch: must be `none` or a whole number from 0 to 100000",
            id="prefetch-word",
        ),
        pytest.param(
            HEAD + "kind: Topic\nmetadata: {name: t}\nspec: {prefetch: none}\n",
            "f.yaml:4:8: spec.prefetch: `none` is for queues alone: topics push to their subscribers",
            id="prefetch-none-on-a-topic",
        ),
        pytest.param(
            HEAD + "kind: Topic\nmetadata: {name: t}\nspec: {exclusive: true}\n",
            "f.yaml:4:8: spec.exclusive: unknown field (known: clusterRef, deletionPolicy, "
            "adoption, paused, name, expirationMs, maxBytes, maxMessages, flowControlBytes, "
            "overflowPolicy, senderName, senderNameEnforced, secure, store, broker, aliases, prefetch)",
            id="queue-property-on-a-topic",
        ),
        pytest.param(
            HEAD + "kind: Queue\nmetadata: {name: Orders}\n",
            "f.yaml:3:12: metadata.name: 'Orders' is no object name: lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit "
            "(the destination's own name, if it is another, goes into spec.name)",
            id="object-name",
        ),
        pytest.param(
            QUEUE + "spec: {name: $sys.mine}\n",
            "f.yaml:4:8: spec.name: '$sys.mine' begins with '$': such names belong to the broker",
            id="system-name",
        ),
        pytest.param(
            HEAD + "kind: Bridge\nmetadata: {name: b}\nspec: {source: {topic: a, queue: b}, targets: [{queue: c}]}\n",
            "f.yaml:4:8: spec.source: needs either `queue` or `topic`, one of them",
            id="bridge-source-of-two-kinds",
        ),
        pytest.param(
            HEAD + "kind: Bridge\nmetadata: {name: b}\nspec: {source: {topic: a}, targets: [{topic: a}]}\n",
            "f.yaml:4:1: spec: the topic a is the source: a bridge cannot lead back to it",
            id="bridge-to-itself",
        ),
        pytest.param(
            HEAD + "kind: DurableSubscription\nmetadata: {name: d}\nspec: {topic: a}\n",
            "f.yaml:4:1: spec: clientId is missing: only a shared subscription may do without",
            id="durable-without-client",
        ),
        pytest.param(
            HEAD + "kind: Bridge\nmetadata: {name: b}\nspec: {source: {topic: a}, targets: []}\n",
            "f.yaml:4:28: spec.targets: list should have at least 1 item after validation, not 0",
            id="bridge-without-targets",
        ),
        pytest.param(
            HEAD + "kind: DurableSubscription\nmetadata: {name: d}\nspec: {clientId: c}\n",
            "f.yaml:4:1: spec.topic: is missing",
            id="durable-without-topic",
        ),
        pytest.param(
            HEAD + "kind: DurableSubscription\nmetadata: {name: d}\nspec: {clientId: c, topic: 'TMP.>'}\n",
            "f.yaml:4:21: spec.topic: 'TMP.>' holds the settings of temporary destinations "
            "and stands for no destination",
            id="durable-of-temporary-topics",
        ),
        pytest.param(
            HEAD + "kind: Broker\nmetadata: {name: b}\nspec: {stores: [{name: $sys.failsafe, mode: async}]}\n",
            "f.yaml:4:17: spec.stores[0]: $sys.failsafe is always sync: give the destinations another store",
            id="system-store-mode",
        ),
        pytest.param(
            "a: [1\n", "f.yaml:2:1: not valid YAML: expected ',' or ']', but got '<stream end>'", id="not-yaml"
        ),
        pytest.param("a: &x [*x]\n", None, id="alias-in-itself"),
        pytest.param("a: &a [0,0]\nb: [*a,*a]\n", None, id="aliases"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(text: str, expected: str | None) -> None:
    found = problems(text)
    if expected is not None:
        assert found == [expected]


def test_all_that_is_wrong_with_all_documents_is_said_at_once() -> None:
    text = QUEUE + "spec: {maxByte: 1, exclusive: 3}\n---\n" + HEAD + "kind: Topic\nmetadata: {nam: t}\n"
    places = [problem.split(": ")[0:2] for problem in problems(text)]
    assert places == [
        ["f.yaml:4:8", "spec.maxByte"],
        ["f.yaml:4:20", "spec.exclusive"],
        ["f.yaml:8:1", "metadata.name"],
        ["f.yaml:8:12", "metadata.nam"],
    ]


def test_an_alias_that_doubles_without_end_is_cut_short() -> None:
    levels = "".join(f"a{n}: &a{n} [*a{n - 1},*a{n - 1},*a{n - 1},*a{n - 1}]\n" for n in range(1, 28))
    found = problems("a0: &a0 [0]\n" + levels)
    assert any("too large" in problem for problem in found)


@pytest.mark.parametrize("opening", ["[", "{", "{a: ", "[{", "- ", "? "])
def test_deep_nesting_is_refused_before_the_text_is_read_through(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    fetch = Scanner.fetch_more_tokens

    def counted(scanner: Scanner) -> None:
        nonlocal asked
        asked += 1
        fetch(scanner)

    monkeypatch.setattr(Scanner, "fetch_more_tokens", counted)
    [said] = problems("apiVersion: sterna/v1\nkind: Queue\nspec:\n  " + opening * 10_000)
    assert "is nested deeper than 32 levels" in said
    assert asked < 500


def test_what_is_a_little_too_deep_is_told_by_its_field_and_hides_nothing_after_it() -> None:
    too_deep, other = problems("a: " + "[" * 40 + "]" * 40 + "\n---\nkind: Topic\n")
    assert "a[0][0]" in too_deep
    assert "is nested deeper than 32 levels" in too_deep
    assert "apiVersion" in other


def test_files_that_cannot_be_read_are_problems_among_the_others(tmp_path: Path) -> None:
    good, bad, binary = tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "c.yaml"
    good.write_text(QUEUE)
    bad.write_text(QUEUE + "spec: {bad: 1}\n")
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError) as caught:
        read_files([good, bad, binary, tmp_path / "none.yaml"])
    fields = [
        (Path(problem.place.source).name, problem.message.split(";")[0][:14]) for problem in caught.value.problems
    ]
    assert fields == [("b.yaml", "unknown field "), ("c.yaml", "cannot be read"), ("none.yaml", "cannot be read")]


def test_each_document_can_be_judged_by_itself() -> None:
    first, second = examine_text(QUEUE + "---\n" + HEAD + "kind: Queue\nmetadata: {name: b}\nspec: {no: 1}\n", "x")
    assert (first.kind, first.name, first.problems) == ("Queue", "orders", ())
    assert (second.kind, second.name, second.manifest, len(second.problems)) == ("Queue", "b", None, 1)


def test_the_temporary_settings_take_three_properties() -> None:
    ok = QUEUE + "spec: {name: 'TMP.>', maxBytes: 1, maxMessages: 2, overflowPolicy: discardOld}\n"
    assert isinstance(read_text(ok, "f")[0].resource, Queue)
    [problem] = problems(QUEUE + "spec: {name: 'TMP.>', prefetch: 3}\n")
    assert "takes maxMessages, maxBytes and overflowPolicy alone, not prefetch" in problem
    [problem] = problems(QUEUE + "spec: {name: TMP.x}\n")
    assert "below 'TMP' there is only 'TMP.>'" in problem


@pytest.mark.covers("EMS-ADMIN-E15")
@pytest.mark.parametrize(
    "place",
    [
        "source: {topic: 'TMP.>'}, targets: [{queue: a}]",
        "source: {topic: a}, targets: [{topic: 'TMP.>'}]",
        "source: {topic: '$sys.undelivered'}, targets: [{queue: a}]",
    ],
)
def test_neither_side_of_a_bridge_is_temporary_or_the_brokers(place: str) -> None:
    [problem] = problems(HEAD + f"kind: Bridge\nmetadata: {{name: b}}\nspec: {{{place}}}\n")
    assert "spec.source.topic" in problem or "spec.targets[0].topic" in problem


@pytest.mark.covers("EMS-DEST-A51")
def test_a_bridge_has_a_source_that_may_be_a_pattern_and_several_concrete_targets() -> None:
    text = HEAD + (
        "kind: Bridge\nmetadata: {name: b}\nspec:\n  source: {topic: 'a.>'}\n"
        '  targets: [{queue: q, selector: "x > 1"}, {topic: t}]\n'
    )
    [manifest] = read_text(text, "f")
    bridge = manifest.resource.document()["spec"]
    assert bridge["targets"] == [{"queue": "q", "selector": "x > 1"}, {"topic": "t"}]
    [problem] = problems(text.replace("{topic: t}", "{topic: 't.*'}"))
    assert "the name of one destination is needed here" in problem


def test_a_durable_is_known_by_its_object_and_its_subscription_name() -> None:
    text = HEAD + "kind: DurableSubscription\nmetadata: {name: d}\nspec: {topic: 'a.>', clientId: c, name: My Sub}\n"
    resource = read_text(text, "f")[0].resource
    assert isinstance(resource, DurableSubscription)
    assert (resource.subject, resource.subscription_name) == ("d", "My Sub")
