"""Compaction: keeps the last value of each key.

    log_cleaner            the threads; log_cleaner_manager: which log is next, and which are paused
    cleaner                compacts one log; cleaner_batch_filter: which records it retains
    cleaner_offset_map     the last offset of each key
    cleaned_transaction_metadata    which transaction markers are still needed

Start with `cleaner`.
"""
