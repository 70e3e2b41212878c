"""What charts of a run show, as specifications of Vega-Lite, and pictures as a page has them.

A picture is SVG in a data URI: a browser runs no script in it, whatever a client called its queue.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from sterna_audit.audits.findings import VERDICTS, Verdict
from sterna_audit.audits.running import Result
from sterna_audit.report.texts import printable

COLOURS: Mapping[Verdict, str] = {
    "violated": "#b3261e",
    "not provable": "#9a6700",
    "in flight": "#0b57d0",
    "ok": "#1a7f37",
}
_WIDTH = 640
_BAR = 22
#: A chart of more bars than these cannot be read.
_OBJECTS_MAX = 15
_KINDS_MAX = 8
_LABEL_PIXELS = 260
_LABEL_CHARACTERS = 60
_PADDING = {"left": 40, "right": 60, "top": 5, "bottom": 5}


Specification = dict[str, Any]


def overview(results: Sequence[Result]) -> Specification | None:
    """How many findings of which verdict each audit has; None if there is nothing to draw."""
    rows = [
        {"audit": result.name, "verdict": verdict, "findings": count}
        for result in results
        for verdict, count in result.counts.items()
        if count
    ]
    if not rows:
        return None
    colour = alt.Scale(domain=list(VERDICTS), range=[COLOURS[verdict] for verdict in VERDICTS])
    chart = _bars(rows, "audit", [result.name for result in results]).encode(
        x=alt.X("findings:Q", title="findings", scale=alt.Scale(type="symlog"), axis=alt.Axis(tickMinStep=1)),
        color=alt.Color("verdict:N", scale=colour, sort=list(VERDICTS), title=None),
        # One beside the other: a length on this scale does not add up.
        yOffset=alt.YOffset("verdict:N", sort=list(VERDICTS)),
    )
    return _specification(chart)


def by_object(result: Result) -> Specification | None:
    """Of how many messages an audit speaks, by object and kind: the largest of them; None if it speaks of none."""
    told = [one for one in result.findings if one.object and one.messages > 0]
    of_objects: Counter[str] = Counter()
    of_kinds: Counter[str] = Counter()
    of_both: Counter[tuple[str, str]] = Counter()
    for one in told:
        name, what = _short(one.object), _short(one.what)
        of_objects[name] += one.messages
        of_kinds[what] += one.messages
        of_both[name, what] += one.messages
    objects = [name for name, _ in of_objects.most_common(_OBJECTS_MAX)]
    kinds = {what for what, _ in of_kinds.most_common(_KINDS_MAX)}
    if not objects:
        return None
    rows = [
        {"object": name, "what": what if what in kinds else "other", "messages": count}
        for (name, what), count in of_both.items()
        if name in objects
    ]
    chart = _bars(rows, "object", objects).encode(
        x=alt.X("sum(messages):Q", title="messages", axis=alt.Axis(tickMinStep=1)),
        color=alt.Color("what:N", title=None),
    )
    return _specification(chart)


def _bars(rows: list[dict[str, Any]], name: str, order: list[str]) -> alt.Chart:
    axis = alt.Axis(labelLimit=_LABEL_PIXELS, title=None)
    height = max(3, len(order)) * _BAR
    empty = alt.Chart(alt.InlineData(values=rows), width=_WIDTH, height=height)
    chart: alt.Chart = empty.mark_bar().encode(y=alt.Y(f"{name}:N", sort=order, axis=axis))
    return chart


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"


def _specification(chart: alt.Chart) -> Specification:
    # Texts are measured where the chart is drawn, and a browser's letters may be wider.
    chart = chart.configure(background="transparent", padding=_PADDING).configure_view(stroke=None)
    specification: Specification = chart.to_dict()
    return specification


def picture(svg: str) -> str:
    """SVG as the address of a picture."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
