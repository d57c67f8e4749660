from barnabas.clients.consumer.internals._batch_walk_pure import leader_epoch_before, offset_after

__all__ = ["leader_epoch_before", "offset_after"]
