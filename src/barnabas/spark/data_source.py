"""The data source ``barnabas``: topics as tables, for reading and for writing, in batches and as streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from barnabas.common.config_def import ConfigError

if TYPE_CHECKING:
    from barnabas.spark.source_options import SourceOptions


class BarnabasDataSource(DataSource):
    """The data source of ``format("barnabas")``.

    Spark makes an instance wherever it needs one: in a Python process beside the driver, to plan a query, and in others
    to run its tasks. It holds only the options.

    A stream starts new Python processes each time. None of them needs the whole package, so each method imports only
    the modules it uses: a reader needs no producer, and query planning needs no record decoder.
    """

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    # -- reading

    def schema(self) -> StructType:
        """Returns the schema. Spark calls it for ``load()``, so invalid options are reported here."""
        from barnabas.spark.source_options import SourceOptions
        from barnabas.spark.source_schema import spark_schema

        return spark_schema(SourceOptions.of(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.pushed_filters import FilteringBatchReader
        from barnabas.spark.source_batch import BatchReader

        options = self._source_options(schema)
        return FilteringBatchReader(options) if options.push_down_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from barnabas.spark.source_stream import StreamReader

        return StreamReader(self._source_options(schema))

    def _source_options(self, schema: StructType) -> SourceOptions:
        from barnabas.spark.source_options import SourceOptions
        from barnabas.spark.source_schema import check_schema

        options = SourceOptions.of(self.options)
        check_schema(schema, options.columns)
        return options

    # -- writing

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.sink_batch import BatchWriter
        from barnabas.spark.sink_columns import SinkColumns
        from barnabas.spark.sink_options import SinkOptions

        if overwrite:
            raise ConfigError("A topic cannot be overwritten, only appended to: the save mode must be append.")
        options = SinkOptions.of(self.options, is_stream=False)
        return BatchWriter(options, SinkColumns.of(schema, options.topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002 - Spark's name
        """Returns the writer of a stream. In complete mode, which Spark passes as `overwrite`, each batch appends the
        whole result, as with the stock connector."""
        from barnabas.spark.sink_columns import SinkColumns
        from barnabas.spark.sink_options import SinkOptions
        from barnabas.spark.sink_stream import StreamWriter

        options = SinkOptions.of(self.options, is_stream=True)
        return StreamWriter(options, SinkColumns.of(schema, options.topic))
