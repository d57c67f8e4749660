"""The settings of a log.

    log_config           the parsed settings of one log, and their validation
    log_config_def       names, types, defaults and bounds of a topic's settings
    server_log_config    the broker's settings, and the defaults of topics that follow from them

Start with `log_config`.
"""
