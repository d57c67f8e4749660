"""The settings of a controller. The settings of its log are in `barnabas.raft.config`."""

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
    "Whether the controller moves leadership back to the preferred replica automatically.")
_define("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1), HIGH,
    "How often the controller looks for partitions that are not led by their preferred replica.")
_define("unclean.leader.election.interval.ms", LONG, 300_000, at_least(1), MEDIUM,
    "How often the controller looks for partitions that need an unclean leader election.", internal=True)

# Monitoring.
_define("controller.performance.sample.period.ms", LONG, 60_000, at_least(100), MEDIUM,
    "How often the controller logs the time that its events took.", internal=True)
_define("controller.performance.always.log.threshold.ms", LONG, 2000, at_least(0), MEDIUM,
    "The controller logs an event at once if it takes at least this long.", internal=True)

# fmt: on
