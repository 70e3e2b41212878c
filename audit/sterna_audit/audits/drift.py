"""The audit `drift`: what changed in the configuration from cut to cut, and whether it is what manifests say."""

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.declared import UNTOLD, Declarations, Difference, UnreadableError
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import Broker, History, Interval
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

_OBJECT = ["place", "kind", "name"]
_CHANGE = ["place", "cut", "kind", "name"]
_VALUE_CHARACTERS_MAX = 200
#: So many fields of an object are told in the sentence; all are in the evidence.
_TOLD_MAX = 5
_ABSENT = "nothing"


def drift(history: History) -> DataFrame:
    """What changed between cuts, and what differs from manifests where some were given.

    **Between the two cuts of an interval**, each a figure or a warning, since to change a configuration is nobody's
    fault: objects that came (`added`), went (`removed`), and changed (`changed`), with the fields and both revisions; a
    revision that says what it should not, being the same for another text (`same-revision`), or an older one
    (`older-revision`: etcd may have been restored from a copy); an object that was written again and is as it was, or
    was changed and changed back in between (`rewritten`). How many there were is a figure for each interval
    (`compared`), with how often the configuration was handed to the engine in between.

    **Against manifests**, at each broker's last cut: violated is an object that they describe and that is not in force
    (`missing`), and one of which a field is otherwise (`different`), both with defaults where nothing is said. What is
    in force and in no manifest is a warning (`extra`): perhaps these are not all manifests. A manifest is for the
    cluster that its `clusterRef` names, and for all brokers if it names none; a Broker is for the broker of its name.

    Not provable: a cut without any configuration (`no-configuration`); where no manifests were given, or none is for a
    broker (`no-manifests`); manifests that are for no broker that is audited (`elsewhere`), or of kinds that snapshots
    do not have (`untold`: users, clusters); an object of which a snapshot says what these models cannot read
    (`unread`).

    The configuration is the one in force when a cut was read, which may be later than the cut. It is as large as people
    write it: objects whose texts are not those of their manifests come to the driver one by one, where models compare.
    """
    held = {(one.number, cut) for one in history.brokers for cut in one.snapshots if _objects(one, cut)}
    intervals = [one for one in history.intervals if {(one.place, one.cut), (one.place, one.cut - 1)} <= held]
    judged = [one for one in history.brokers if one.snapshots and (one.number, max(one.snapshots)) in held]
    said = [*_unjudged(history, held), *_without_manifests(history, judged)]
    parts = []
    if intervals:
        changes = history.keep(_changes(history, intervals))
        parts += [_changed(history, changes), _figures(history, intervals, changes)]
    if history.manifests is not None and judged:
        against = _Against(history, history.manifests, judged)
        said += against.findings()
        parts.append(against.absent())
    return reduce(DataFrame.unionAll, parts, findings.frame(history.spark, said))


_BACK = "If that was not meant: apply the manifests again, and find out who changed it, and by which way."
AUDIT = Audit(
    "drift",
    "What changed in the configuration from cut to cut, and that it is what manifests say.",
    drift,
    {
        "no-interval": OF_UNJUDGED["no-interval"],
        "compared": Meaning("So many objects were compared at the two cuts."),
        "added": Meaning("An object came into force between the two cuts.", "Look whether that was meant."),
        "removed": Meaning("An object is not in force any more.", "Look whether that was meant."),
        "changed": Meaning("Fields of an object are not what they were.", "Look whether that was meant."),
        "same-revision": Meaning(
            "An object says something else, and its revision is the same.",
            "Nothing that goes through the cluster's store can do that: look who has access to etcd itself.",
        ),
        "older-revision": Meaning(
            "An object's revision is an older one than before.",
            "Look whether etcd was restored from a copy, and what else is missing since.",
        ),
        "rewritten": Meaning("An object was written again and is as it was, or was changed and changed back."),
        "missing": Meaning("A manifest describes an object that is not in force.", f"Apply the manifest. {_BACK}"),
        "different": Meaning("What is in force is not what the manifest says.", _BACK),
        "extra": Meaning(
            "An object is in force that no manifest describes.",
            "Write a manifest for it, or delete it; or give the audit all manifests.",
        ),
        "as-declared": Meaning("What is in force is what the manifests say."),
        "no-configuration": Meaning("A snapshot holds no configuration: what was in force is not known."),
        "no-manifests": Meaning(
            "Nothing says what the configuration should be.", "Give the audit the manifests, by --manifests."
        ),
        "untold": Meaning("Snapshots hold nothing of these kinds, so that nobody can compare them."),
        "elsewhere": Meaning(
            "The manifest is for none of the brokers that are audited.",
            "Look at its clusterRef, or at the name of a Broker.",
        ),
        "unread": Meaning(
            "The snapshot says of an object what this version cannot read.", "Audit with the version of the brokers."
        ),
    },
)


