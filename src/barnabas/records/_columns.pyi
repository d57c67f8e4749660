from barnabas.records._columns_pure import (
    BinaryColumn,
    BinarySink,
    ColumnSink,
    Encoder,
    HeaderColumn,
    Section,
    combined_crc32c,
    plain_extent,
    plain_sections,
    records_checksum,
    seal,
    totals,
)

__all__ = [
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "combined_crc32c",
    "plain_extent",
    "plain_sections",
    "records_checksum",
    "seal",
    "totals",
]
