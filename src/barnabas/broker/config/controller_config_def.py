"""The settings of a controller; those of its log are in `barnabas.raft.config`."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    HIGH,
    LONG,
    MEDIUM,
    at_least,
)
from barnabas.common.config_def import ConfigDef

CONTROLLER_CONFIG_DEF: Final = ConfigDef()
_define: Final = CONTROLLER_CONFIG_DEF.define

# fmt: off

# Leaders.
_define("auto.leader.rebalance.enable", BOOLEAN, True, None, HIGH,
    "Whether leadership goes back to the preferred replica by itself.")
_define("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH,
    "How often the controller looks for leaders that are not the preferred ones.")
_define("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
    "How often the controller looks for partitions that only an unclean election can bring back.", internal=True)

# Watching it.
_define("controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM,
    "How often the controller logs how long its events took.", internal=True)
_define("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM,
    "An event that takes that long is logged at once.", internal=True)

# fmt: on
