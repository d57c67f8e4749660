"""The settings of quotas."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    CLASS,
    INT,
    LOW,
    at_least,
)
from barnabas.common.config_def import ConfigDef

QUOTA_CONFIG_DEF: Final = ConfigDef()
_define: Final = QUOTA_CONFIG_DEF.define

# fmt: off

_define("quota.window.num", INT, 11, at_least(1), LOW, "The number of sample windows for client quotas.")
_define("quota.window.size.seconds", INT, 1, at_least(1), LOW, "The length of a sample window for client quotas.")
_define("controller.quota.window.num", INT, 11, at_least(1), LOW,
    "The number of sample windows for the controller mutation quota.")
_define("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW,
    "The length of a sample window for the controller mutation quota.")
_define("replication.quota.window.num", INT, 11, at_least(1), LOW,
    "The number of sample windows for the replication quota.")
_define("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
    "The length of a sample window for the replication quota.")
_define("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
    "The number of sample windows for the quota on moves between log directories.")
_define("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
    "The length of a sample window for the quota on moves between log directories.")
_define("client.quota.callback.class", CLASS, None, None, LOW, "The class that determines the quota of a client.")

# fmt: on
