"""The producer for asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.clients.producer import AsyncKafkaProducer
from barnabas.clients.producer.errors import IllegalStateError
from barnabas.common.errors import RecordTooLargeError
from barnabas.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def bootstrap() -> object:
    with EmbeddedBroker(overrides={"num.partitions": 2}) as broker:
        yield broker.bootstrap_servers


def test_send_and_wait(bootstrap: str) -> None:
    async def main() -> None:
        async with AsyncKafkaProducer(bootstrap_servers=bootstrap, max_request_size=5_000) as producer:
            metadata = await producer.send_and_wait("one", b"v", key=b"k")
            assert metadata.offset == 0
            futures = [await producer.send("one", b"%d" % index, partition=metadata.partition) for index in range(100)]
            found = await asyncio.gather(*futures)
            assert [one.offset for one in found] == list(range(1, 101))
            assert len(await producer.partitions_for("one")) == 2
            with pytest.raises(RecordTooLargeError):
                await producer.send_and_wait("one", b"x" * 6_000)
            await producer.flush()
            assert any(name.name == "record-send-total" for name in producer.metrics())
        with pytest.raises(IllegalStateError):
            await producer.send("one", b"late")

    asyncio.run(main())


def test_the_loop_goes_on_while_a_send_waits(bootstrap: str) -> None:
    """The first send waits for metadata, on another thread; those behind it keep their order."""

    async def main() -> None:
        async with AsyncKafkaProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            loop_thread = threading.get_ident()
            asked: list[int] = []
            original = producer.sync._wait_on_metadata

            def noted(*arguments: object) -> object:
                asked.append(threading.get_ident())
                return original(*arguments)  # type: ignore[arg-type]

            producer.sync._wait_on_metadata = noted  # type: ignore[method-assign, assignment]
            tasks = [asyncio.ensure_future(producer.send("two", b"%d" % index, partition=0)) for index in range(50)]
            futures = await asyncio.gather(*tasks)
            offsets = [(await future).offset for future in futures]
            assert offsets == list(range(50))
            assert asked[0] != loop_thread, "the one that had to wait did so elsewhere"

    asyncio.run(main())


def test_a_send_does_not_overtake_those_that_queue_behind_one_that_waited(bootstrap: str) -> None:
    async def main() -> None:
        async with AsyncKafkaProducer(bootstrap_servers=bootstrap) as producer:
            accepted: list[bytes] = []
            loop, waits, ready = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
            future = await producer.send("four", b"v")

            def send_nowait(_topic: str, value: bytes, *_: object) -> object:
                if not ready.is_set():
                    return None
                accepted.append(value)
                return future

            def send(_topic: str, value: bytes, *_: object) -> object:
                loop.call_soon_threadsafe(waits.set)  # when both tasks have begun
                assert ready.wait(60)
                accepted.append(value)
                return future

            producer.sync.send_nowait = send_nowait  # type: ignore[method-assign, assignment]
            producer.sync.send = send  # type: ignore[method-assign, assignment]

            async def first_and_third() -> None:
                await producer.send("four", b"first")
                await producer.send("four", b"third")

            async def second() -> None:
                await producer.send("four", b"second")

            tasks = [asyncio.ensure_future(first_and_third()), asyncio.ensure_future(second())]
            await waits.wait()
            ready.set()
            await asyncio.gather(*tasks)
            assert accepted == [b"first", b"second", b"third"]

    asyncio.run(main())


def test_callbacks_and_done_callbacks(bootstrap: str) -> None:
    async def main() -> None:
        async with AsyncKafkaProducer({"bootstrap.servers": bootstrap}) as producer:
            seen: list[object] = []
            future = await producer.send("three", b"v", callback=lambda metadata, error: seen.append((metadata, error)))
            metadata = await future
            assert await future == metadata, "as often as one likes"
            assert seen == [(metadata, None)]
            assert "AsyncKafkaProducer" in repr(producer)

    asyncio.run(main())
