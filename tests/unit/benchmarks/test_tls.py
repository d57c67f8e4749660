"""The cases of the TLS benchmark: their names, and when a target is reached."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from benchmarks import tls
from benchmarks.peers.case import Metric
from benchmarks.peers.listeners import Certificates
from benchmarks.peers.rounds import Measured
from benchmarks.peers.systems import KAFKA, OURS, AnyBroker
from benchmarks.tls_clients import ask

from barnabas import EmbeddedBroker, KafkaAdminClient
from barnabas.clients.admin import NewTopic
from unit.benchmarks.peers_fixtures import measured


def no_others() -> AbstractContextManager[dict[str, AnyBroker]]:
    return nullcontext({})


def test_every_case_has_a_key_and_a_title_of_its_own(tmp_path: Path) -> None:
    cases = [case for case, _ in tls.cases(Certificates(tmp_path).tls, no_others)]
    assert len({case.key for case in cases}) == len({case.title for case in cases}) == len(cases)
    assert sum("TLS" in case.key for case in cases) == 4


def test_a_ratio_below_one_is_good_where_less_is_better() -> None:
    found = [
        measured("rate", [20], [10], target=1.0),
        measured("cpu", [20], [10], target=1.0, more_is_better=False),
        measured("no target", [20], [10]),
    ]
    assert [row.reached for row in tls.rows(found)] == [True, False]


def test_the_storm_is_judged_by_our_own_quiet() -> None:
    (metric,) = (one for one in tls.Storm(1, no_others).metrics if one.name == tls.TIMES)
    for times, reached in ((2.0, True), (4.0, False)):
        (row,) = tls.rows([Measured("storm", "a storm", metric, {OURS: [times], KAFKA: [100.0]})])
        assert row.reached is reached
    assert tls.rows([Measured("storm", "a storm", Metric("p99", "ms"), {OURS: [9.0], KAFKA: [1.0]})]) == []


def test_the_clients_connect_authenticate_and_wait() -> None:
    with EmbeddedBroker(security="SASL_SSL", users={"alice": "secret"}) as broker:
        with KafkaAdminClient(broker.client_settings) as admin:
            admin.create_topics([NewTopic("letters", 1)])
        job = {"address": broker.bootstrap_servers, "user": ["alice", "secret"], "seconds": 0.1, "connections": 4}
        assert ask({"job": "connect", **job})["connections"] >= 4
        assert ask({"job": "storm", **job})["connections"] >= 4
        assert ask({"job": "wait", "topic": "letters", **job})["p99"] > 0
        with pytest.raises(RuntimeError, match="SASL_AUTHENTICATION_FAILED"):
            ask({"job": "connect", **job, "user": ["alice", "wrong"]})
