"""The two table formats, Delta Lake and Apache Iceberg, behind one interface.

Both change a table in one commit, and both note in that commit which batch of which query it holds. So a batch that
runs again, after a crash between the table's commit and Spark's own, finds itself in the table and is skipped.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.extras import extra
from barnabas.spark.pipelines.config import DELTA, ICEBERG, TableOptions
from barnabas.spark.pipelines.data_files import BATCH_FILE, MERGED, DataFile, FileLayout
from barnabas.spark.pipelines.table_storage import TableStorage, local_path

if TYPE_CHECKING:
    import pyarrow as pa

QUERY: Final = "barnabas.query-id"
BATCH: Final = "barnabas.batch-id"
DATA: Final = "data"
"""Directory of an Iceberg table's data files."""
SMALL_BYTES: Final = 16 << 20
"""Files below this size are worth merging."""
_ATTEMPTS: Final = 5
_OWN_RETRIES: Final = {"commit.retry.num-retries": "0"}
"""pyiceberg would repeat an append that another commit came before, without a look at the batch in it."""


class TableChangedError(Exception):
    """Somebody else has changed the files of a table that were about to be replaced. The batch can run again."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of the current version of a table."""

    path: str
    """Relative to the table's location; absolute for files of an Iceberg table."""
    size: int
    first_us: int | None
    last_us: int | None
    """Bounds of the time column, microseconds since 1970; None if the format does not know them."""
    rows: int = 0
    """How many rows it has; 0 if the format does not know."""
    handle: Any = None
    """The format's own description of the file."""

    @property
    def is_merged(self) -> bool:
        return self.path.rpartition("/")[2].startswith(f"{MERGED}-")

    @property
    def batch(self) -> int | None:
        """The batch that the file was written by; None if that was something else."""
        kind, _, rest = self.path.rpartition("/")[2].partition("-")
        return int(rest.partition("-")[0]) if kind == BATCH_FILE else None


