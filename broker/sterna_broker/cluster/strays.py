"""What this broker has on its disk and the cluster gives no home.

In the ordinary course there is nothing: a destination is made where its home is, and leaves before its home does. But
an etcd may have been emptied or restored and taken as it is. A destination without a home is then claimed where its
messages are, before anybody makes it anew elsewhere. What has its home elsewhere is the business of `served`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from sterna_etcd import HomeKey

from sterna_broker.cluster import placement
from sterna_broker.cluster.homes import Homes
from sterna_broker.cluster.served import Served
from sterna_broker.cluster.upkeep import EngineView
from sterna_broker.cluster.view import View
from sterna_broker.configuration.objects import ObjectSet

_log = structlog.get_logger(part="cluster")

# How long homes that nothing lives in are left alone: what was claimed may not have been opened yet.
_UNUSED_S = 60.0


def homeless(view: View, rows: dict[HomeKey, dict[str, Any]]) -> list[HomeKey]:
    """Those of what is here that have none; temporary and the broker's own destinations need none."""
    return [
        key
        for key, row in rows.items()
        if not key.name.startswith("$") and row.get("origin") != "temporary" and view.home(key.kind, key.name) is None
    ]


async def look_after(homes: Homes, engine: EngineView, served: Served, objects: Callable[[], ObjectSet]) -> None:
    """Claims what is here and has no home, gives up homes of ours that nothing lives in."""
    now_s, view = asyncio.get_running_loop().time(), homes.view
    rows = {
        HomeKey(kind, name): row
        for kind in ("queue", "topic")
        for name, row in (await engine.rows_by_and_by(kind)).items()
    }
    served.compare_all(rows)
    if strays := homeless(view, rows):
        _log.warning("homeless_destinations", claimed=[key.name for key in strays[:10]])
        await homes.claim_all(dict.fromkeys(strays, homes.name), ())
    needed = placement.wanted(objects())
    unused = [
        key
        for key in view.homes_on(homes.name)
        if key not in needed and key not in rows and now_s - homes.claimed_s.get(key, 0.0) >= _UNUSED_S
    ]
    subscribed = engine.subscribed() if any(key.kind == "pattern" for key in unused) else set()
    for key in unused:
        if key.kind != "pattern" or key.name not in subscribed:
            await homes.release(key, lambda key=key: engine.is_unused(key))  # type: ignore[misc]