def _objects(broker: Broker, cut: int) -> int:
    """How many objects a cut's configuration has, by its manifest."""
    manifest = broker.snapshots[cut]
    return sum(manifest.files[path].rows for path in manifest.files_of("state", "configuration"))


def _unjudged(history: History, held: set[tuple[int, int]]) -> Iterator[Finding]:
    # Events are not looked at here, so that none can be missing.
    yield from (one for one in unjudged(history) if one.what == "no-interval")
    for broker in history.brokers:
        without = [cut for cut in sorted(broker.snapshots) if (broker.number, cut) not in held]
        if without:
            why = f"{len(without)} cuts hold no configuration, cut {without[-1]} among them"
            yield _of(broker, "not provable", "warning", "no-configuration", why, without[-1])


def _of(
    broker: Broker, verdict: findings.Verdict, severity: findings.Severity, what: str, why: str, cut: int
) -> Finding:
    return Finding(verdict, severity, what, why, broker.place.cluster, broker.place.broker, cut)


def _without_manifests(history: History, judged: list[Broker]) -> Iterator[Finding]:
    """Brokers whose configuration is held against nothing, and manifests that are held against nothing."""
    for broker in judged:
        cut = max(broker.snapshots)
        if history.manifests is None:
            why = "no manifests were given, so that what is in force was held against nothing"
            yield _of(broker, "not provable", "info", "no-manifests", why, cut)
        elif not any(True for _ in history.manifests.of(broker.place)):
            why = f"none of the manifests in {history.manifests.path} is for this broker"
            yield _of(broker, "not provable", "warning", "no-manifests", why, cut)
    for one in history.manifests.manifests if history.manifests is not None else ():
        where = {"file": one.file}
        if one.kind in UNTOLD:
            why = "snapshots hold nothing of this kind"
            yield Finding("not provable", "info", "untold", why, object=f"{one.kind} {one.name}", evidence=where)
        elif not any(one.concerns(broker.place) for broker in judged):
            why = "it is for none of the brokers whose configuration is known"
            yield Finding("not provable", "info", "elsewhere", why, object=f"{one.kind} {one.name}", evidence=where)


def _changes(history: History, intervals: list[Interval]) -> DataFrame:
    """Objects that are not the same at the two cuts of an interval."""

    def of(rows: DataFrame, when: str) -> DataFrame:
        return rows.select(*_CHANGE, *(F.col(name).alias(f"{name}_{when}") for name in ("revision", "spec")))

    before = of(history.before("configuration", intervals), "before")
    after = of(history.after("configuration", intervals), "after")
    both = before.join(after, _CHANGE, "full_outer")
    is_same = [F.equal_null(f"{name}_before", f"{name}_after") for name in ("revision", "spec")]
    return both.filter(~(is_same[0] & is_same[1]))


