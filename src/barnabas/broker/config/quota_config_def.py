"""How quotas are measured, and who decides about them."""

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

_define("quota.window.num", INT, 11, at_least(1), LOW, "How many windows the rates of client quotas are taken over.")
_define("quota.window.size.seconds", INT, 1, at_least(1), LOW, "How long such a window is.")
_define("controller.quota.window.num", INT, 11, at_least(1), LOW,
    "How many windows the rate of changes to the cluster is taken over.")
_define("controller.quota.window.size.seconds", INT, 1, at_least(1), LOW, "How long such a window is.")
_define("replication.quota.window.num", INT, 11, at_least(1), LOW,
    "How many windows the rate of throttled replication is taken over.")
_define("replication.quota.window.size.seconds", INT, 1, at_least(1), LOW, "How long such a window is.")
_define("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1), LOW,
    "How many windows the rate of moves between log directories is taken over.")
_define("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1), LOW,
    "How long such a window is.")
_define("client.quota.callback.class", CLASS, None, None, LOW, "A class that decides which quota a client has.")

# fmt: on
