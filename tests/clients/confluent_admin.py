"""The names of confluent-kafka's admin module, which does not tell a type checker what it exports."""

from __future__ import annotations

from typing import Any

import confluent_kafka.admin

_ADMIN: Any = confluent_kafka.admin

AdminClient = _ADMIN.AdminClient
AlterConfigOpType = _ADMIN.AlterConfigOpType
ConfigEntry = _ADMIN.ConfigEntry
ConfigResource = _ADMIN.ConfigResource
ConfigSource = _ADMIN.ConfigSource
NewPartitions = _ADMIN.NewPartitions
NewTopic = _ADMIN.NewTopic
OffsetSpec = _ADMIN.OffsetSpec
ResourceType = _ADMIN.ResourceType
