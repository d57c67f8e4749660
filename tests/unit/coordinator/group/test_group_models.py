"""Random lives of groups: members join, leave, crash, and the coordinator fails over, at any moment.

Whatever happens, no partition belongs to two members at once; when it is quiet again everything is assigned; and what a
new coordinator finds in the log is what the old one knew.
"""

from __future__ import annotations

import struct
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse
from group_fixtures import GroupBox, assigned
from unit.metadata.samples import partition

PARTITIONS = 5
STEP_MS = 5000


class ConsumerClient:
    """A member of the consumer protocol, as a correct client behaves."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[int] = set()
        self.wanted: set[int] = set()

    def heartbeat(self, box: GroupBox, topic_id: Uuid) -> None:
        owned: dict[Uuid, Any] = {topic_id: sorted(self.owned)} if self.owned else {}
        options: dict[str, Any] = {} if self.instance_id is None else {"instance_id": self.instance_id}
        answer = box.consumer_heartbeat(self.member_id, self.epoch, owned={} if self.epoch == 0 else owned, **options)
        error = Errors.for_code(answer.error_code)
        if error in {Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID, Errors.GROUP_ID_NOT_FOUND}:
            self.epoch = 0
            self.owned = set()
            self.wanted = set()
            return
        if error is Errors.UNRELEASED_INSTANCE_ID:
            return
        assert error is Errors.NONE, error
        self.epoch = answer.member_epoch
        given = assigned(answer)
        if given is not None:
            self.wanted = set(given.get(topic_id, ()))

    def reconcile(self) -> None:
        """Revokes what it has to give up, and takes up what it has been given."""
        self.owned = set(self.wanted)


class ConsumerGroupModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.box = GroupBox()
        self.topic_id = self.box.create_topic("t", PARTITIONS)
        self.num_partitions = PARTITIONS
        self.clients: list[ConsumerClient] = []
        self.count = 0

    @rule(static=st.booleans())
    def join(self, static: bool) -> None:
        if len(self.clients) < 5:
            self.count += 1
            client = ConsumerClient(f"m{self.count}", f"i{self.count}" if static else None)
            client.heartbeat(self.box, self.topic_id)
            self.clients.append(client)

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        if self.clients:
            data.draw(st.sampled_from(self.clients)).heartbeat(self.box, self.topic_id)

    @rule(data=st.data())
    def reconcile(self, data: st.DataObject) -> None:
        if self.clients:
            data.draw(st.sampled_from(self.clients)).reconcile()

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            self.clients.remove(client)
            if client.epoch > 0:
                options: dict[str, Any] = {} if client.instance_id is None else {"instance_id": client.instance_id}
                self.box.consumer_heartbeat(client.member_id, -1, **options)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        if self.clients:
            self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @rule(data=st.data())
    def restart_static(self, data: st.DataObject) -> None:
        static = [client for client in self.clients if client.instance_id is not None and client.epoch > 0]
        if static:
            old = data.draw(st.sampled_from(static))
            self.box.consumer_heartbeat(old.member_id, -2, instance_id=old.instance_id)
            self.count += 1
            new = ConsumerClient(f"m{self.count}", old.instance_id)
            self.clients[self.clients.index(old)] = new
            new.heartbeat(self.box, self.topic_id)

    @rule()
    def fail_over(self) -> None:
        before = self.snapshot()
        self.box = self.box.restarted()
        assert self.snapshot() == before

    @rule()
    def grow(self) -> None:
        if self.num_partitions < 8:
            self.box.learn([partition(self.topic_id, self.num_partitions)])
            self.num_partitions += 1

    @rule()
    def pass_time(self) -> None:
        """Those that live are heard of in time, and give up what they have to in time."""
        for client in self.clients:
            client.heartbeat(self.box, self.topic_id)
            client.reconcile()
        self.box.advance(STEP_MS)

    def snapshot(self) -> Any:
        return {group_id: group.as_mapping() for group_id, group in self.box.shard().store.groups.items()}  # type: ignore[union-attr]

    @invariant()
    def no_partition_belongs_to_two(self) -> None:
        if not hasattr(self, "clients"):
            return
        owners: dict[int, str] = {}
        for client in self.clients:
            for number in client.owned & client.wanted if client.epoch else ():
                assert owners.setdefault(number, client.member_id) == client.member_id

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        for _ in range(30):
            self.pass_time()
        if self.clients:
            assert self.box.state() == "Stable"
            everything = sorted(number for client in self.clients for number in client.owned)
            assert everything == list(range(self.num_partitions))
        self.fail_over()


class ClassicClient:
    """A member of the classic protocol: eager, and the leader assigns round robin."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.joining: Future[JoinGroupResponse] | None = None
        self.syncing: Future[SyncGroupResponse] | None = None

    def step(self, box: GroupBox) -> None:
        if self.joining is not None:
            if self.joining.done():
                self._joined(box, self.joining.result(0))
        elif self.syncing is not None:
            if self.syncing.done():
                self._synced(box, self.syncing.result(0))
        elif self.generation < 0:
            self.join(box)
        else:
            error = box.heartbeat(self.member_id, self.generation)
            if error is not Errors.NONE:
                self._again(error)
                self.join(box)

    def join(self, box: GroupBox) -> None:
        self.owned = set()
        self.joining = box.join(self.member_id)

    def _again(self, error: Errors) -> None:
        self.owned = set()
        self.joining = self.syncing = None
        if error in {Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION}:
            self.generation = -1
            if error is Errors.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        else:
            assert error in {Errors.REBALANCE_IN_PROGRESS, Errors.NOT_COORDINATOR}, error

    def _joined(self, box: GroupBox, answer: JoinGroupResponse) -> None:
        self.joining = None
        error = Errors.for_code(answer.error_code)
        if error is Errors.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join(box)
            return
        if error is not Errors.NONE:
            self._again(error)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        ids = [member.member_id for member in answer.members]
        assignment = {
            member_id: struct.pack(f"{len(range(at, PARTITIONS, len(ids)))}B", *range(at, PARTITIONS, len(ids)))
            for at, member_id in enumerate(ids)
        }
        self.syncing = box.sync(self.member_id, self.generation, assignment)

    def _synced(self, box: GroupBox, answer: SyncGroupResponse) -> None:
        self.syncing = None
        error = Errors.for_code(answer.error_code)
        if error is not Errors.NONE:
            self._again(error)
            return
        self.owned = set(answer.assignment)


