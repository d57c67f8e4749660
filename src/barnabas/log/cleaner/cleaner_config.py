"""The settings of the cleaner."""

from __future__ import annotations

from typing import Final, Self

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.dataclass import dataclass

RECONFIGURABLE_CONFIGS: Final = frozenset(
    {
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
    }
)
"""The settings that can change while the broker runs. (Kafka includes ``message.max.bytes``, the limit of its buffers;
Barnabas' buffers grow to the size of the batch.)"""

_SMALLEST_DEDUPE_BUFFER: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The broker's settings for compaction, with Kafka's defaults.

    Topic settings (how dirty a log may get, how long tombstones are kept) are in `LogConfig`.
    """

    enable_cleaner: bool = True
    """``log.cleaner.enable``"""
    num_threads: int = 1
    """``log.cleaner.threads``"""
    dedupe_buffer_size: int = 128 * 1024 * 1024
    """``log.cleaner.dedupe.buffer.size``: the total for all threads."""
    dedupe_buffer_load_factor: float = 0.9
    """``log.cleaner.io.buffer.load.factor``, which in spite of its name applies to the dedupe buffer."""
    io_buffer_size: int = 512 * 1024
    """``log.cleaner.io.buffer.size``: the total for all threads, for reading and writing."""
    max_io_bytes_per_second: float = 1.7976931348623157e308
    """``log.cleaner.io.max.bytes.per.second``: the total for all threads, for reading and writing."""
    backoff_ms: int = 15_000
    """``log.cleaner.backoff.ms``"""

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        """Creates it from a broker's parsed log settings; `ConfigError` if a thread would have too little memory."""
        threads = values.get_int("log.cleaner.threads")
        if threads < 1:
            raise ConfigError.invalid("log.cleaner.threads", threads, "it must be at least 1")
        dedupe_buffer_size = values.get_int("log.cleaner.dedupe.buffer.size")
        if dedupe_buffer_size // threads <= _SMALLEST_DEDUPE_BUFFER:
            raise ConfigError.invalid(
                "log.cleaner.dedupe.buffer.size",
                dedupe_buffer_size,
                "it must be more than 1 MiB for each of the cleaner's threads",
            )
        return cls(
            enable_cleaner=values.get_bool("log.cleaner.enable"),
            num_threads=threads,
            dedupe_buffer_size=dedupe_buffer_size,
            dedupe_buffer_load_factor=values.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_size=values.get_int("log.cleaner.io.buffer.size"),
            max_io_bytes_per_second=values.get_float("log.cleaner.io.max.bytes.per.second"),
            backoff_ms=values.get_int("log.cleaner.backoff.ms"),
        )

    @property
    def dedupe_buffer_size_per_thread(self) -> int:
        return self.dedupe_buffer_size // self.num_threads

    @property
    def io_buffer_size_per_thread(self) -> int:
        """The size of one buffer; a thread has one for reading and one for writing."""
        return self.io_buffer_size // self.num_threads // 2
