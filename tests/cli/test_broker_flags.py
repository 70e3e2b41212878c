"""The flags of `sterna broker` and their twins in the environment."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sterna_broker.options import BrokerOptions

from tests.cli.conftest import Ran


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[BrokerOptions]:
    """What brokers were started with, none of which runs."""
    found: list[BrokerOptions] = []

    def run(options: BrokerOptions) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr("sterna_broker.main.run", run)
    return found


def test_flags_of_the_broker_have_twins_in_the_environment(
    sterna: Callable[..., Ran], given: list[BrokerOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    twins = {"DATA": str(tmp_path), "LISTEN": "127.0.0.1:1", "TLS_CERT": "c", "INSECURE": "true", "REFLECTION": "false"}
    for name, value in twins.items():
        monkeypatch.setenv(f"STERNA_BROKER_{name}", value)
    assert sterna("broker", "--listen", "127.0.0.1:2").code == 0
    (options,) = given
    assert (options.data, options.tls_cert, options.insecure, options.reflection) == (tmp_path, Path("c"), True, False)
    # What is typed comes first.
    assert options.listen == "127.0.0.1:2"


def test_a_pod_is_told_in_its_environment_whose_it_is(
    sterna: Callable[..., Ran], given: list[BrokerOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the operator's StatefulSet does: an image from before passes over what it does not know there."""
    monkeypatch.setenv("STERNA_BROKER_OWNER", f"@{tmp_path / 'owner'}")
    assert sterna("broker", "--data", str(tmp_path), "--etcd", "http://e:1", "--cluster", "c", "--name", "b").code == 0
    assert given[0].cluster is not None
    assert given[0].cluster.owner_file == tmp_path / "owner"
    assert given[0].cluster.owner == ""
