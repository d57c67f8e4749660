"""Log directories: their identity, locks, checkpoints and failures.

    log_dirs             the directories of a broker and their state
    log_dir_failure      takes a failed disk offline; log_dir_pace: moves the work of a slow one aside
    meta_properties      the identity of a directory; log_dir_lock: one broker per directory
    checkpoint_file      small text files of offsets; durable_file: writes them atomically

Start with `log_dirs`.
"""
