"""The report: a page of its own, which says the worst first and leads to each message in a few clicks."""

import re

import pytest
from sterna_audit.audits import registry
from sterna_audit.audits.findings import COLLECTED_MAX, Finding, Severity, Verdict
from sterna_audit.audits.meanings import Meaning, meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.running import Result, Run
from sterna_audit.report import charts, drawing
from sterna_audit.report.drawing import DrawingError
from sterna_audit.report.page import page
from sterna_audit.report.texts import moment, number, printable

from tests.audit.html_pages import Page

# Charts are drawn by a process of their own.
pytestmark = pytest.mark.usefixtures("tier_broker")

LOST_ID = "ID:broker-0.100000001.0000000000001E61:4711"
EVIL = "<script>alert('x')</script>&amp;\u202eevil\x00"
RANGE = {
    "cluster": "bank",
    "broker": "broker-0",
    "first": 3,
    "last": 5,
    "intervals": 2,
    "unproven": ["between cuts 2 and 3: <b>it is gone</b>"],
    "time_ms": {"3": 1_790_000_000_000, "5": 1_790_086_400_000},
}


def finding(
    verdict: Verdict, severity: Severity, what: str, name: str = "", message: str = "", count: int = 0
) -> Finding:
    why = f"why of {what}"
    return Finding(
        *(verdict, severity, what, why, "bank", "broker-0", 5, name, message, count), evidence={"position": 12_345}
    )


def result(name: str, *found: Finding, hidden: int = 0, error: str = "") -> Result:
    counts: dict[Verdict, int] = {}
    for one in found:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    if hidden:
        counts["ok"] = counts.get("ok", 0) + hidden
    return Result(name, f"It proves {name}.", counts, found, 1.5, error)


def of(*results: Result, audits: tuple[Audit, ...] = ()) -> Page:
    return Page(page(Run(results, (RANGE,), 1_790_000_000_000), audits))


CLEAN = result("chain", finding("ok", "info", "verified"))
LOSS = result(
    "conservation",
    finding("violated", "critical", "lost", "orders", LOST_ID, 1),
    finding("ok", "info", "balanced", count=1_234_567),
)
OPEN = result("ledgers", finding("not provable", "warning", "no-ledger"))


def test_a_lost_message_is_three_clicks_from_the_index_at_most() -> None:
    shown = of(CLEAN, LOSS, OPEN)
    # The worst stand in the index itself.
    assert shown.clicks("index", LOST_ID, 0) == 0
    [link] = [one for one in shown.ids["index"].elements if one.name == "a" and one.text == "lost"]
    assert LOST_ID in shown.ids[link.attributes["href"].removeprefix("#")].text
    # What has no place among the worst is found by the table of audits.
    many = [finding("violated", "critical", "lost", "orders", f"ID:{one}", 1) for one in range(500)]
    full = of(
        CLEAN, result("conservation", *many), result("order", finding("in flight", "info", "late", "bills", LOST_ID))
    )
    clicks = full.clicks("index", LOST_ID, 3)
    assert clicks is not None
    assert 0 < clicks <= 3
    assert full.clicks("index", "ID:499", 3) == 1


def test_the_worst_comes_first_and_each_kind_says_what_it_means_and_what_to_do() -> None:
    error = result("bridges", error="executors run no Python")
    shown = of(CLEAN, OPEN, error, LOSS)
    sections = [one for one in shown.root.elements if one.name == "section"]
    assert [one.attributes["id"].removeprefix("audit-") for one in sections] == [
        "conservation",
        "bridges",
        "ledgers",
        "chain",
    ]
    assert "executors run no Python" in sections[1].text
    known = meaning("conservation", {}, "lost", "violated")
    assert known.means in sections[0].text
    assert known.todo in sections[0].text
    # A kind that nobody explains is explained by its verdict; an audit of one's own brings its words.
    assert meaning("ledgers", {}, "no-ledger", "not provable").means in sections[2].text
    own = Audit("chain", "", lambda history: history.places, {"verified": Meaning("As we like it.", "Rejoice.")})
    words = of(CLEAN, audits=(own,)).ids["audit-chain"].text
    assert "As we like it." in words
    assert "Rejoice." in words
    assert "1,234,567" in sections[0].text
    assert "2026-09-2" in shown.ids["index"].text


