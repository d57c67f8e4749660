from barnabas.records._plain_batch_pure import is_plain_batch, place_batch

__all__ = ["is_plain_batch", "place_batch"]
