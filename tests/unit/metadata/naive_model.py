"""The metadata as plain dictionaries, changed in place: the simplest thing that follows the records.

It has nothing in common with the images, so the one can be checked against the other. :func:`record_sequences` makes
logs that a controller could have written.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.internal import metadata as records
from barnabas.protocol.internal.framing import MetadataRecord
from unit.metadata.samples import uid

PARTITION_LISTS = {
    "replicas": "replicas",
    "isr": "isr",
    "removing_replicas": "removing",
    "adding_replicas": "adding",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last_elr",
}


class NaiveModel:
    """Everything by key, in nested dictionaries."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.features: dict[str, int] = {}
        self.brokers: dict[int, dict[str, Any]] = {}
        self.controllers: dict[int, dict[str, Any]] = {}
        self.topics: dict[Uuid, dict[str, Any]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[frozenset[tuple[str, str | None]], dict[str, float]] = {}
        self.next_producer_id = -1
        self.acls: dict[Uuid, tuple[Any, ...]] = {}
        self.scram: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.tokens: dict[str, tuple[Any, ...]] = {}
        self.used_ids: set[Uuid] = set()
        """Of topics that are gone, too."""

    def topic_ids(self) -> dict[str, Uuid]:
        return {topic["name"]: topic_id for topic_id, topic in self.topics.items()}

    def apply(self, record: MetadataRecord) -> None:
        match record:
            case records.FeatureLevelRecord():
                if record.name == "metadata.version":
                    self.version = record.feature_level
                elif record.name != "kraft.version":
                    self.features[record.name] = record.feature_level
                    if not record.feature_level:
                        del self.features[record.name]
            case records.RegisterBrokerRecord():
                self.brokers[record.broker_id] = {
                    "epoch": record.broker_epoch,
                    "incarnation": record.incarnation_id,
                    "endpoints": {e.name: (e.host, e.port, e.security_protocol) for e in record.end_points},
                    "features": {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
                    "rack": record.rack,
                    "fenced": record.fenced,
                    "shutdown": record.in_controlled_shutdown,
                    "dirs": set(record.log_dirs),
                    "cordoned": None if record.cordoned_log_dirs is None else set(record.cordoned_log_dirs),
                    "migrating": record.is_migrating_zk_broker,
                }
            case records.UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case records.FenceBrokerRecord():
                self.brokers[record.id]["fenced"] = True
            case records.UnfenceBrokerRecord():
                self.brokers[record.id]["fenced"] = False
            case records.BrokerRegistrationChangeRecord():
                broker = self.brokers[record.broker_id]
                if record.fenced:
                    broker["fenced"] = record.fenced == 1
                if record.in_controlled_shutdown:
                    broker["shutdown"] = True
                if record.log_dirs:
                    broker["dirs"] = set(record.log_dirs)
                if record.cordoned_log_dirs is not None:
                    broker["cordoned"] = set(record.cordoned_log_dirs)
            case records.RegisterControllerRecord():
                self.controllers[record.controller_id] = {
                    "incarnation": record.incarnation_id,
                    "endpoints": {e.name: (e.host, e.port, e.security_protocol) for e in record.end_points},
                    "features": {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
                    "ready": record.zk_migration_ready,
                }
            case records.TopicRecord():
                self.topics[record.topic_id] = {"name": record.name, "partitions": {}}
                self.used_ids.add(record.topic_id)
            case records.PartitionRecord():
                partition: dict[str, Any] = {
                    ours: list(getattr(record, theirs) or []) for theirs, ours in PARTITION_LISTS.items()
                }
                partition |= {
                    "dirs": list(record.directories) or [ZERO_UUID] * len(record.replicas),
                    "leader": record.leader,
                    "recovery": record.leader_recovery_state,
                    "leader_epoch": record.leader_epoch,
                    "epoch": record.partition_epoch,
                }
                self.topics[record.topic_id]["partitions"][record.partition_id] = partition
            case records.PartitionChangeRecord():
                partition = self.topics[record.topic_id]["partitions"][record.partition_id]
                for theirs, ours in PARTITION_LISTS.items():
                    if getattr(record, theirs) is not None:
                        partition[ours] = list(getattr(record, theirs))
                if record.directories is not None:
                    partition["dirs"] = list(record.directories)
                if all(directory == ZERO_UUID for directory in partition["dirs"]):
                    partition["dirs"] = [ZERO_UUID] * len(partition["replicas"])
                if record.leader != -2:
                    partition["leader"] = record.leader
                    partition["leader_epoch"] += 1
                if record.leader_recovery_state != -1:
                    partition["recovery"] = record.leader_recovery_state
                partition["epoch"] += 1
            case records.ClearElrRecord():
                for topic in self.topics.values():
                    if record.topic_name in {"", topic["name"]}:
                        for partition in topic["partitions"].values():
                            if partition["elr"] or partition["last_elr"]:
                                partition["elr"], partition["last_elr"] = [], []
                                partition["epoch"] += 1
            case records.RemoveTopicRecord():
                gone = self.topics.pop(record.topic_id)
                self.configs.pop((2, gone["name"]), None)
            case records.ConfigRecord():
                owner = (record.resource_type, record.resource_name)
                settings = self.configs.setdefault(owner, {})
                settings.pop(record.name, None)
                if record.value is not None:
                    settings[record.name] = record.value
                if not settings:
                    del self.configs[owner]
            case records.ClientQuotaRecord():
                entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
                limits = self.quotas.setdefault(entity, {})
                limits.pop(record.key, None)
                if not record.remove:
                    limits[record.key] = record.value
                if not limits:
                    del self.quotas[entity]
            case records.ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case records.AccessControlEntryRecord():
                self.acls[record.id] = (
                    record.resource_type,
                    record.resource_name,
                    record.pattern_type,
                    record.principal,
                    record.host,
                    record.operation,
                    record.permission_type,
                )
            case records.RemoveAccessControlEntryRecord():
                del self.acls[record.id]
            case records.UserScramCredentialRecord():
                self.scram[record.mechanism, record.name] = (
                    record.salt,
                    record.stored_key,
                    record.server_key,
                    record.iterations,
                )
            case records.RemoveUserScramCredentialRecord():
                self.scram.pop((record.mechanism, record.name), None)
            case records.DelegationTokenRecord():
                self.tokens[record.token_id] = (
                    record.token_id,
                    record.owner,
                    record.requester,
                    tuple(record.renewers),
                    record.issue_timestamp,
                    record.max_timestamp,
                    record.expiration_timestamp,
                )
            case records.RemoveDelegationTokenRecord():
                self.tokens.pop(record.token_id, None)
            case records.NoOpRecord() | records.ZkMigrationStateRecord():
                pass
            case _:
                raise AssertionError(f"the model does not know {record!r}")

    def content(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "used_ids"}


def content_of(image: MetadataImage) -> dict[str, Any]:
    """An image in the form of the model."""

    def registration(node: Any) -> dict[str, Any]:
        return {
            "incarnation": node.incarnation_id,
            "endpoints": {e.name: (e.host, e.port, e.security_protocol) for e in node.listeners.values()},
            "features": {name: tuple(versions) for name, versions in node.supported_features.items()},
        }

    assert {name: topic.id for name, topic in image.topics.by_name.items()} == {
        topic.name: topic_id for topic_id, topic in image.topics.by_id.items()
    }
    assert list(image.topics.sorted_names) == sorted(image.topics.by_name)
    for topic in image.topics.by_id.values():
        assert list(topic.partitions) == sorted(topic.partitions)
        assert image.topics.by_name[topic.name] is topic
    return {
        "version": image.features.metadata_version,
        "features": dict(image.features.finalized),
        "brokers": {
            broker_id: registration(broker)
            | {
                "epoch": broker.epoch,
                "rack": broker.rack,
                "fenced": broker.fenced,
                "shutdown": broker.in_controlled_shutdown,
                "dirs": set(broker.directories),
                "cordoned": None if broker.cordoned_directories is None else set(broker.cordoned_directories),
                "migrating": broker.is_migrating_zk_broker,
            }
            for broker_id, broker in image.cluster.brokers.items()
        },
        "controllers": {
            controller_id: registration(controller) | {"ready": controller.zk_migration_ready}
            for controller_id, controller in image.cluster.controllers.items()
        },
        "topics": {
            topic_id: {
                "name": topic.name,
                "partitions": {
                    number: {
                        "replicas": list(partition.replicas),
                        "isr": list(partition.isr),
                        "removing": list(partition.removing_replicas),
                        "adding": list(partition.adding_replicas),
                        "elr": list(partition.elr),
                        "last_elr": list(partition.last_known_elr),
                        "dirs": list(partition.directories),
                        "leader": partition.leader,
                        "recovery": partition.leader_recovery_state,
                        "leader_epoch": partition.leader_epoch,
                        "epoch": partition.partition_epoch,
                    }
                    for number, partition in topic.partitions.items()
                },
            }
            for topic_id, topic in image.topics.by_id.items()
        },
        "configs": {tuple(resource): dict(settings) for resource, settings in image.configs.resources.items()},
        "quotas": {frozenset(entity.parts): dict(limits) for entity, limits in image.client_quotas.entities.items()},
        "next_producer_id": image.producer_ids.next_producer_id,
        "acls": {acl_id: tuple(entry) for acl_id, entry in image.acls.entries.items()},
        "scram": {tuple(user): tuple(credential) for user, credential in image.scram.credentials.items()},
        "tokens": {token_id: tuple(token) for token_id, token in image.delegation_tokens.tokens.items()},
    }


# -- logs

TOPICS = ["orders", "payments", "a.b", "a_c", "__consumer_offsets"]
NAMES = st.sampled_from(TOPICS)
BROKER_IDS = st.integers(0, 4)
BROKER_LIST = st.lists(BROKER_IDS, max_size=3, unique=True)
DIRECTORIES = st.integers(100, 103).map(uid)
OPTIONAL = {"isr", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"}
ENTITIES: st.SearchStrategy[dict[str, str | None]] = st.sampled_from(
    [{"user": "ann"}, {"user": None}, {"user": "ann", "client-id": "c"}, {"client-id": None}, {"ip": "10.0.0.1"}]
)
WEIGHTS = {
    "topic": 3,
    "partition": 4,
    "change_partition": 4,
    "clear_elr": 1,
    "remove_topic": 1,
    "register": 2,
    "unregister": 1,
    "fence": 1,
    "unfence": 1,
    "change_broker": 2,
    "controller": 1,
    "feature": 1,
    "config": 2,
    "quota": 2,
    "producer_ids": 1,
    "acl": 1,
    "remove_acl": 1,
    "scram": 1,
    "remove_scram": 1,
    "token": 1,
    "remove_token": 1,
    "no_op": 1,
    "zk": 1,
}
KINDS = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]


@st.composite
def record_sequences(draw: st.DrawFn, max_size: int = 40) -> list[MetadataRecord]:
    """A log that fits itself: nothing is changed or removed that is not there."""
    model = NaiveModel()
    log: list[MetadataRecord] = []
    fresh = iter(range(1000, 100_000))

    def add(record: MetadataRecord | None) -> None:
        if record is not None:
            model.apply(record)
            log.append(record)

    add(records.FeatureLevelRecord(name="metadata.version", feature_level=30))
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=max_size // 4, max_size=max_size)):
        add(_record(draw, model, kind, uid(next(fresh))))
    return log


def _record(draw: st.DrawFn, model: NaiveModel, kind: str, fresh: Uuid) -> MetadataRecord | None:
    number = draw(st.integers(0, 3))
    match kind:
        case "feature":
            name = draw(st.sampled_from(["group.version", "share.version", "kraft.version"]))
            return records.FeatureLevelRecord(name=name, feature_level=number)
        case "register":
            names = draw(st.lists(st.sampled_from(["PLAINTEXT", "SSL"]), unique=True))
            return records.RegisterBrokerRecord(
                broker_id=draw(BROKER_IDS),
                broker_epoch=number,
                incarnation_id=fresh,
                end_points=[records.BrokerEndpoint(name=name, host=f"h{number}", port=9092 + number) for name in names],
                features=[records.BrokerFeature(name="f", min_supported_version=0, max_supported_version=number)],
                rack=draw(st.none() | st.just("r1")),
                fenced=draw(st.booleans()),
                in_controlled_shutdown=draw(st.booleans()),
                is_migrating_zk_broker=draw(st.booleans()),
                log_dirs=draw(st.lists(DIRECTORIES, max_size=2, unique=True)),
                cordoned_log_dirs=draw(st.none() | st.lists(DIRECTORIES, max_size=2, unique=True)),
            )
        case "controller":
            return records.RegisterControllerRecord(
                controller_id=number,
                incarnation_id=fresh,
                zk_migration_ready=draw(st.booleans()),
                end_points=[records.ControllerEndpoint(name="CONTROLLER", host="c", port=9093)],
                features=[records.ControllerFeature(name="f", min_supported_version=1, max_supported_version=2)],
            )
        case "topic":
            name = draw(NAMES)
            # An id belongs to one name for ever, in other logs, too; but a name has had several ids.
            topic_id = uid(10 * (1 + TOPICS.index(name)) + number)
            if name in model.topic_ids() or topic_id in model.used_ids:
                return None
            return records.TopicRecord(name=name, topic_id=topic_id)
        case "config":
            return records.ConfigRecord(
                resource_type=draw(st.sampled_from([2, 4])),
                resource_name=draw(NAMES | st.just("")),
                name=draw(st.sampled_from(["retention.ms", "cleanup.policy"])),
                value=draw(st.none() | st.sampled_from(["", "1", "2"])),
            )
        case "quota":
            parts = [records.EntityData(entity_type=k, entity_name=v) for k, v in draw(ENTITIES).items()]
            return records.ClientQuotaRecord(
                entity=draw(st.permutations(parts)),
                key=draw(st.sampled_from(["producer_byte_rate", "request_percentage"])),
                value=float(number),
                remove=draw(st.booleans()),
            )
        case "producer_ids":
            return records.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000 * number)
        case "acl":
            return records.AccessControlEntryRecord(
                id=fresh,
                resource_type=2,
                resource_name=draw(NAMES),
                pattern_type=3,
                principal="User:ann",
                host="*",
                operation=number + 2,
                permission_type=3,
            )
        case "scram":
            return records.UserScramCredentialRecord(
                name=draw(NAMES), mechanism=1 + number % 2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
            )
        case "remove_scram":
            return records.RemoveUserScramCredentialRecord(name=draw(NAMES), mechanism=1 + number % 2)
        case "token":
            return records.DelegationTokenRecord(
                owner="User:ann",
                requester="User:bob",
                renewers=[f"User:{name}" for name in draw(st.lists(NAMES, max_size=2))],
                issue_timestamp=number,
                max_timestamp=number + 10,
                expiration_timestamp=number + 5,
                token_id=draw(NAMES),
            )
        case "remove_token":
            return records.RemoveDelegationTokenRecord(token_id=draw(NAMES))
        case "no_op":
            return records.NoOpRecord()
        case "zk":
            return records.ZkMigrationStateRecord(zk_migration_state=number)
        case _:
            return _record_about_something(draw, model, kind, number)


def _record_about_something(draw: st.DrawFn, model: NaiveModel, kind: str, number: int) -> MetadataRecord | None:
    """Records that need something to be there; none if it is not."""
    if kind == "unregister":
        return records.UnregisterBrokerRecord(broker_id=number, broker_epoch=0)
    if kind == "remove_acl":
        return records.RemoveAccessControlEntryRecord(id=draw(st.sampled_from([*model.acls]))) if model.acls else None
    if kind in {"fence", "unfence", "change_broker"}:
        if not model.brokers:
            return None
        broker_id = draw(st.sampled_from([*model.brokers]))
        epoch = model.brokers[broker_id]["epoch"]
        if kind == "fence":
            return records.FenceBrokerRecord(id=broker_id, epoch=epoch)
        if kind == "unfence":
            return records.UnfenceBrokerRecord(id=broker_id, epoch=epoch)
        return records.BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            fenced=draw(st.integers(-1, 1)),
            in_controlled_shutdown=draw(st.integers(0, 1)),
            log_dirs=draw(st.lists(DIRECTORIES, max_size=2, unique=True)),
            cordoned_log_dirs=draw(st.none() | st.lists(DIRECTORIES, max_size=2, unique=True)),
        )
    if not model.topics:
        return None
    topic_id = draw(st.sampled_from([*model.topics]))
    topic = model.topics[topic_id]
    if kind == "remove_topic":
        return records.RemoveTopicRecord(topic_id=topic_id)
    if kind == "clear_elr":
        return records.ClearElrRecord(topic_name=draw(st.sampled_from(["", topic["name"]])))
    replicas = draw(st.lists(BROKER_IDS, min_size=1, max_size=3, unique=True))
    directories = draw(st.just([]) | st.lists(DIRECTORIES, min_size=len(replicas), max_size=len(replicas)))
    if kind == "partition":
        if number in topic["partitions"]:
            return None
        return records.PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            directories=directories,
            leader=draw(st.sampled_from([-1, *replicas])),
            leader_recovery_state=draw(st.integers(0, 1)),
            leader_epoch=draw(st.integers(0, 2)),
            partition_epoch=draw(st.integers(0, 2)),
            isr=draw(BROKER_LIST),
            removing_replicas=draw(BROKER_LIST),
            adding_replicas=draw(BROKER_LIST),
            eligible_leader_replicas=draw(st.none() | BROKER_LIST),
            last_known_elr=draw(st.none() | BROKER_LIST),
        )
    assert kind == "change_partition", kind
    if not topic["partitions"]:
        return None
    record = records.PartitionChangeRecord(
        partition_id=draw(st.sampled_from([*topic["partitions"]])),
        topic_id=topic_id,
        leader=draw(st.sampled_from([-2, -2, -1, *replicas])),
        leader_recovery_state=draw(st.integers(-1, 1)),
    )
    for field in OPTIONAL:
        setattr(record, field, draw(st.none() | BROKER_LIST))
    if draw(st.booleans()):
        record.replicas, record.directories = replicas, directories
    return record