def test_names_that_clients_chose_are_shown_and_never_obeyed() -> None:
    evil = Finding("violated", "critical", EVIL, EVIL, EVIL, EVIL, 1, EVIL, EVIL, 3, {EVIL: EVIL, "list": [EVIL]})
    html = page(Run((result("order", evil, error=EVIL),), ({**RANGE, "broker": EVIL},), 0), [])
    shown = Page(html)
    assert {one.name for one in shown.root.elements} & {"script", "b", "iframe", "object", "link"} == set()
    assert "<script>alert('x')</script>&amp;" in shown.ids["index"].text
    # Neither a line's direction nor its end is theirs to say.
    assert "\u202e" not in html
    assert "\x00" not in html
    handlers = [name for one in shown.root.elements for name in one.attributes if name.startswith("on")]
    assert handlers == []


def test_it_needs_nothing_but_itself() -> None:
    shown = of(LOSS)
    sources = [
        value
        for one in shown.root.elements
        for name, value in one.attributes.items()
        if name in ("src", "href", "action", "data", "srcset")
    ]
    assert sources
    assert all(value.startswith(("#", "data:image/svg+xml;base64,")) for value in sources)
    [policy] = [one.attributes["content"] for one in shown.root.elements if "http-equiv" in one.attributes]
    assert policy.startswith("default-src 'none'")
    style = next(one.text for one in shown.root.elements if one.name == "style")
    assert "url(" not in style
    assert "@import" not in style
    for link in (one for one in shown.root.elements if one.attributes.get("href", "").startswith("#")):
        assert link.attributes["href"].removeprefix("#") in shown.ids


def test_charts_show_findings_and_messages_by_object() -> None:
    shown = of(CLEAN, LOSS)
    pictures = [one for one in shown.root.elements if one.name == "img"]
    assert len(pictures) == 2
    assert all(one.attributes["alt"] for one in pictures)
    assert sum(one.name == "img" for one in shown.ids["audit-conservation"].elements) == 1
    # A browser's letters may be wider than those by which there is room: names and legend were cut off at the edges.
    drawn = charts.overview([CLEAN, LOSS])
    assert drawn is not None
    assert min(drawn["config"]["padding"][side] for side in ("left", "right")) >= 40


def test_what_cannot_be_drawn_costs_the_charts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # The library that draws ends its process on such a text.
    deadly = {"data": {"values": [{"a": "\x00", "b": 1}]}, "mark": "bar", "encoding": {"y": {"field": "a"}}}
    with pytest.raises(DrawingError, match="ended with"):
        drawing.draw([deadly])
    monkeypatch.setattr(charts, "overview", lambda results: deadly)
    shown = of(LOSS)
    assert "There are no charts: the process" in shown.ids["index"].text
    assert shown.clicks("index", LOST_ID, 0) == 0


def test_it_shows_as_many_as_a_run_has_and_counts_the_rest() -> None:
    many = [finding("ok", "info", "figure", f"queue-{one}", count=1) for one in range(COLLECTED_MAX)]
    html = page(Run((result("backlog", *many, hidden=5_000_000),), (RANGE,), 0), [])
    shown = Page(html)
    assert "1,000 of 5,001,000" in re.sub(r"\s+", " ", shown.ids["audit-backlog"].text)
    assert (
        sum(one.name == "tr" and one.attributes.get("id", "").startswith("backlog-") for one in shown.root.elements)
        == 1_000
    )
    assert len(html) < 1 << 20
    endless = finding("ok", "info", "figure", "x" * 1_000_000)
    assert len(page(Run((result("backlog", *[endless] * 50),), (RANGE,), 0), [])) < 1 << 20


def test_texts_are_made_to_be_read() -> None:
    assert printable("a\nb\x1b[31m") == "a\ufffdb\ufffd[31m"
    assert printable("é漢🙂") == "é漢🙂"
    assert printable("x" * 401) == "x" * 400 + "… (401 characters)"
    assert (moment(0), moment(10**18), moment(1_790_000_000_000)) == ("", "", "2026-09-21 14:13:20 UTC")
    assert (number(1_234_567), number(True)) == ("1,234,567", "True")


def test_every_audit_of_ours_says_what_its_kinds_mean() -> None:
    for audit in registry.audits():
        for kind, said in audit.meanings.items():
            assert re.fullmatch(r"[a-z][a-z-]+", kind), kind
            assert said.means.endswith("."), kind
            assert said.todo == "" or said.todo.endswith("."), kind
