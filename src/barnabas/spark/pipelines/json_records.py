"""Parses JSON records with a schema, and marks the records that do not match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM, RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT: Final = "_corrupt"
NOT_JSON: Final = "not JSON, or not of the expected types"


def json_struct(schema: str) -> Column:
    """Returns the value as a struct; the field `CORRUPT` holds the text if it could not be parsed."""
    from pyspark.sql import functions as sf

    text = sf.col("value").cast("string")
    return sf.from_json(text, f"{schema}, {CORRUPT} string", {"columnNameOfCorruptRecord": CORRUPT})


def is_unreadable(record: Column) -> Column:
    """Returns whether `json_struct` could not parse the text of this struct."""
    return record.isNull() | record[CORRUPT].isNotNull()


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """The expected form of a topic's records.

    Fields outside the schema are ignored, because later releases may add fields.
    """

    topic: str
    schema: str
    version: int
    required: Sequence[str]
    """Fields that every record must have."""
    check: Callable[[Column], Column] | None = None
    """A further check: returns the problem of a record, or null."""

    @property
    def parsed(self) -> Column:
        """The value as a struct."""
        return json_struct(self.schema)

    def problem(self, record: Column) -> Column:
        """Returns the problem of a struct; null if it can be used."""
        from pyspark.sql import functions as sf

        found = record["schema_version"]
        problem = (
            sf.when(sf.col("value").isNull(), sf.lit("no value"))
            .when(is_unreadable(record), sf.lit(NOT_JSON))
            .when(found.isNull(), sf.lit("schema_version is missing"))
            .when(found != self.version, sf.format_string(f"schema_version is %d, expected {self.version}", found))
        )
        for name in self.required:
            problem = problem.when(record[name].isNull(), sf.lit(f"{name} is missing"))
        return problem if self.check is None else problem.otherwise(self.check(record))


def parse_json(raw: DataFrame, readers: Mapping[str, JsonRecords]) -> DataFrame:
    """Adds a column for each reader: a struct for the records of its topic, null for those of others.

    Records of a topic without a reader get a problem. They occur if the source's options subscribe to further topics.

    It takes a single pass over the records, because each further pass would read them from the broker again.
    """
    from pyspark.sql import functions as sf

    unread = sf.col(PROBLEM).isNull()
    structs = raw.withColumns(
        {name: sf.when(unread & (sf.col("topic") == one.topic), one.parsed) for name, one in readers.items()}
    )
    found = [sf.when(sf.col("topic") == one.topic, one.problem(sf.col(name))) for name, one in readers.items()]
    known = [one.topic for one in readers.values()]
    others = sf.format_string(f"of topic %s, expected {', '.join(known)}", sf.col("topic"))
    found.append(sf.when(~sf.col("topic").isin(known), others))
    judged = structs.withColumn(PROBLEM, sf.coalesce(PROBLEM, *found))
    # Only dead letters keep the bytes.
    kept = [sf.when(sf.col(PROBLEM).isNotNull(), sf.col(name)).alias(name) for name in RAW]
    return judged.select(*ORIGIN, PROBLEM, *kept, *readers)
