"""``barnabas consume``: prints the records of a topic.

barnabas consume orders                                   records that are written from now on
barnabas consume orders --from-beginning --exit           all records up to the current end
barnabas consume orders --offset -10 -n 10                the last ten records of a partition
barnabas consume orders --time 2026-03-01T12:00:00        records since that time
barnabas consume orders --group billing                   as a member of a group, which commits what it has printed
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.admin import administered, explain, explain_topic
from barnabas.cli.arguments import add_command
from barnabas.cli.cluster import Cluster, add_cluster, invalid_settings
from barnabas.cli.console import CommandError, UsageError, output_failed, say
from barnabas.cli.record_format import FORMATS, formatter, template
from barnabas.cli.times import parse_time_ms

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.cli.record_format import Formatter
    from barnabas.clients.consumer import KafkaConsumer, TopicPartition

DESCRIPTION: Final = r"""Prints the records of a topic, from now on or from an earlier position. Ctrl-C stops it.

  barnabas consume orders --from-beginning --exit
  barnabas consume orders -f '%t %p %o  %k: %s\n'
  barnabas consume orders --group billing --max-messages 100 --json"""
POLL_MS: Final = 200
"""The maximum delay until Ctrl-C takes effect."""


def add_consume(commands: Commands) -> None:
    parser = add_command(commands, "consume", consume_command, "print records", DESCRIPTION)
    add_cluster(parser, "--consumer-property")
    parser.add_argument("topic", metavar="TOPIC", help="the topic")
    parser.add_argument(
        "-p",
        "--partition",
        dest="partitions",
        action="append",
        type=int,
        metavar="N",
        help="only this partition; may be repeated",
    )
    begin = parser.add_argument_group("where to start; default: at the end").add_mutually_exclusive_group()
    begin.add_argument("-B", "--from-beginning", action="store_true", help="at the first record")
    begin.add_argument("-o", "--offset", type=int, metavar="N", help="at an offset; relative to the end if negative")
    begin.add_argument(
        "-s", "--time", metavar="TIME", help="at the first record since this time, for example 2026-03-01T12:00:00"
    )
    end = parser.add_argument_group("when to stop; default: at Ctrl-C")
    end.add_argument("-n", "--max-messages", type=int, metavar="N", help="after this number of records")
    end.add_argument("-e", "--exit", dest="exit_at_end", action="store_true", help="at the current end of the topic")
    end.add_argument("--timeout", type=float, metavar="SECONDS", help="after this time without a record")
    shape = parser.add_argument_group("output format").add_mutually_exclusive_group()
    shape.add_argument("--format", dest="format_name", choices=FORMATS, default="value", help="default: value")
    shape.add_argument("-f", "--format-string", metavar="TEXT", help=r"a kcat format such as '%%t-%%p %%o %%k %%s\n'")
    shape.add_argument("--json", dest="as_json", action="store_true", help="one JSON document per line")
    reading = parser.add_argument_group("consumer")
    reading.add_argument("-g", "--group", metavar="ID", help="read as a member of this group; default: no group")
    reading.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_committed",
        help="whether to skip records of open and aborted transactions; default: read_committed",
    )


def consume_command(
    cluster: Cluster,
    topic: str,
    partitions: list[int] | None,
    from_beginning: bool,
    offset: int | None,
    time: str | None,
    max_messages: int | None,
    exit_at_end: bool,
    timeout: float | None,
    format_name: str,
    format_string: str | None,
    as_json: bool,
    group: str | None,
    isolation_level: str,
) -> None:
    """Prints records."""
    if group is not None and (partitions or offset is not None or time is not None):
        raise UsageError(
            "--group cannot be used with --partition, --offset or --time: the group decides about partitions and "
            "offsets; to change them, see barnabas groups reset-offsets"
        )
    if max_messages is not None and max_messages < 1:
        raise UsageError(f"--max-messages must be at least 1: {max_messages}")
    shape = template(format_string) if format_string is not None else formatter("json" if as_json else format_name)
    since_ms = None if time is None else parse_time_ms(time)
    wanted = _partitions(cluster, topic, partitions)
    settings = cluster.properties(
        {
            "client.id": "barnabas-cli",
            "isolation.level": isolation_level,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
        }
    )
    if group is not None:
        settings["group.id"] = group
    reader = _Reader(shape, max_messages, timeout)
    with _consumer(settings) as consumer:
        reader.read(consumer, topic, wanted, group is not None, from_beginning, offset, since_ms, exit_at_end)
    if sys.stderr.isatty() and sys.stdout.isatty():
        say(f"{reader.count:,} record{'s' * (reader.count != 1)}\n", sys.stderr)


def _partitions(cluster: Cluster, topic: str, numbers: list[int] | None) -> list[TopicPartition]:
    """Returns the partitions to read. Fails at once if the topic or the cluster is missing; a consumer would wait."""
    from barnabas.clients.consumer import TopicPartition

    with administered(cluster) as admin:
        found = admin.describe_topics([topic], partial=True)
    if topic not in found:
        raise CommandError(explain_topic(topic, found.errors[topic]))
    there = [partition.partition for partition in found[topic].partitions]
    missing = [number for number in numbers or () if number not in there]
    if missing:
        raise CommandError(f"{topic} has no partition {missing[0]}; it has {len(there)}")
    return [TopicPartition(topic, number) for number in numbers or there]


def _consumer(settings: dict[str, Any]) -> KafkaConsumer:
    from barnabas.clients.consumer import KafkaConsumer
    from barnabas.common.errors import InvalidConfigurationError

    try:
        return KafkaConsumer(settings)
    except InvalidConfigurationError as error:
        raise invalid_settings(error) from None


class _Reader:
    """Prints records until a limit is reached.

    Ctrl-C sets a flag that is checked between two polls, so the output is complete, and a member of a group commits
    and leaves. A closed output pipe (``barnabas consume orders | head``) stops it too.
    """

    def __init__(self, shape: Formatter, max_messages: int | None, timeout: float | None) -> None:
        self._shape = shape
        self._max = max_messages
        self._timeout = timeout
        self._stopped = False
        self.count = 0

    def read(
        self,
        consumer: KafkaConsumer,
        topic: str,
        partitions: list[TopicPartition],
        in_group: bool,
        from_beginning: bool,
        offset: int | None,
        since_ms: int | None,
        exit_at_end: bool,
    ) -> None:
        from barnabas.common.clock import SYSTEM_CLOCK
        from barnabas.common.errors import ApiError

        before = [(number, signal.signal(number, self._stop)) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            if in_group:
                consumer.subscribe([topic])
            else:
                _position(consumer, partitions, from_beginning, offset, since_ms)
            ends = consumer.end_offsets(partitions) if exit_at_end else None
            last_ns = SYSTEM_CLOCK.nanoseconds()
            while not self._stopped:
                if ends is not None and not in_group and _reached(consumer, ends):
                    return
                remaining = None if self._max is None else self._max - self.count
                records = consumer.poll(POLL_MS, remaining)
                if records:
                    last_ns = SYSTEM_CLOCK.nanoseconds()
                    if not self._write(records):
                        return
                elif self._timeout is not None and SYSTEM_CLOCK.nanoseconds() - last_ns > self._timeout * 1e9:
                    return
                if self._max is not None and self.count >= self._max:
                    return
                if ends is not None and in_group and consumer.assignment() and _reached(consumer, ends):
                    return
        except ApiError as error:
            raise CommandError(f"cannot read {topic}: {explain(error)}") from None
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _write(self, records: Any) -> bool:
        """Writes records; returns False if the output pipe is closed. Other errors become a `CommandError`."""
        output = sys.stdout.buffer
        try:
            for record in records:
                output.write(self._shape(record))
                self.count += 1
            output.flush()
        except OSError as error:
            output_failed(sys.stdout, error)
            return False
        return True


def _position(
    consumer: KafkaConsumer,
    partitions: list[TopicPartition],
    from_beginning: bool,
    offset: int | None,
    since_ms: int | None,
) -> None:
    consumer.assign(partitions)
    if from_beginning:
        consumer.seek_to_beginning(*partitions)
    elif since_ms is not None:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        ends = consumer.end_offsets(partitions)
        for partition in partitions:
            hit = found.get(partition)
            consumer.seek(partition, ends[partition] if hit is None else hit.offset)
    elif offset is not None:
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for partition in partitions:
            wanted = offset if offset >= 0 else ends[partition] + offset
            consumer.seek(partition, min(max(wanted, starts[partition]), ends[partition]))
    else:
        consumer.seek_to_end(*partitions)


def _reached(consumer: KafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    """Returns whether the positions of all assigned partitions have reached these offsets."""
    return all(consumer.position(partition) >= ends[partition] for partition in consumer.assignment())
