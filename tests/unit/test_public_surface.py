"""The wire contract and the SDK's public names change only on purpose."""

import pytest

from tools import baseline


@pytest.mark.parametrize("surface", sorted(baseline.SURFACES))
def test_the_public_surface_is_the_accepted_one(surface: str) -> None:
    different = baseline.difference(surface)
    assert not different, f"{different}\n\nIf this is meant: `{baseline.COMMAND}`, and review the difference."


def test_a_lost_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    less = baseline.protos().replace("sterna.v1.Message.", "sterna.v1.Massage.")
    monkeypatch.setitem(baseline.SURFACES, "protos", lambda: less)
    assert "-sterna.v1.Message." in baseline.difference("protos")
