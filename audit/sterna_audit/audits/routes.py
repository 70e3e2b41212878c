"""Which bridges lead from which destination to which, within each interval, as configuration at its two cuts says."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.history import History
from sterna_audit.audits.naming import destinations
from sterna_audit.audits.patterns import regex

_SPEC = (
    "source struct<queue: string, topic: string>, targets array<struct<queue: string, topic: string, selector: string>>"
)
_QUEUE, _TOPIC = 1, 2
#: A pattern of settings, which stands for no name.
_SETTINGS = "TMP.>"


def routes(history: History) -> DataFrame:
    """Each way that bridges make, from `destination` to `target`: also `place`, `cut`, `bridge`, `selector`, `steady`.

    A way is steady if the bridge is the same at both cuts, and there was one destination of its target's name. Where
    manifests have no revisions, as in a broker of no cluster, a bridge could have been another in between and be the
    same again: then nothing must have been handed to the engine in the interval either.
    `selector` is empty where everything crosses. A bridge that leads to a destination that is not there at either cut
    has no way to it: there is nothing to compare with.
    """
    led = _bridges(history)
    known = destinations(history)
    sources = known.select("place", "cut", F.col("kind").alias("from_kind"), F.col("name").alias("from_name"), "id")
    of_name = known.groupBy("place", "cut", "kind", "name").agg(F.collect_set("id").alias("all"))
    of_name = of_name.select("*", F.explode("all").alias("id"), F.size("all").alias("ids"))
    targets = of_name.select(
        "place", "cut", F.col("kind").alias("to_kind"), F.col("name").alias("to_name"), "id", "ids"
    )
    matches = F.rlike("from_name", F.col("regex")) & ~F.col("from_name").startswith("$")
    ways = led.join(sources.withColumnRenamed("id", "destination"), ["place", "cut", "from_kind"]).filter(matches)
    ways = ways.join(targets.withColumnRenamed("id", "target"), ["place", "cut", "to_kind", "to_name"])
    steady = F.col("steady") & (F.col("ids") == 1)
    return ways.select("place", "cut", "destination", "target", "bridge", "selector", steady.alias("steady"))


def _bridges(history: History) -> DataFrame:
    """Each target of each bridge at either cut."""
    key = ["place", "cut", "bridge"]

    def of(rows: DataFrame, side: str) -> DataFrame:
        found = rows.filter(F.col("kind") == "Bridge")
        return found.select(
            "place", "cut", F.col("name").alias("bridge"), "spec", "revision", F.lit(side).alias("side")
        )

    after, before = of(history.after("configuration"), "after"), of(history.before("configuration"), "before")
    same = after.join(before.select(*key, "spec", "revision"), [*key, "spec", "revision"], "left_semi")
    handed = history.events("configured").select("place", "cut", F.lit(True).alias("handed")).distinct()
    same = same.join(handed, ["place", "cut"], "left").filter("revision > 0 OR handed IS NULL").select(*key)
    both = after.unionAll(before).join(same.withColumn("steady", F.lit(True)), key, "left")
    steady = F.coalesce("steady", F.lit(False))
    # What is the same at both cuts stands once.
    once = both.withColumn("steady", steady).filter(~F.col("steady") | (F.col("side") == "after"))
    parsed = once.withColumn("read", F.from_json("spec", _SPEC))
    ways = parsed.select(*key, "steady", "read.source", F.explode("read.targets").alias("to"))
    pattern = F.coalesce("source.queue", "source.topic")
    return ways.filter(pattern != _SETTINGS).select(
        *key,
        "steady",
        F.when(F.col("source.queue").isNotNull(), _QUEUE).otherwise(_TOPIC).alias("from_kind"),
        regex(pattern).alias("regex"),
        F.when(F.col("to.queue").isNotNull(), _QUEUE).otherwise(_TOPIC).alias("to_kind"),
        F.coalesce("to.queue", "to.topic").alias("to_name"),
        F.trim(F.coalesce("to.selector", F.lit(""))).alias("selector"),
    )
