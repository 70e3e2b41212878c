"""The page: an index with the worst first, and a section for each audit in which findings stand by their kinds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined

from sterna_audit.audits import running
from sterna_audit.audits.findings import SEVERITIES, VERDICTS, Finding, Severity, Verdict
from sterna_audit.audits.meanings import Meaning, meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.running import Result, Run
from sterna_audit.report import charts, drawing, texts

#: Its name beside the JSON and the Parquet files.
HTML = "report.html"
_WORST_MAX = 20


@dataclass(frozen=True)
class Row:
    """A finding and where it stands in the page."""

    anchor: str
    finding: Finding


@dataclass(frozen=True)
class Group:
    """The findings of an audit that are of one kind and verdict."""

    anchor: str
    what: str
    verdict: Verdict
    severity: Severity
    meaning: Meaning
    rows: tuple[Row, ...]

    @property
    def messages(self) -> int:
        """Of how many messages they speak."""
        return sum(row.finding.messages for row in self.rows)


@dataclass(frozen=True)
class Section:
    """An audit in the page."""

    result: Result
    groups: tuple[Group, ...]

    @property
    def anchor(self) -> str:
        """Where it stands."""
        return f"audit-{self.result.name}"

    @property
    def total(self) -> int:
        """How many findings it has, shown or not."""
        return sum(self.result.counts.values())

    @property
    def shown(self) -> int:
        """How many of them are in the page."""
        return len(self.result.findings)

    @property
    def warnings(self) -> int:
        """How many of those that are shown ask for somebody to look, although nothing is violated."""
        return sum(one.verdict != "violated" and one.severity != "info" for one in self.result.findings)


def page(run: Run, audits: Iterable[Audit]) -> str:
    """The report of a run as HTML.

    Args:
        run: what was found. Of each audit it has at most 1,000 findings: these are shown, and the rest counted.
        audits: those that ran, which say what their kinds of findings mean.
    """
    own = {audit.name: audit.meanings for audit in audits}
    sections = sorted((_section(result, own.get(result.name, {})) for result in run.results), key=_rank)
    rows = {(section.result.name, id(row.finding)): row for section in sections for row in _rows(section.groups)}
    worst = [(name, rows[name, id(finding)]) for name, finding in running.worst(run, _WORST_MAX)]
    pictures, undrawn = _pictures(sections)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            run=run,
            sections=sections,
            worst=worst,
            pictures=pictures,
            undrawn=undrawn,
            verdicts=VERDICTS,
            colours=charts.COLOURS,
        )
    )


def _pictures(sections: Sequence[Section]) -> tuple[dict[str, str], str]:
    """Charts by the anchors of their sections, that of the index among them, and why there are none."""
    told = {section.anchor: charts.by_object(section.result) for section in sections}
    told["index"] = charts.overview([section.result for section in sections])
    wanted = {anchor: one for anchor, one in told.items() if one is not None}
    try:
        drawn = drawing.draw(list(wanted.values()))
    except drawing.DrawingError as error:
        return {}, str(error)
    return {anchor: charts.picture(svg) for anchor, svg in zip(wanted, drawn, strict=True)}, ""


def _environment() -> Environment:
    # Everything that is put in is escaped; what is misspelt is an error, not an empty text.
    environment = Environment(
        loader=PackageLoader("sterna_audit.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(printable=texts.printable, moment=texts.moment, number=texts.number)
    return environment


def _section(result: Result, own: Mapping[str, Meaning]) -> Section:
    rows = [Row(f"{result.name}-{number}", finding) for number, finding in enumerate(result.findings, 1)]
    ranked = sorted(rows, key=lambda row: (*_worse(row.finding), row.finding.what))
    groups = [
        _group(result.name, own, list(of_kind))
        for _, of_kind in groupby(ranked, key=lambda row: (*_worse(row.finding), row.finding.what))
    ]
    return Section(result, tuple(groups))


def _group(audit: str, own: Mapping[str, Meaning], rows: Sequence[Row]) -> Group:
    first = rows[0].finding
    return Group(
        f"kind-{rows[0].anchor}",
        first.what,
        first.verdict,
        first.severity,
        meaning(audit, own, first.what, first.verdict),
        tuple(rows),
    )


def _worse(finding: Finding) -> tuple[int, int]:
    return VERDICTS.index(finding.verdict), SEVERITIES.index(finding.severity)


def _rank(section: Section) -> tuple[int, int, int]:
    """Worst first; those that did not come to an end before all others of theirs."""
    worst = min((_worse(one) for one in section.result.findings), default=(0, 0))
    return VERDICTS.index(section.result.verdict), int(not section.result.error), worst[1]


def _rows(groups: Iterable[Group]) -> list[Row]:
    return [row for group in groups for row in group.rows]
