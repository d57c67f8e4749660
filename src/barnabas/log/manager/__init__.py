"""The logs of a broker: opened, created, moved, deleted and closed.

    log_manager    the interface
    log_startup    opens all logs at startup; log_registry: keeps them by partition
    log_chores     retention, flushing and checkpoints, periodically
    log_deletion   deletes logs after a delay

Start with `log_manager`.
"""
