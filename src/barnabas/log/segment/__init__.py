"""Segments: a log is a list of files, and only the last one grows.

    log_segment      one file of batches with its indexes; log_segments: all of a log, by base offset
    file_records     the ``.log`` file itself: appends, reads and searches of batches
    file_handle      descriptors and the system calls for storage
    segment_files    creates, deletes and replaces files so that a crash leaves a valid log
    segment_damage   finds damage in a file at recovery

Start with `log_segment`.
"""