def _changed(history: History, changes: DataFrame) -> DataFrame:
    """Each change as a finding."""
    is_counted = (F.col("revision_before") > 0) & (F.col("revision_after") > 0)
    what = (
        F.when(F.col("spec_before").isNull(), "added")
        .when(F.col("spec_after").isNull(), "removed")
        .when(is_counted & (F.col("revision_after") < F.col("revision_before")), "older-revision")
        .when(F.col("spec_before") == F.col("spec_after"), "rewritten")
        .when(is_counted & (F.col("revision_after") == F.col("revision_before")), "same-revision")
        .otherwise("changed")
    )
    rows = changes.withColumn("what", what).withColumn("fields", _fields())
    told = F.array_join(
        F.transform(
            F.slice("fields", 1, _TOLD_MAX),
            lambda one: F.concat(one["field"], F.lit(" was "), one["before"], F.lit(" and is "), one["after"]),
        ),
        "; ",
    )
    more = F.size("fields") - _TOLD_MAX
    why = (
        F.when(F.col("what") == "added", "it was not there at the cut before")
        .when(F.col("what") == "removed", "it is not there any more")
        .when(F.size("fields") == 0, "it was written again, and says the same")
        .otherwise(F.concat(told, F.when(more > 0, F.format_string("; and %d more fields", more)).otherwise("")))
    )
    return findings.select(
        history.placed(rows),
        verdict="ok",
        severity=F.when(F.col("what") == "rewritten", "info").otherwise("warning"),
        why=why,
        object=F.concat("kind", F.lit(" "), "name"),
        evidence=["revision_before", "revision_after", F.when(F.size("fields") > 0, F.col("fields")).alias("fields")],
    )


def _fields() -> Column:
    """The fields of a specification that differ, each with what it was and what it is."""
    before, after = (F.from_json(f"spec_{when}", "map<string, string>") for when in ("before", "after"))
    names = F.array_sort(F.array_union(_keys(before), _keys(after)))
    both = F.transform(
        names,
        lambda name: F.struct(name.alias("field"), _value(before, name, "before"), _value(after, name, "after")),
    )
    differing = F.filter(both, lambda one: one["before"] != one["after"])
    is_changed = F.col("spec_before").isNotNull() & F.col("spec_after").isNotNull()
    return F.when(is_changed, differing).otherwise(F.array().cast(_FIELDS))


_FIELDS = "array<struct<field: string, before: string, after: string>>"


def _keys(fields: Column) -> Column:
    return F.coalesce(F.map_keys(fields), F.array().cast("array<string>"))


def _value(fields: Column, name: Column, when: str) -> Column:
    return F.coalesce(F.try_element_at(fields, name), F.lit(_ABSENT)).alias(when)


def _figures(history: History, intervals: list[Interval], changes: DataFrame) -> DataFrame:
    """Of each interval how many objects there are, how many changed, and how often all was handed over."""
    objects = history.after("configuration", intervals).groupBy("place", "cut").agg(F.count("*").alias("objects"))
    changed = changes.groupBy("place", "cut").agg(F.count("*").alias("changed"))
    handed = history.events("configured", intervals).groupBy("place", "cut").agg(F.count("*").alias("handed_over"))
    rows = objects.join(changed, ["place", "cut"], "left").join(handed, ["place", "cut"], "left").fillna(0)
    return findings.select(
        history.placed(rows),
        verdict="ok",
        severity="info",
        what="compared",
        why=F.format_string("%d objects are in force, and %d are not as at the cut before", "objects", "changed"),
        evidence=["objects", "changed", "handed_over"],
    )


