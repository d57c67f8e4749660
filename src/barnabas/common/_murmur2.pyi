from barnabas.common._murmur2_pure import murmur2, partition_for_key

__all__ = ["murmur2", "partition_for_key"]
