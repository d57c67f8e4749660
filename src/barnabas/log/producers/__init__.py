"""Producer state: what makes a log idempotent and transactional.

    producer_state_manager    the state of all producers, with snapshots on disk
    producer_states           the same in memory; producer_state_entry: one producer
    producer_append_info      checks the sequence numbers and epochs of batches
    producer_snapshot         the snapshot file; producer_state_rebuild: recovery from it
    verification_state        rejects records of transactions that the coordinator does not know

Start with `producer_append_info`.
"""
