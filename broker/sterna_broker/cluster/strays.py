"""What this broker has on its disk and the cluster does not know to be here.

In the ordinary course there is nothing: a destination is made where its home is, and leaves before its home does. But
an etcd may have been emptied or restored and taken as it is, and a broker may have been given up by force and come
back. A destination without a home is then claimed where its messages are, before anybody makes it anew elsewhere; one
whose home is elsewhere by now is named, with what it still has, for people to look at.
"""

from dataclasses import dataclass, field
from typing import Any

from sterna_etcd import HomeKey

from sterna_broker.cluster.upkeep import messages_of
from sterna_broker.cluster.view import View

_NAMED_MAX = 5


@dataclass
class Strays:
    """`homeless` are to be claimed here; `stranded` live elsewhere, with how many messages are here."""

    homeless: list[HomeKey] = field(default_factory=list)
    stranded: dict[HomeKey, int] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """One sentence, naming some."""
        if not self.stranded:
            return []
        named = [f"{key.kind} '{key.name}' ({count})" for key, count in list(self.stranded.items())[:_NAMED_MAX]]
        more = len(self.stranded) - len(named)
        names = ", ".join(named) + (f" and {more} more" if more else "")
        return [f"messages here of destinations that live on other brokers, which nobody is given: {names}"]


def find(view: View, name: str, rows: dict[HomeKey, dict[str, Any]]) -> Strays:
    """Compares what there is with the homes; temporary and the broker's own destinations have none."""
    found = Strays()
    for key, row in rows.items():
        if key.name.startswith("$") or row.get("origin") == "temporary":
            continue
        home = view.home(key.kind, key.name)
        if home is None:
            found.homeless.append(key)
        elif home != name and (count := messages_of(row)):
            found.stranded[key] = count
    return found
