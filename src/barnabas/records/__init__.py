"""Record batches: Kafka's format for records on the wire and on disk.

    batch         the header: a view over bytes, and what a broker patches in place
    builder       records in, a batch out
    reader        a batch in, records out
    validation    whether a batch may enter a log
    control       transaction markers and the metadata quorum's control records
    compression   gzip, snappy, lz4 and zstd as Kafka's clients frame them, with bounded output
    columns       batches from Arrow arrays and back, with no object per record

Nothing is imported from here: the parts are imported by name, so that nobody pays for those they do not use. Below
them, `barnabas._kernels.record_codec` reads and writes single records.
"""
