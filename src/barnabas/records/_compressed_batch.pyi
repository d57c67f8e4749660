from barnabas.records._compressed_batch_pure import decompressed_bound, size_if_plain

__all__ = ["decompressed_bound", "size_if_plain"]
