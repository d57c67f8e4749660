from barnabas.records._compressed_batch_pure import size_if_plain

__all__ = ["size_if_plain"]
