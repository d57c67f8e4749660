from barnabas.records._pure import (
    Record,
    RecordAppender,
    encode_headers,
    iterate_records,
    size_of_payload,
    walk_records,
)

__all__ = ["Record", "RecordAppender", "encode_headers", "iterate_records", "size_of_payload", "walk_records"]
