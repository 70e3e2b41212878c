"""Mistakes in stores and in the limits of a broker: each is refused with its line, and nothing of the file is taken."""

import pytest
from sterna_resources import Broker, ManifestError, read_text

HEAD = "apiVersion: sterna.dev/v1alpha1\n"
GOOD = HEAD + "kind: Queue\nmetadata: {name: orders}\n---\n"

# What a store says, and what is said of it.
STORES = [
    ("{mode: fast}", "spec.mode"),
    ("{mode: [sync]}", "spec.mode"),
    ("{type: file}", "spec.type: unknown field"),
    ("{file: async.db}", "spec.file: unknown field"),
    ("{name: ''}", "spec.name"),
    ("{name: $sys.meta}", "spec.name"),
    ("{name: $sys.failsafe, mode: async}", "always sync"),
    ("{quotaBytes: -1}", "spec.quotaBytes"),
    ("{quotaBytes: much}", "spec.quotaBytes"),
]

# What a broker says of a limit, and the field that is named.
LIMITS = [
    (f"{{{part}: {{{name}: {value}}}}}", f"spec.{part}.{name}")
    for part, name, values in [
        ("limits", "connections", (0, -1, 1_000_001, "many", 1.5)),
        ("limits", "messageBytes", (0, 65_535, 2**30 + 1, "16MB")),
        ("limits", "inflightBytes", (0, 2**32 + 1)),
        ("limits", "unacknowledgedMessages", (0, "none")),
        ("limits", "transactionMs", (-1, 1, 99, 86_400_001, "1m")),
        ("log", "segmentBytes", (2**20 - 1, 2**30 + 1)),
        ("log", "volatileBytes", (0, -1)),
        ("log", "cacheBytes", (0, "all")),
    ]
    for value in values
]


def _is_refused(kind: str, spec: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_text(GOOD + HEAD + f"kind: {kind}\nmetadata: {{name: m}}\nspec: {spec}\n", "f.yaml")
    assert "f.yaml:8:" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.covers("EMS-ADMIN-E20")
@pytest.mark.parametrize(("spec", "said"), STORES)
def test_a_store_with_a_mistake_is_refused_with_its_line(spec: str, said: str) -> None:
    _is_refused("Store", spec, said)


@pytest.mark.covers("EMS-ADMIN-E12")
@pytest.mark.parametrize(("spec", "field"), LIMITS)
def test_a_limit_that_is_none_is_refused_with_its_line_and_not_set_to_another(spec: str, field: str) -> None:
    _is_refused("Broker", spec, field)


@pytest.mark.parametrize("value", [0, 100, 86_400_000])
def test_a_limit_of_time_for_transactions_is_none_or_long_enough_for_one(value: int) -> None:
    text = HEAD + f"kind: Broker\nmetadata: {{name: m}}\nspec: {{limits: {{transactionMs: {value}}}}}\n"
    [made] = read_text(text, "f.yaml")
    assert isinstance(made.resource, Broker)
    assert made.resource.spec.limits.transaction_ms == value


@pytest.mark.covers("EMS-ADMIN-E12")
def test_a_message_that_fits_no_segment_is_refused() -> None:
    _is_refused("Broker", "{limits: {messageBytes: 1048576}, log: {segmentBytes: 1048576}}", "messageBytes")
