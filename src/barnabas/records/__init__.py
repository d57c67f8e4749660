"""Record batches: Kafka's format for records on the wire and on disk.

    batch         the header: a view over bytes, and the fields that a broker patches in place
    builder       builds a batch from records
    reader        reads the records of a batch
    validation    checks whether a batch may enter a log
    control       transaction markers and the metadata quorum's control records
    compression   gzip, snappy, lz4 and zstd as Kafka's clients frame them, with bounded output
    columns       batches from Arrow arrays and back, with no object per record

The package exports nothing: import its modules by name, so that unused ones cost nothing. Below them,
`barnabas._kernels.record_codec` reads and writes single records.
"""