class ClassicGroupModel(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.box = GroupBox({"classic_initial_rebalance_delay_ms": 1000})
        self.clients: list[ClassicClient] = []

    @rule()
    def start(self) -> None:
        if len(self.clients) < 4:
            client = ClassicClient()
            self.clients.append(client)
            client.step(self.box)

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        if self.clients:
            data.draw(st.sampled_from(self.clients)).step(self.box)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            self.clients.remove(client)
            if client.member_id:
                self.box.leave(client.member_id)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        if self.clients:
            self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @rule()
    def fail_over(self) -> None:
        """Whoever waits for a response gets none from a broker that is gone, and asks the next."""
        before = self.box
        self.box = before.restarted()
        groups = before.shard().store.groups
        for group_id, group in groups.items():
            again: Any = self.box.shard().store.groups.get(group_id)
            if group.state_at(0) == "Stable":
                assert again is not None
                assert again.generation_id == group.generation_id  # type: ignore[union-attr]
                assert again.assignment == group.assignment  # type: ignore[union-attr]
        before.bench.runtime.close()
        for client in self.clients:
            if client.syncing is not None and not client.syncing.result(0).error_code:
                client.step(self.box)

    @rule()
    def pass_time(self) -> None:
        """Those that live do what they have to several times within a session."""
        for client in self.clients:
            client.step(self.box)
        self.box.advance(STEP_MS // 2)

    @invariant()
    def no_partition_belongs_to_two_in_a_generation(self) -> None:
        if not hasattr(self, "clients"):
            return
        owners: dict[tuple[int, int], str] = {}
        for client in self.clients:
            for number in client.owned:
                key = (client.generation, number)
                assert owners.setdefault(key, client.member_id) == client.member_id

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        for _ in range(60):
            self.pass_time()
        if self.clients:
            assert self.box.state() == "Stable"
            assert sorted(number for client in self.clients for number in client.owned) == list(range(PARTITIONS))


for model in (ConsumerGroupModel, ClassicGroupModel):
    model.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

TestConsumerGroupModel = pytest.mark.mechanism("R09")(ConsumerGroupModel.TestCase)
TestClassicGroupModel = pytest.mark.mechanism("R09")(ClassicGroupModel.TestCase)
