"""The fetch path: from a fetch request to the file regions in its response.

    record_fetches           reads, and delays the response if there are not enough records
    log_reads                reads the partitions of a fetch within its size limits
    delayed_fetch            the long poll
    fetch_session, fetch_context, fetch_session_manager, fetch_session_cache    incremental fetch sessions (KIP-227)

Start with `record_fetches`.
"""