class _Against:
    """What is in force at the last cut, beside what manifests say.

    Args:
        history: of which.
        manifests: what should be in force.
        judged: the brokers whose configuration is known.
    """

    def __init__(self, history: History, manifests: Declarations, judged: list[Broker]) -> None:
        self._history = history
        self._manifests = manifests
        self._brokers = {one.number: one for one in judged if any(True for _ in manifests.of(one.place))}
        self._rows = history.keep(self._declared().join(self._in_force(), _OBJECT, "full_outer"))

    def _declared(self) -> DataFrame:
        """Each manifest of each broker: `file`, and the texts that a snapshot may have of it."""
        rows = [
            (places, one.kind, one.name, one.file, one.spec, one.applied_spec)
            for one in self._manifests.manifests
            if (places := [number for number, broker in self._brokers.items() if one.concerns(broker.place)])
        ]
        columns = "places array<int>, kind string, name string, file string, spec string, applied string"
        told = self._history.spark.createDataFrame(rows, columns)
        return told.select(
            F.explode("places").alias("place"), "kind", "name", "file", F.array("spec", "applied").alias("specs")
        )

    def _in_force(self) -> DataFrame:
        """What is in force, each under the name that it claims in its cluster, as manifests have it."""
        rows = self._history.newest("configuration")
        chosen = rows.filter(F.col("place").isin(*self._brokers) if self._brokers else F.lit(False))

        def said(field: str) -> Column:
            return F.get_json_object("spec", f"$.{field}")

        # A broker by itself knows objects by the names of their manifests, one in a cluster by what they claim.
        subscription = F.concat(F.coalesce(said("clientId"), F.lit("")), F.lit("/"), F.coalesce(said("name"), "name"))
        own = F.coalesce(said("name"), F.col("name"))
        name = (
            F.when(F.col("kind").isin("Queue", "Topic", "Store"), own)
            .when((F.col("kind") == "DurableSubscription") & ~F.col("name").contains("/"), subscription)
            .otherwise(F.col("name"))
        )
        return chosen.select("place", "cut", "kind", name.alias("name"), "revision", "spec")

    def absent(self) -> DataFrame:
        """What is described and not in force, and what is in force and not described."""
        last = self._history.spark.createDataFrame(
            [(number, max(broker.snapshots)) for number, broker in self._brokers.items()], "place int, last long"
        )
        is_missing = F.col("spec").isNull()
        rows = self._rows.filter(is_missing | F.col("file").isNull()).join(F.broadcast(last), "place")
        return findings.select(
            self._history.placed(rows),
            verdict=F.when(is_missing, "violated").otherwise("ok"),
            severity=F.when(is_missing, "error").otherwise("warning"),
            what=F.when(is_missing, "missing").otherwise("extra"),
            why=F.when(is_missing, F.concat(F.lit("it is not in force, and stands in "), "file")).otherwise(
                "it is in force, and no manifest describes it"
            ),
            cut=F.col("last"),
            object=F.concat("kind", F.lit(" "), "name"),
            evidence=["file", "revision", F.expr(f"left(spec, {_VALUE_CHARACTERS_MAX})").alias("spec")],
        )

    def findings(self) -> Iterator[Finding]:
        """What is in force and described otherwise; and of each broker how many are as they are described."""
        both = F.col("spec").isNotNull() & F.col("file").isNotNull()
        is_same = F.array_contains("specs", F.col("spec"))
        same = {
            row["place"]: row["count"] for row in self._rows.filter(both & is_same).groupBy("place").count().collect()
        }
        for row in self._rows.filter(both & ~is_same).drop("specs").toLocalIterator():
            found = self._compared(row["place"], row["kind"], row["name"], row["file"], row["spec"], row["revision"])
            if found is None:
                same[row["place"]] = same.get(row["place"], 0) + 1
            else:
                yield found
        for number, broker in self._brokers.items():
            count = same.get(number, 0)
            why = f"{count} objects are in force as {self._manifests.path} describes them"
            yield _of(broker, "ok", "info", "as-declared", why, max(broker.snapshots))

    def _compared(self, place: int, kind: str, name: str, file: str, spec: str, revision: int) -> Finding | None:
        broker = self._brokers[place]
        where = (broker.place.cluster, broker.place.broker, max(broker.snapshots), f"{kind} {name}")
        evidence = {"file": file, "revision": revision}
        try:
            differences = self._manifests.by_place[kind, name, file].differences(spec)
        except UnreadableError as error:
            return Finding("not provable", "warning", "unread", str(error), *where, evidence=evidence)
        if not differences:
            return None
        fields = [one.values() for one in differences]
        return Finding(
            "violated", "error", "different", _told(differences), *where, evidence={**evidence, "fields": fields}
        )


def _told(differences: list[Difference]) -> str:
    shown = "; ".join(map(str, differences[:_TOLD_MAX]))
    more = len(differences) - _TOLD_MAX
    return f"{shown}; and {more} more fields" if more > 0 else shown
