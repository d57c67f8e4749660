"""The settings of transactions and idempotent producers."""

from __future__ import annotations

from typing import Final

from barnabas.broker.config.terms import (
    BOOLEAN,
    HIGH,
    INT,
    LOW,
    SHORT,
    at_least,
)
from barnabas.common.config_def import ConfigDef

TRANSACTION_CONFIG_DEF: Final = ConfigDef()
_define: Final = TRANSACTION_CONFIG_DEF.define

# fmt: off

# Producers.
_define("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW,
    "How long the state of an idle producer ID is kept.")
_define("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW,
    "How often partitions look for expired producer IDs.", internal=True)
_define("transaction.partition.verification.enable", BOOLEAN, True, None, LOW,
    "Whether the leader verifies with the transaction coordinator that a partition is part of the transaction before "
    "it appends.")
_define("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH,
    "How long to wait before the verification of a partition is retried.")
_define("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH,
    "How long the verification of a partition is retried at most.")

# The transaction coordinator.
_define("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH,
    "The maximum transaction timeout that a producer may request.")
_define("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH,
    "How long a transactional ID is kept after its last transaction.")
_define("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW,
    "Whether producers may use two-phase commit. Such transactions have no timeout, because an external system "
    "decides them.")
_define("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW,
    "How often the coordinator looks for timed-out transactions to abort.")
_define("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW,
    "How often the coordinator looks for expired transactional IDs to remove.")

# The transactions topic.
_define("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH,
    "The number of partitions of the transactions topic. Do not change it later.")
_define("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH,
    "The replication factor of the transactions topic. The topic is created once there are that many brokers.")
_define("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, "min.insync.replicas of the transactions topic.")
_define("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "segment.bytes of the transactions topic.")
_define("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of the transactions topic are read at once while a partition of it is loaded.")

# fmt: on
