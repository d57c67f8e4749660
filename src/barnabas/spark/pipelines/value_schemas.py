"""The schemas that values have, and the decoding of values on Spark's workers.

A value names its schema: by an id in front of it (a schema registry), by the schema itself beside it (Kafka Connect's
JSON), or not at all, if all values have one schema. In each batch the driver first finds the names, then the schemas,
and from those the type of the column; the workers get what they need to decode, and look up nothing themselves. So
they need neither access to a registry nor its credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.spark.pipelines.schema_drift import DriftError, merged_type, plain_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Decode = Callable[[bytes], Any]
Token = int | str
"""Names a schema."""
MOST_SCHEMAS: Final = 1_000
"""Of one batch. Bytes that only look like the id of a schema must not become a million requests to a registry."""
_SCHEMA: Final = "_schema"
_ONE: Final = 0


class ValueFormatError(Exception):
    """A schema cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """One schema: the type that its values become, and how they are decoded.

    `make_decode` makes the function that decodes one value. It is called on the workers, once for each task, because
    what it makes cannot travel.
    """

    kind: pa.DataType
    make_decode: Callable[[], Decode]


class ValueSchemas(Protocol):
    """Where the schemas of values come from."""

    @property
    def name(self) -> str:
        """The format, as in "not Avro of this schema"."""

    @property
    def many(self) -> bool:
        """Whether values name their schemas, so that a batch is read once more to find the names."""

    def token(self, value: Column) -> Column:
        """The name of a value's schema; null if the value has none."""

    def find(self, token: Token) -> ValueSchema:
        """Finds a schema; `ValueFormatError` if values of it cannot be used."""


class OneSchema:
    """All values have the same schema. It is made when it is needed: some need a Spark session for that."""

    many = False

    def __init__(self, make: Callable[[], ValueSchema], name: str) -> None:
        self._make = make
        self.name = name

    def token(self, value: Column) -> Column:  # noqa: ARG002 - all the same
        from pyspark.sql import functions as sf  # an extra

        return sf.lit(_ONE)

    def find(self, token: Token) -> ValueSchema:  # noqa: ARG002 - all the same
        return self._make()


def tokens_of(schemas: ValueSchemas, frame: DataFrame, column: str) -> list[Token]:
    """The names of the schemas in a column: the most frequent ones, if there are too many, in order."""
    from pyspark.sql import functions as sf  # an extra

    if not schemas.many:
        return [_ONE]
    found = frame.where(sf.col(column).isNotNull()).groupBy(schemas.token(sf.col(column)).alias(_SCHEMA)).count()
    rows = found.where(sf.col(_SCHEMA).isNotNull()).orderBy(sf.desc("count"), _SCHEMA).limit(MOST_SCHEMAS).collect()
    return sorted(row[_SCHEMA] for row in rows)


@dataclass(slots=True)
class FoundSchemas:
    """The schemas of a batch, and the reasons why some of them cannot be used."""

    usable: dict[Token, ValueSchema] = field(default_factory=dict)
    problems: dict[Token, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schemas: ValueSchemas, tokens: Iterable[Token]) -> FoundSchemas:
        found = cls()
        for token in tokens:
            try:
                found.usable[token] = schemas.find(token)
            except ValueFormatError as error:
                found.problems[token] = str(error)
        return found

    @classmethod
    def in_column(cls, schemas: ValueSchemas, frame: DataFrame, column: str) -> FoundSchemas:
        """The schemas of the values in a column. Runs a job if values name their schemas."""
        return cls.of(schemas, tokens_of(schemas, frame, column))

    def merged_type(
        self, table: pa.DataType | None, row_of: Callable[[pa.DataType], pa.DataType] = plain_type
    ) -> pa.DataType | None:
        """The type that a table needs for its rows and for those of these schemas; None if nothing says what it is.

        ``row_of`` takes the type of the row out of that of the value. Schemas that do not fit become problems.
        """
        merged = table
        for token, schema in list(self.usable.items()):
            try:
                row = row_of(schema.kind)
                merged = row if merged is None else merged_type(merged, row)
            except (DriftError, ValueFormatError) as error:
                del self.usable[token]
                self.problems[token] = str(error)
        return merged


