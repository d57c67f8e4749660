"""Records whose value is JSON: read with a schema, and told apart from those that are something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM, RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT: Final = "_corrupt"
NOT_JSON: Final = "not JSON, or not of the types that are expected"


def json_struct(schema: str) -> Column:
    """Returns the value as a struct, with a further field that holds the text if it could not be read."""
    from pyspark.sql import functions as sf

    text = sf.col("value").cast("string")
    return sf.from_json(text, f"{schema}, {CORRUPT} string", {"columnNameOfCorruptRecord": CORRUPT})


def is_unreadable(record: Column) -> Column:
    """Tells whether the text of a struct that `json_struct` made could not be read."""
    return record.isNull() | record[CORRUPT].isNotNull()


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """What the records of a topic look like.

    Fields that the schema does not have are passed over, as the topics may get more of them.
    """

    topic: str
    schema: str
    version: int
    required: Sequence[str]
    """Fields without which a record is of no use."""
    check: Callable[[Column], Column] | None = None
    """Says what else is wrong with a record; null if nothing is."""

    @property
    def parsed(self) -> Column:
        """The value as a struct."""
        return json_struct(self.schema)

    def problem(self, record: Column) -> Column:
        """What is wrong with a struct; null if it can be used."""
        from pyspark.sql import functions as sf

        found = record["schema_version"]
        problem = (
            sf.when(sf.col("value").isNull(), sf.lit("no value"))
            .when(is_unreadable(record), sf.lit(NOT_JSON))
            .when(found.isNull(), sf.lit("schema_version is missing"))
            .when(
                found != self.version, sf.format_string(f"schema_version is %d, and this reads {self.version}", found)
            )
        )
        for name in self.required:
            problem = problem.when(record[name].isNull(), sf.lit(f"{name} is missing"))
        return problem if self.check is None else problem.otherwise(self.check(record))


def parse_json(raw: DataFrame, readers: Mapping[str, JsonRecords]) -> DataFrame:
    """Adds a column for each reader: a struct for the records of its topic, null for those of others.

    Records of a topic that has no reader are of no use; there are some if somebody has the source subscribe to another.

    All in one pass, because what is not kept in memory would be read from the broker once for each pass.
    """
    from pyspark.sql import functions as sf

    unread = sf.col(PROBLEM).isNull()
    structs = raw.withColumns(
        {name: sf.when(unread & (sf.col("topic") == one.topic), one.parsed) for name, one in readers.items()}
    )
    found = [sf.when(sf.col("topic") == one.topic, one.problem(sf.col(name))) for name, one in readers.items()]
    known = [one.topic for one in readers.values()]
    others = sf.format_string(f"of topic %s, and this reads {', '.join(known)}", sf.col("topic"))
    found.append(sf.when(~sf.col("topic").isin(known), others))
    judged = structs.withColumn(PROBLEM, sf.coalesce(PROBLEM, *found))
    # The bytes are only kept where somebody will look at them again.
    kept = [sf.when(sf.col(PROBLEM).isNotNull(), sf.col(name)).alias(name) for name in RAW]
    return judged.select(*ORIGIN, PROBLEM, *kept, *readers)
