"""What this broker has on its disk and the cluster gives no home.

In the ordinary course there is nothing: a destination is made where its home is, and leaves before its home does. But
an etcd may have been emptied or restored and taken as it is. A destination without a home is then claimed where its
messages are, before anybody makes it anew elsewhere. What has its home elsewhere is the business of `served`.
"""

from typing import Any

from sterna_etcd import HomeKey

from sterna_broker.cluster.view import View


def homeless(view: View, rows: dict[HomeKey, dict[str, Any]]) -> list[HomeKey]:
    """Those of what is here that have none; temporary and the broker's own destinations need none."""
    return [
        key
        for key, row in rows.items()
        if not key.name.startswith("$") and row.get("origin") != "temporary" and view.home(key.kind, key.name) is None
    ]
