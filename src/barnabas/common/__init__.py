"""Utilities for every layer, which depend on nothing above.

    errors, exceptions       Kafka's error codes, and an exception for each
    clock, scheduler         the only source of time; tasks that run later
    shutdownable_thread      threads that can be stopped and awaited
    config_def               definitions of settings, and the parsing of a configuration
    snapshot_registry        maps and values that can be reverted to an earlier offset
    events/                  event queues and deferred calls

Start with `errors` and `clock`: every layer uses both.
"""
