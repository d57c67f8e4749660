from barnabas.clients.producer.internals._table_hash_pure import partitions_for_keys

__all__ = ["partitions_for_keys"]
