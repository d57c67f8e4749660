"""The append path: from the batches of a produce request to its response.

    record_appends            validates, appends and builds the response
    delayed_produce           acks=all: waits for followers
    record_deletions          DeleteRecords; delayed_delete_records: waits for followers

Start with `record_appends`.
"""