def fitting_schemas(
    schemas: ValueSchemas,
    frame: DataFrame,
    column: str,
    table: pa.DataType | None,
    row_of: Callable[[pa.DataType], pa.DataType],
) -> tuple[FoundSchemas, pa.DataType | None]:
    """The schemas of a column, and the type that the table needs: see `FoundSchemas.merged_type`.

    A schema that the user has given and that does not fit is an error, not the fault of all records.
    """
    found = FoundSchemas.in_column(schemas, frame, column)
    merged = found.merged_type(table, row_of)
    if not schemas.many and found.problems:
        raise ValueFormatError("; ".join(found.problems.values()))
    return found, merged


@dataclass(frozen=True, slots=True)
class Decoding:
    """Decodes a binary column to a type: adds the result and, for values that are not like that, the reason."""

    schemas: ValueSchemas
    found: FoundSchemas
    kind: pa.DataType

    def add_to(self, frame: DataFrame, column: str, result: str, problem: str) -> DataFrame:
        from pyspark.sql import functions as sf  # an extra
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StringType, StructField, StructType

        kept = [one for one in frame.schema.fields if one.name not in {result, problem}]
        added = [StructField(result, from_arrow_type(self.kind)), StructField(problem, StringType())]
        worker = _Worker(
            column,
            tuple(one.name for one in kept),
            (result, problem),
            self.kind,
            {token: one.make_decode for token, one in self.found.usable.items()},
            dict(self.found.problems),
            self.schemas.name,
            self.schemas.many,
        )
        with_token = frame.withColumn(_SCHEMA, self.schemas.token(sf.col(column)))
        return with_token.mapInArrow(worker, StructType([*kept, *added]))


@dataclass(frozen=True, slots=True)
class _Worker:
    """What runs on the workers."""

    column: str
    kept: Sequence[str]
    added: Sequence[str]
    kind: pa.DataType
    makers: Mapping[Token, Callable[[], Decode]]
    problems: Mapping[Token, str]
    name: str
    many: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        decoders: dict[Token, Decode] = {}
        for batch in batches:
            raw = batch.column(self.column).to_pylist()
            found = [
                (None, None) if value is None else self._decoded(value, token, decoders)
                for value, token in zip(raw, batch.column(_SCHEMA).to_pylist(), strict=True)
            ]
            values, problems = self._array(found)
            arrays = [batch.column(name) for name in self.kept]
            yield pa.RecordBatch.from_arrays(
                [*arrays, values, pa.array(problems, pa.string())], [*self.kept, *self.added]
            )

    def _decoded(self, value: bytes, token: Token | None, decoders: dict[Token, Decode]) -> tuple[Any, str | None]:
        if token is None:
            return None, f"not {self.name} with the name of its schema"
        if token in self.problems:
            return None, self.problems[token]
        if token not in decoders:
            if token not in self.makers:
                return None, f"not among the {MOST_SCHEMAS} most frequent schemas of its batch"
            decoders[token] = self.makers[token]()
        try:
            return decoders[token](value), None
        except Exception as error:  # noqa: BLE001 - whatever a decoder makes of bytes that are something else
            return None, self._problem(error)

    def _problem(self, error: Exception) -> str:
        return f"not {self.name} of {'its' if self.many else 'this'} schema: {type(error).__name__}: {error}"

    def _array(self, found: list[tuple[Any, str | None]]) -> tuple[pa.Array, list[str | None]]:
        """All values as an array. If one of them does not fit, each is tried by itself."""
        import pyarrow as pa

        try:
            return pa.array([value for value, _ in found], self.kind), [problem for _, problem in found]
        except Exception:  # noqa: BLE001 - Arrow's, and Python's from values of other types
            return self._array([self._checked(*one) for one in found])

    def _checked(self, value: Any, problem: str | None) -> tuple[Any, str | None]:
        import pyarrow as pa

        try:
            pa.scalar(value, self.kind)
        except Exception as error:  # noqa: BLE001 - as above
            return None, self._problem(error)
        return value, problem