class OpenTable(Protocol):
    """A table of either format."""

    def exists(self) -> bool: ...

    def create(self, layout: FileLayout, day_of: str | None) -> None:
        """Creates an empty table. ``day_of`` names the time column whose day is the table's partition, if any."""

    def storage(self) -> TableStorage:
        """Where new data files are written."""

    def last_batch(self, query_id: str) -> int:
        """The last batch of a query that the table holds; -1 if there is none."""

    def schema(self) -> pa.Schema:
        """The columns of the current version."""

    def add_columns(self, layout: FileLayout) -> None:
        """Adds the columns, and the fields of structs, that the table does not have yet. They are null in its rows."""

    def replace(
        self,
        removed: Sequence[TableFile],
        added: Sequence[DataFile],
        *,
        same_rows: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """Puts files in the place of others, if there are any, in one commit.

        Fails if one of the others is no longer in the table.

        ``same_rows``: the content is the same, in other files. ``batch``: the query and the batch that the commit
        holds; nothing happens if the table holds it already.
        """

    def files(self, time_column: str | None = None) -> list[TableFile]:
        """The data files of the current version."""

    def uri(self, file: TableFile) -> str:
        """Absolute location of a data file."""

    def compact(self) -> bool:
        """Merges small files by the format's own means; false if the format has none."""

    def expire(self, keep_hours: int) -> None:
        """Removes old versions, and files that no version uses, once they are older than this."""


class DeltaTableFormat:
    """A Delta Lake table, through delta-rs.

    A batch is an *application transaction* of the commit, with the query's id as application and the batch as version,
    as Delta's own streaming sink writes it. delta-rs refuses a commit if another process has committed the same
    application's transaction since the table was loaded.
    """

    def __init__(self, location: str, options: TableOptions) -> None:
        self._location = location
        self._properties = dict(options.properties)

    def _load(self) -> Any:
        with extra("spark", "a Delta Lake table"):
            from deltalake import DeltaTable  # an extra

        return DeltaTable(self._location, storage_options=self._properties or None)

    def exists(self) -> bool:
        with extra("spark", "a Delta Lake table"):
            from deltalake import DeltaTable  # an extra

        return bool(DeltaTable.is_deltatable(self._location, self._properties or None))

    def create(self, layout: FileLayout, day_of: str | None) -> None:  # noqa: ARG002 - the day is a column here
        from deltalake import DeltaTable, Schema  # an extra

        path = local_path(self._location)
        if path is not None:
            path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self._location,
            schema=Schema.from_arrow(layout.table_schema()),
            mode="ignore",
            partition_by=list(layout.partition_by) or None,
            storage_options=self._properties or None,
        )

    def storage(self) -> TableStorage:
        return TableStorage(self._location, DELTA, self._properties)

    def last_batch(self, query_id: str) -> int:
        return _version(self._load().transaction_version(query_id))

    def schema(self) -> pa.Schema:
        import pyarrow as pa  # an extra

        return pa.schema(self._load().schema())

    def add_columns(self, layout: FileLayout) -> None:
        from deltalake import write_deltalake  # an extra

        # delta-rs adds fields of structs only while it writes.
        write_deltalake(self._load(), layout.table_schema().empty_table(), mode="append", schema_mode="merge")

    def replace(
        self,
        removed: Sequence[TableFile],
        added: Sequence[DataFile],
        *,
        same_rows: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        from deltalake import CommitProperties, Transaction  # an extra
        from deltalake.transaction import RemoveAction  # an extra

        table = self._load()
        properties = None
        if batch is not None:
            if _version(table.transaction_version(batch[0])) >= batch[1]:
                return
            properties = CommitProperties(app_transactions=[Transaction(*batch)])
        if missing := {one.path for one in removed} - {one.path for one in self._files(table)}:
            # delta-rs itself would commit, and the rows of such a file would be in the table twice.
            raise TableChangedError(f"{self._location} was changed meanwhile: {min(missing)} is no longer in it")
        now_ms = SYSTEM_CLOCK.milliseconds()
        actions: list[Any] = [_add_action(one, data_change=not same_rows) for one in added]
        actions += [RemoveAction(one.path, not same_rows, now_ms, one.size, {}) for one in removed]
        partition_by = list(table.metadata().partition_columns)
        table.create_write_transaction(actions, "append", table.schema(), partition_by, commit_properties=properties)

    def files(self, time_column: str | None = None) -> list[TableFile]:
        return self._files(self._load(), time_column)

    @staticmethod
    def _files(table: Any, time_column: str | None = None) -> list[TableFile]:
        import pyarrow as pa  # an extra

        actions = pa.table(table.get_add_actions(flatten=True))
        found = []
        for row in actions.to_pylist():
            first, last = row.get(f"min.{time_column}"), row.get(f"max.{time_column}")
            rows = row.get("num_records") or 0
            found.append(TableFile(row["path"], row["size_bytes"], _micros(first), _micros(last), rows))
        return found

    def uri(self, file: TableFile) -> str:
        return f"{self._location}/{file.path}"

    def compact(self) -> bool:
        self._load().optimize.compact()
        return True

    def expire(self, keep_hours: int) -> None:
        table = self._load()
        table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.cleanup_metadata()


def _add_action(file: DataFile, *, data_change: bool) -> Any:
    from deltalake.transaction import AddAction  # an extra

    now_ms = SYSTEM_CLOCK.milliseconds()
    return AddAction(file.path, file.size, file.partition, now_ms, data_change, file.stats)


def _version(found: int | None) -> int:
    return -1 if found is None else found


def _micros(moment: dt.datetime | None) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


class IcebergTableFormat:
    """An Apache Iceberg table, through pyiceberg and a catalog.

    A batch is noted in the summary of its snapshot, for people, and in properties of the table, for us: snapshots
    expire, and other engines add snapshots of their own; properties stay. Both change in the commit of the files.
    """

    def __init__(self, location: str, name: tuple[str, str], catalog_place: str, options: TableOptions) -> None:
        self._location = location
        self._name = name
        self._catalog_place = catalog_place
        self._options = options

    def _catalog(self) -> Any:
        """Opens the catalog. It holds connections to its database, and is closed by leaving its context."""
        with extra("lake", "an Iceberg table"):
            from pyiceberg.catalog import load_catalog  # an extra
            from pyiceberg.catalog.sql import SqlCatalog  # an extra

        properties = dict(self._options.properties)
        if self._options.catalog is not None or "uri" in properties or "type" in properties:
            return load_catalog(self._options.catalog or "barnabas", **properties)
        place = local_path(self._catalog_place)
        if place is None:
            raise ValueError(
                f"an Iceberg table at {self._location} needs a catalog: name one, or give its type and uri"
            )
        place.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("barnabas", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}", **properties)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The current version of the table, for as long as its catalog is open."""
        with self._catalog() as catalog:
            yield self._load(catalog)

    def _load(self, catalog: Any) -> Any:
        return catalog.load_table(self._name)

    def exists(self) -> bool:
        with self._catalog() as catalog:
            return bool(catalog.table_exists(self._name))

    def create(self, layout: FileLayout, day_of: str | None) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError  # an extra
        from pyiceberg.transforms import DayTransform  # an extra

        properties = {
            "commit.manifest-merge.enabled": "true",
            "write.metadata.delete-after-commit.enabled": "true",
            **_OWN_RETRIES,
        }
        with self._catalog() as catalog:
            catalog.create_namespace_if_not_exists(self._name[0])
            try:
                with catalog.create_table_transaction(
                    self._name, layout.file_schema(), location=_uri(self._location), properties=properties
                ) as transaction:
                    # Files carry names of columns and no ids.
                    names = transaction.table_metadata.schema().name_mapping.model_dump_json()
                    transaction.set_properties(**{"schema.name-mapping.default": names})
                    if day_of is not None:
                        with transaction.update_spec() as spec:
                            spec.add_field(day_of, DayTransform(), "date")
            except (CommitFailedException, TableAlreadyExistsError):  # another process was faster
                if not catalog.table_exists(self._name):
                    raise

    def storage(self) -> TableStorage:
        # A REST catalog may hand out credentials with the table.
        with self._opened() as table:
            return TableStorage(f"{self._location}/{DATA}", ICEBERG, dict(table.io.properties))

    def last_batch(self, query_id: str) -> int:
        with self._opened() as table:
            return self._last_batch(table, query_id)

    @staticmethod
    def _last_batch(table: Any, query_id: str) -> int:
        if table.properties.get(QUERY) == query_id:
            return int(table.properties[BATCH])
        # Tables of release 0.1 have it in the snapshots only.
        summaries = [one.summary.additional_properties for one in table.metadata.snapshots if one.summary is not None]
        return max((int(one[BATCH]) for one in summaries if one.get(QUERY) == query_id), default=-1)

    def schema(self) -> pa.Schema:
        with self._opened() as table:
            return table.schema().as_arrow()

    def add_columns(self, layout: FileLayout) -> None:
        def add(table: Any) -> None:
            with table.update_schema() as update:
                update.union_by_name(layout.file_schema())

        self._commit(add)

    def replace(
        self,
        removed: Sequence[TableFile],
        added: Sequence[DataFile],
        *,
        same_rows: bool,  # noqa: ARG002 - Iceberg has no such mark
        batch: tuple[str, int] | None = None,
    ) -> None:
        from pyiceberg.exceptions import ValidationException  # an extra
        from pyiceberg.io.pyarrow import parquet_file_to_data_file  # an extra

        noted = {} if batch is None else {QUERY: batch[0], BATCH: str(batch[1])}

        def change(table: Any) -> None:
            if batch is not None and self._last_batch(table, batch[0]) >= batch[1]:
                return
            with table.transaction() as transaction:
                if noted:
                    transaction.set_properties(**noted, **_OWN_RETRIES)
                if not removed:
                    # An append reads no manifests of the table, and it merges small ones.
                    transaction.add_files([*map(self._data_uri, added)], noted, check_duplicate_files=False)
                    return
                with transaction.update_snapshot(snapshot_properties=noted).overwrite() as snapshot:
                    for old in removed:
                        snapshot.delete_data_file(old.handle)
                    for new in added:
                        snapshot.append_data_file(
                            parquet_file_to_data_file(table.io, table.metadata, self._data_uri(new))
                        )

        try:
            self._commit(change)
        except ValidationException as error:
            raise TableChangedError(f"{self._location} was changed meanwhile: {error}") from None

    def _commit(self, change: Callable[[Any], None]) -> None:
        """Changes the table. If another commit comes in between, looks at the table again and tries again."""
        from pyiceberg.exceptions import CommitFailedException  # an extra

        for attempt in range(_ATTEMPTS):
            try:
                with self._opened() as table:
                    change(table)
            except CommitFailedException:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.1 * 2**attempt)
            else:
                return

    def _data_uri(self, file: DataFile) -> str:
        return f"{_uri(self._location)}/{DATA}/{file.path}"

    def files(self, time_column: str | None = None) -> list[TableFile]:
        from pyiceberg.conversions import from_bytes  # an extra

        with self._opened() as table:
            schema = table.schema()
            files = [task.file for task in table.scan().plan_files()]
        field: Any = None if time_column is None else schema.find_field(time_column)

        def bound(values: dict[int, bytes] | None) -> Any:
            raw = None if field is None or values is None else values.get(field.field_id)
            return None if raw is None else from_bytes(field.field_type, raw)

        return [
            TableFile(
                one.file_path,
                one.file_size_in_bytes,
                bound(one.lower_bounds),
                bound(one.upper_bounds),
                one.record_count,
                one,
            )
            for one in files
        ]

    def uri(self, file: TableFile) -> str:
        return file.path

    def compact(self) -> bool:
        return False

    def expire(self, keep_hours: int) -> None:
        before = dt.datetime.now(dt.UTC) - dt.timedelta(hours=keep_hours)
        with self._opened() as table:
            old = [one for one in table.metadata.snapshots if one.timestamp_ms < before.timestamp() * 1_000]
            if any(one.snapshot_id != table.metadata.current_snapshot_id for one in old):
                table.maintenance.expire_snapshots().older_than(before).commit()
                table.refresh()
            self._remove_unused(table, before)

    def _remove_unused(self, table: Any, before: dt.datetime) -> None:
        """Deletes files that no snapshot uses: of expired snapshots, and of batches that never were committed."""
        from pyarrow import fs  # an extra

        used = {table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            used.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                used.add(manifest.manifest_path)
                used.update(one.data_file.file_path for one in manifest.fetch_manifest_entry(table.io))
        for statistics in table.metadata.statistics:
            used.add(statistics.statistics_path)
        names = {one.removeprefix(f"{_uri(self._location)}/") for one in used}
        files = TableStorage(self._location, ICEBERG, dict(table.io.properties)).file_system()
        for directory in (DATA, "metadata"):
            for info in files.get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True)):
                if info.type == fs.FileType.File and info.path not in names and info.mtime < before:
                    files.delete_file(info.path)


def _uri(location: str) -> str:
    return f"file://{location}" if local_path(location) is not None else location
