"""The short way to the answer of a fetch: what it writes is what the codec writes."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.log.leader_epoch_cache import EpochEndOffset
from barnabas.network.send import FileRegion
from barnabas.protocol.framing import response_parts
from barnabas.protocol.internal.storage import AbortedTxn
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.replica.fetch_context import make_response
from barnabas.replica.fetch_session import TopicIdPartition
from barnabas.replica.results import FetchPartitionData

VERSIONS = range(12, 19)


@pytest.fixture(params=["_fetch_answer", "_fetch_answer_pure"])
def fetch_answer(request: pytest.FixtureRequest) -> Any:
    try:
        module = importlib.import_module(f"barnabas.broker.handlers.{request.param}")
    except ImportError:
        pytest.skip("not built")
    return module.fetch_answer


def data(records: Any = b"", **changed: Any) -> FetchPartitionData:
    return FetchPartitionData(Errors.NONE, 10, 0, records, last_stable_offset=9)._replace(**changed)


def by_codec(version: int, results: list[tuple[TopicIdPartition, FetchPartitionData]], session_id: int) -> list[Any]:
    structs = [
        (
            partition,
            PartitionData(
                partition_index=partition.partition,
                error_code=found.error,
                high_watermark=found.high_watermark,
                last_stable_offset=found.last_stable_offset,
                log_start_offset=found.log_start_offset,
                aborted_transactions=None if found.aborted_transactions is None else [],
                preferred_read_replica=found.preferred_read_replica,
                records=found.records,
            ),
        )
        for partition, found in results
    ]
    return response_parts(make_response(structs, session_id), version, 77)


def flat(pieces: list[Any]) -> bytes:
    """The pieces as one, a region standing for itself."""
    return b"".join(
        f"<{piece.position}+{piece.count}>".encode() if isinstance(piece, FileRegion) else bytes(piece)
        for piece in pieces
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_same_to_the_byte(fetch_answer: Any, version: int, seed: int) -> None:
    chance = random.Random(seed)
    topics = [
        (ZERO_UUID if version < 13 else Uuid(chance.randbytes(16)), chance.choice(["t", "täler", "x" * 249, "u" * 126]))
        for _ in range(4)
    ]
    results = []
    for _ in range(chance.choice([0, 1, 3, 12, 200])):
        partition = TopicIdPartition(*chance.choice(topics), chance.randrange(2**31))
        size = chance.choice([0, 0, 1, 126, 127, 16_382, 16_383, 2_097_151, 2**31 - 200_000_000])
        records = b"" if not size else FileRegion(3, chance.randrange(2**40), size)
        found = data(
            records,
            high_watermark=chance.choice([0, 1, 2**62, -1, chance.randrange(2**63)]),
            log_start_offset=chance.randrange(2**63),
            last_stable_offset=chance.choice([-1, chance.randrange(2**63)]),
            aborted_transactions=chance.choice([None, []]),
        )
        results.append((partition, found))
    if sum(len(found.records) for _, found in results) > 2**31 - 2**20:
        results = [(partition, found._replace(records=b"some")) for partition, found in results]
    session_id = chance.choice([0, 1, 2**31 - 1])
    answer = fetch_answer(version, 77, session_id, results)
    assert flat(answer) == flat(by_codec(version, results, session_id))
    assert [piece for piece in answer if isinstance(piece, FileRegion)] == [
        found.records for _, found in results if isinstance(found.records, FileRegion)
    ]


@pytest.mark.parametrize(
    "found",
    [
        data(error=Errors.NOT_LEADER_OR_FOLLOWER),
        data(diverging_epoch=EpochEndOffset(1, 5)),
        data(preferred_read_replica=3),
        data(aborted_transactions=[AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4)]),
        data(high_watermark=2**63),
    ],
    ids=["error", "divergence", "other-replica", "aborted-transaction", "no-int64"],
)
def test_what_is_not_plain_goes_the_other_way(fetch_answer: Any, found: FetchPartitionData) -> None:
    plain = (TopicIdPartition(Uuid(bytes(15) + b"t"), "t", 0), data(b"records"))
    assert fetch_answer(17, 1, 0, [plain]) is not None
    assert fetch_answer(17, 1, 0, [plain, (TopicIdPartition(Uuid(bytes(15) + b"t"), "t", 1), found)]) is None
