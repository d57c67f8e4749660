"""Apache Kafka's own controller classes as an oracle: the same decisions, and the same reading of our records."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.controller.partition_change_builder import Election, PartitionChangeBuilder
from barnabas.controller.partition_reassignment import begin_reassignment
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.metadata_version import MetadataVersion
from barnabas.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from barnabas.protocol.internal.metadata import PartitionChangeRecord
from oracles.definitions import JARS
from oracles.java import server_jars
from unit.controller.harness import directory
from unit.controller.test_replay import ControllerMachine, topics_of

pytestmark = pytest.mark.java

SOURCE = Path(__file__).with_name("ControllerOracle.java")
CASES = 4_000
LOGS = 30


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Java answers. A machine without it skips the tests; a CI run must not lose them that way."""
    # The storage layer comes with the client library that fits the server's jars; the other one is newer.
    jars = [*(JARS.parent / "storage-jars").glob("*.jar"), *server_jars()]
    names = " ".join(jar.name for jar in jars)
    java = shutil.which("java")
    if java is None or "kafka-metadata-" not in names or "kafka-clients-" not in names:
        reason = "no java on the PATH, or no Kafka jars in target (make jars)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    run = subprocess.run(
        [java, "-XX:+UseSerialGC", "-cp", os.pathsep.join(map(str, jars)), str(SOURCE)],
        input="\n".join(map(json.dumps, questions)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def some_of(source: random.Random, items: tuple[int, ...], probability: float) -> tuple[int, ...]:
    return tuple(item for item in items if source.random() < probability)


def random_case(source: random.Random) -> tuple[PartitionRegistration, dict[str, Any]]:
    """A partition in any state it can be in, and something that happens to it."""
    count = source.randint(1, 4)
    replicas = tuple(source.sample(range(1, 7), count))
    elr_enabled = source.random() < 0.6
    isr = some_of(source, tuple(source.sample(replicas, count)), 0.6)
    if not isr and not elr_enabled:
        isr = replicas[:1]
    rest = tuple(sorted(set(replicas) - set(isr)))
    leader = source.choice(isr) if isr and source.random() < 0.8 else -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    if count > 1 and source.random() < 0.3:
        adding = some_of(source, tuple(sorted(replicas)), 0.3)
        removing = some_of(source, tuple(sorted(set(replicas) - set(adding))), 0.3)
        if count in (len(adding), len(removing)):
            adding = removing = ()
    partition = PartitionRegistration(
        replicas=replicas,
        directories=tuple(directory(replica) for replica in replicas),
        isr=isr,
        removing_replicas=removing,
        adding_replicas=adding,
        elr=some_of(source, rest, 0.4) if elr_enabled else (),
        last_known_elr=(source.choice(replicas),) if leader == -1 and elr_enabled and source.random() < 0.6 else (),
        leader=leader,
        leader_recovery_state=LeaderRecoveryState(source.random() < 0.15),
        leader_epoch=3,
        partition_epoch=7,
    )
    unclean = (source.choice(replicas),) if source.random() < 0.2 else ()
    target_isr = some_of(source, isr if source.random() < 0.6 else replicas, 0.8)
    targets: dict[str, Any] = {
        "target_isr": tuple(replica for replica in target_isr if replica not in unclean),
        "target_replicas": replicas,
        "target_adding": adding,
        "target_removing": removing,
    }
    if not adding and not removing and source.random() < 0.3:
        begun = begin_reassignment(partition, tuple(source.sample(range(1, 7), source.randint(1, 3))))
        targets |= {
            "target_replicas": begun.replicas,
            "target_adding": begun.adding,
            "target_removing": begun.removing,
        }
    versions = [MetadataVersion.IBP_4_3_IV0] * 3
    if not elr_enabled:
        versions += [MetadataVersion.IBP_3_5_IV2, MetadataVersion.IBP_3_9_IV0]
    return partition, {
        **targets,
        "alive": some_of(source, tuple(range(1, 7)), 0.6),
        "election": source.choice(list(Election)),
        "min_isr": source.randint(1, count),
        "unclean_shutdown": unclean,
        "elr_enabled": elr_enabled,
        "version": source.choice(versions),
        "target_recovery": source.choice([partition.leader_recovery_state, LeaderRecoveryState.RECOVERED]),
    }


def our_answer(partition: PartitionRegistration, case: dict[str, Any]) -> dict[str, Any]:
    builder = PartitionChangeBuilder(
        partition,
        Uuid(bytes(15) + b"\x01"),
        0,
        is_acceptable_leader=lambda broker_id: broker_id in case["alive"],
        metadata_version=case["version"],
        min_isr=case["min_isr"],
        elr_enabled=case["elr_enabled"],
        default_directory=lambda broker_id: directory(broker_id, 5),
    )
    for name in ("target_isr", "target_replicas", "target_adding", "target_removing", "election"):
        setattr(builder, name, case[name])
    builder.unclean_shutdown_replicas = case["unclean_shutdown"]
    builder.target_leader_recovery_state = case["target_recovery"]
    built = builder.build()
    if built is None:
        return {}
    record = built.message
    assert isinstance(record, PartitionChangeRecord)
    return {
        "version": built.version,
        "leader": record.leader,
        "leader_recovery_state": record.leader_recovery_state,
        "isr": record.isr,
        "replicas": record.replicas,
        "removing_replicas": record.removing_replicas,
        "adding_replicas": record.adding_replicas,
        "eligible_leader_replicas": record.eligible_leader_replicas,
        "last_known_elr": record.last_known_elr,
        "directories": None if record.directories is None else [uuid_to_string(each) for each in record.directories],
    }


def test_partitions_change_as_in_kafka() -> None:
    source = random.Random(2024)
    cases = [random_case(source) for _ in range(CASES)]
    questions = [
        {
            "replicas": partition.replicas,
            "isr": partition.isr,
            "elr": partition.elr,
            "last_known_elr": partition.last_known_elr,
            "adding": partition.adding_replicas,
            "removing": partition.removing_replicas,
            "leader": partition.leader,
            "recovery": partition.leader_recovery_state,
            **case,
            "election": case["election"].name,
        }
        for partition, case in cases
    ]
    answers = ask(questions)
    assert len(answers) == CASES
    for question, answer, (partition, case) in zip(questions, answers, cases, strict=True):
        assert our_answer(partition, case) == answer, question
    assert sum(not answer for answer in answers) < CASES / 2  # most cases ask for a change


class Collector(ControllerMachine):
    """Keeps the log of each run, and what our own image makes of it."""

    found: list[tuple[list[str], dict[str, Any]]]

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.commit()
            log = [value.hex() for batch in self.harness.raft.log.batches for value in batch.values]
            self.found.append((log, image_answer(self.image())))


def image_answer(image: MetadataImage) -> dict[str, Any]:
    assert image.features.metadata_version is not None
    return {
        "partitions": [
            [
                topic.name,
                uuid_to_string(topic.id),
                number,
                *(
                    list(each)
                    for each in (
                        partition.replicas,
                        partition.isr,
                        partition.removing_replicas,
                        partition.adding_replicas,
                        partition.elr,
                        partition.last_known_elr,
                    )
                ),
                partition.leader,
                partition.leader_recovery_state.value,
                partition.leader_epoch,
                partition.partition_epoch,
                [uuid_to_string(each) for each in partition.directories],
            ]
            for topic in topics_of(image)
            for number, partition in sorted(topic.partitions.items())
        ],
        "brokers": [
            [
                broker.id,
                broker.epoch,
                broker.fenced,
                broker.in_controlled_shutdown,
                [uuid_to_string(each) for each in broker.directories],
            ]
            for _, broker in sorted(image.cluster.brokers.items())
        ],
        "features": dict(image.features.finalized.items()),
        "metadata_version": image.features.metadata_version.value,
        "producer_ids": image.producer_ids.next_producer_id,
        "acls": len(image.acls.entries),
    }


def test_kafka_reads_our_log_and_comes_to_the_same_state() -> None:
    Collector.found = []
    run_state_machine_as_test(
        Collector,
        settings=settings(max_examples=LOGS, stateful_step_count=50, deadline=None, database=None, derandomize=True),
    )
    answers = ask([{"log": log} for log, _ in Collector.found])
    assert len(answers) == len(Collector.found) >= LOGS
    for (_, expected), answer in zip(Collector.found, answers, strict=True):
        assert answer == expected
