"""Names that brokers have given up: remembered for as long as a home stands in the way, and no longer."""

from types import SimpleNamespace
from typing import Any

import pytest
from sterna_etcd import Claim, Layout
from sterna_operator.apply import Applier
from sterna_operator.plans import RemoveConfig


@pytest.mark.parametrize(("home", "freed"), [("b0", {Claim("Queue", "orders")}), (None, set[Claim]())])
async def test_a_name_whose_home_has_gone_already_is_not_remembered(home: str | None, freed: set[Claim]) -> None:
    """It would be for good: what takes it out is the end of its home."""

    async def write(*_: Any, **__: Any) -> None:
        """Into an etcd that takes it."""

    mirror = SimpleNamespace(home_of=lambda claim: home)
    store: Any = SimpleNamespace(layout=Layout("c1"), mirror=mirror, write=write, freed=set())
    kube: Any = None
    applier = Applier(kube, None, store, lambda: None)
    await applier.execute([RemoveConfig("delete orders", Claim("Queue", "orders"), 7, is_deleted=True)])
    assert store.freed == freed
