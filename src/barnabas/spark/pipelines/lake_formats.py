"""Formats of a table in a lake, each with its own way to say that a batch belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.extras import extra
from barnabas.spark.pipelines.lake_files import DataFile, LakeFiles, as_local_path, json_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY: Final = "barnabas.query-id"
BATCH: Final = "barnabas.batch-id"


class LakeTable(Protocol):
    """Adds the files of a batch, in one step and once."""

    def last_batch(self, query_id: str) -> int:
        """The last batch of a query that is in the table; -1 if there is none."""

    def commit(self, files: Sequence[DataFile], query_id: str, batch_id: int) -> None: ...


class ParquetTable:
    """A directory of Parquet files, partitioned as Hive does it. It has no commits: the mark beside it is all."""

    def __init__(self, files: LakeFiles) -> None:
        self._files = files

    def last_batch(self, query_id: str) -> int:
        query, batch = self._files.mark()
        return batch if query == query_id else -1

    def commit(self, files: Sequence[DataFile], query_id: str, batch_id: int) -> None:
        """Nothing to do: the files are in their place."""


class DeltaLakeTable:
    """Delta Lake, by delta-rs. A commit carries the query and the batch as an application's transaction, which is what
    Delta's own streaming sink does; so it is found again however a process ends."""

    def __init__(self, location: str, schema: StructType, partition_by: tuple[str, ...]) -> None:
        self._location = as_local_path(location)
        self._schema = schema
        self._partition_by = list(partition_by)

    def last_batch(self, query_id: str) -> int:
        with extra("lake", "a Delta Lake table"):
            from deltalake import DeltaTable  # noqa: PLC0415

        if not DeltaTable.is_deltatable(self._location):
            return -1
        found = DeltaTable(self._location).transaction_version(query_id)
        return -1 if found is None else found

    def commit(self, files: Sequence[DataFile], query_id: str, batch_id: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction  # noqa: PLC0415
        from deltalake.transaction import AddAction, create_table_with_add_actions  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        now_ms = SYSTEM_CLOCK.milliseconds()
        actions = [AddAction(one.path, one.size, one.partition, now_ms, True, json_text({})) for one in files]
        properties = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        schema = Schema.from_arrow(to_arrow_schema(self._schema, timezone="UTC"))
        if DeltaTable.is_deltatable(self._location):
            table = DeltaTable(self._location)
            table.create_write_transaction(
                list(actions), "append", table.schema(), self._partition_by, commit_properties=properties
            )
            return
        create_table_with_add_actions(
            self._location, schema, actions, "error", self._partition_by, commit_properties=properties
        )


class IcebergTable:
    """Apache Iceberg, by pyiceberg. Files are added to the table in one snapshot, whose summary has query and batch.

    The catalog is whatever pyiceberg is configured for under the name; without one it is an SQLite file beside the
    table.
    """

    def __init__(self, location: str, schema: StructType, name: str, catalog: str | None) -> None:
        self._location = location
        self._schema = schema
        self._name = name
        self._catalog_name = catalog
        self._table: Any = None

    def _catalog(self) -> Any:
        with extra("lake", "an Iceberg table"):
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415
            from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415

        if self._catalog_name is not None:
            return load_catalog(self._catalog_name)
        place = as_local_path(self._location)
        if not place.startswith("/"):
            raise ValueError(f"an Iceberg table at {place} needs a catalog that pyiceberg knows")
        Path(place).mkdir(parents=True, exist_ok=True)
        return SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")

    def _load(self) -> Any:
        if self._table is None:
            with extra("lake", "an Iceberg table"):
                from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

            try:
                self._table = self._catalog().load_table(self._name)
            except NoSuchTableError:
                return None
        else:
            self._table.refresh()
        return self._table

    def last_batch(self, query_id: str) -> int:
        table = self._load()
        if table is None:
            return -1
        found = -1
        for snapshot in table.metadata.snapshots:
            summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if summary.get(QUERY) == query_id:
                found = max(found, int(summary[BATCH]))
        return found

    def commit(self, files: Sequence[DataFile], query_id: str, batch_id: int) -> None:
        table = self._load() or self._create()
        paths = [f"{self._location}/{one.path}" for one in files]
        table.add_files(paths, {QUERY: query_id, BATCH: str(batch_id)}, check_duplicate_files=False)

    def _create(self) -> Any:
        from pyiceberg.transforms import DayTransform  # noqa: PLC0415
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        schema = to_arrow_schema(self._schema, timezone="UTC")
        self._table = catalog.create_table(self._name, schema, location=self._location)
        # The files are in directories by day; for Iceberg a day is what their timestamps say.
        with self._table.update_spec() as spec:
            spec.add_field("timestamp", DayTransform(), "date")
        return self._table
