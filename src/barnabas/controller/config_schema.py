"""The types of configs that the controller needs, and how the value of a topic config is resolved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.common.config_def import ConfigDef, ConfigKey, Importance, Password, Range, Type, convert_to_string
from barnabas.metadata.configs import ConfigResourceType, ConfigSource

MIN_IN_SYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


class ConfigEntry(NamedTuple):
    """A config with its value and the source of the value."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool


class Synonym(Protocol):
    """A broker config that is the default of a topic config, perhaps in another unit."""

    @property
    def name(self) -> str: ...

    def convert(self, value: str) -> str: ...


class KafkaConfigSchema:
    """Config definitions by resource type, and the broker configs that are the defaults of topic configs.

    The value of a topic config is the first found of: the topic's own; the dynamic config of this node; the dynamic
    cluster-wide broker config; the static config of the node; the default. All but the first are looked up under the
    broker's names for the config (``retention.ms`` is ``log.retention.ms``, ``log.retention.minutes``, ...).
    """

    def __init__(
        self, config_defs: Mapping[int, ConfigDef], topic_synonyms: Mapping[str, Sequence[Synonym]] | None = None
    ) -> None:
        self._keys: dict[int, Mapping[str, ConfigKey]] = {kind: defs.keys for kind, defs in config_defs.items()}
        self._synonyms: Mapping[str, Sequence[Synonym]] = {} if topic_synonyms is None else topic_synonyms

    def is_splittable(self, resource_type: int, name: str) -> bool:
        """Whether the value is a list, which supports APPEND and SUBTRACT.

        The lists of a client metrics subscription do not: Kafka's controller has no definitions of these configs, and
        both controllers should accept the same requests.
        """
        if resource_type == ConfigResourceType.CLIENT_METRICS:
            return False
        key = self._keys.get(resource_type, {}).get(name)
        return key is not None and key.type is Type.LIST

    def is_sensitive(self, resource_type: int, name: str) -> bool:
        """Whether the value must not be shown. An undefined config may be a password, so it is sensitive."""
        key = self._keys.get(resource_type, {}).get(name)
        return key is None or key.type.is_sensitive

    def default(self, resource_type: int, name: str) -> str | None:
        key = self._keys.get(resource_type, {}).get(name)
        return None if key is None or not key.has_default else _text(key.default, key.type)

    def topic_config_names(self, given: Collection[str]) -> Iterable[str]:
        """Returns the configs to report for a topic: internal ones only if they were given."""
        keys = self._keys.get(ConfigResourceType.TOPIC, {}).values()
        return (key.name for key in keys if not key.internal or key.name in given)

    def resolve_topic_config(
        self,
        name: str,
        static: Mapping[str, object],
        cluster: Mapping[str, str],
        node: Mapping[str, str],
        topic: Mapping[str, str],
    ) -> ConfigEntry:
        """Returns the effective value for a topic; KeyError if there is no such topic config."""
        key = self._keys[ConfigResourceType.TOPIC][name]
        sensitive = key.type.is_sensitive
        if name in topic:
            return ConfigEntry(name, topic[name], ConfigSource.TOPIC_CONFIG, sensitive)
        synonyms = self._synonyms.get(name, ())
        places: tuple[tuple[Mapping[str, object], ConfigSource], ...] = (
            (node, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for values, source in places:
            if values:
                for synonym in synonyms:
                    text = _text(values.get(synonym.name), key.type)
                    if text is not None:
                        return ConfigEntry(name, synonym.convert(text), source, sensitive)
        default = _text(key.default, key.type) if key.has_default else None
        return ConfigEntry(name, default, ConfigSource.DEFAULT_CONFIG, sensitive)


def _text(value: object, kind: Type) -> str | None:
    """Returns the actual text, even of a password: redaction happens later."""
    if isinstance(value, str):
        return value
    return value.value if isinstance(value, Password) else convert_to_string(value, kind)


class _SameName(NamedTuple):
    name: str

    def convert(self, value: str) -> str:
        return value


ELECTION_CONFIGS = (
    ConfigDef()
    .define(
        MIN_IN_SYNC_REPLICAS,
        Type.INT,
        1,
        Range.at_least(1),
        Importance.MEDIUM,
        "The minimum number of replicas in the ISR, including the leader, for a write with acks=all to be accepted.",
    )
    .define(
        UNCLEAN_LEADER_ELECTION_ENABLE,
        Type.BOOLEAN,
        False,
        None,
        Importance.MEDIUM,
        "Whether a replica outside the ISR may become leader when no other is available.",
    )
)
"""The two topic configs that the controller itself uses."""

ELECTION_SCHEMA = KafkaConfigSchema(
    {ConfigResourceType.TOPIC: ELECTION_CONFIGS}, {name: (_SameName(name),) for name in ELECTION_CONFIGS.keys}
)
"""A schema of only those two, for uses that need no log configs."""
