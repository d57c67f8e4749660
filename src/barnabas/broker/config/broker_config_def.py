"""All settings of ``server.properties``, with Kafka's names and defaults.

Each part defines its own settings; this module combines them. Defaults that differ from Kafka's:

``log.dir``
    Kafka's default is below the directory for temporary files, which is emptied at every boot. There is no default
    here: the user must say where the data goes.
``num.network.threads``
    One under the interpreter's global lock, three without it, as in Kafka (see `barnabas.server.data_plane`).
``metric.reporters``, ``principal.builder.class`` and a few more
    Kafka's are Java classes.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.barnabas_config_def import BARNABAS_CONFIG_DEF
from barnabas.broker.config.controller_config_def import CONTROLLER_CONFIG_DEF
from barnabas.broker.config.general_config_def import GENERAL_CONFIG_DEF
from barnabas.broker.config.group_coordinator_config_def import GROUP_COORDINATOR_CONFIG_DEF
from barnabas.broker.config.network_config_def import NETWORK_CONFIG_DEF
from barnabas.broker.config.quota_config_def import QUOTA_CONFIG_DEF
from barnabas.broker.config.remote_log_config_def import REMOTE_LOG_CONFIG_DEF
from barnabas.broker.config.replication_config_def import REPLICATION_CONFIG_DEF
from barnabas.broker.config.security_config_def import SECURITY_CONFIG_DEF
from barnabas.broker.config.share_group_config_def import SHARE_GROUP_CONFIG_DEF
from barnabas.broker.config.transaction_config_def import TRANSACTION_CONFIG_DEF
from barnabas.common.config_def import ConfigDef
from barnabas.log.config.server_log_config import SERVER_LOG_CONFIG_DEF
from barnabas.raft.config import RAFT_CONFIG_DEF

BROKER_CONFIG_DEF: Final = ConfigDef(
    GENERAL_CONFIG_DEF,
    NETWORK_CONFIG_DEF,
    CONTROLLER_CONFIG_DEF,
    RAFT_CONFIG_DEF,
    SERVER_LOG_CONFIG_DEF,
    REPLICATION_CONFIG_DEF,
    GROUP_COORDINATOR_CONFIG_DEF,
    SHARE_GROUP_CONFIG_DEF,
    TRANSACTION_CONFIG_DEF,
    QUOTA_CONFIG_DEF,
    SECURITY_CONFIG_DEF,
    REMOTE_LOG_CONFIG_DEF,
    BARNABAS_CONFIG_DEF,
)
