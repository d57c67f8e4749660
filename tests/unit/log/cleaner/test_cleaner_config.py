"""The cleaner's settings."""

from __future__ import annotations

import pytest

from barnabas.common.config_def import ConfigError
from barnabas.log.cleaner.cleaner_config import RECONFIGURABLE_CONFIGS, CleanerConfig
from barnabas.log.config.server_log_config import SERVER_LOG_CONFIG_DEF


def test_defaults_are_those_of_the_broker_s_settings() -> None:
    assert CleanerConfig.from_values(SERVER_LOG_CONFIG_DEF.parse({})) == CleanerConfig()
    assert set(SERVER_LOG_CONFIG_DEF.keys) >= RECONFIGURABLE_CONFIGS


def test_each_setting_gets_to_its_place() -> None:
    config = CleanerConfig.from_values(
        SERVER_LOG_CONFIG_DEF.parse(
            {
                "log.cleaner.enable": "false",
                "log.cleaner.threads": "4",
                "log.cleaner.dedupe.buffer.size": "16000000",
                "log.cleaner.io.buffer.size": "80000",
                "log.cleaner.io.buffer.load.factor": "0.5",
                "log.cleaner.io.max.bytes.per.second": "1e6",
                "log.cleaner.backoff.ms": "7",
            }
        )
    )
    assert config == CleanerConfig(
        enable_cleaner=False,
        num_threads=4,
        dedupe_buffer_size=16_000_000,
        dedupe_buffer_load_factor=0.5,
        io_buffer_size=80_000,
        max_io_bytes_per_second=1e6,
        backoff_ms=7,
    )
    assert (config.dedupe_buffer_size_per_thread, config.io_buffer_size_per_thread) == (4_000_000, 10_000)


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads"),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "log.cleaner.dedupe.buffer.size"),
        (
            {"log.cleaner.dedupe.buffer.size": "4000000", "log.cleaner.threads": "4"},
            "log.cleaner.dedupe.buffer.size",
        ),
    ],
)
def test_too_little_memory_for_a_thread_is_refused(properties: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        CleanerConfig.from_values(SERVER_LOG_CONFIG_DEF.parse(properties))
