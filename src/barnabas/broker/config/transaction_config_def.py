"""The settings about transactions and idempotent producers."""

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
_define("producer.id.expiration.ms", INT, 86_400_000, at_least(1), LOW, "How long an idle producer is remembered.")
_define("producer.id.expiration.check.interval.ms", INT, 600_000, at_least(1), LOW,
    "How often to look for producers to forget.", internal=True)
_define("transaction.partition.verification.enable", BOOLEAN, True, None, LOW,
    "Whether a leader asks the coordinator if a partition is part of a transaction before it takes records for it.")
_define("add.partitions.to.txn.retry.backoff.ms", INT, 20, at_least(1), HIGH,
    "How long to wait before that question is repeated.")
_define("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, at_least(0), HIGH,
    "How long that question is repeated at most.")

# The transaction coordinator.
_define("transaction.max.timeout.ms", INT, 900_000, at_least(1), HIGH,
    "The longest timeout that a transactional producer may ask for.")
_define("transactional.id.expiration.ms", INT, 604_800_000, at_least(1), HIGH,
    "How long a transactional id is remembered after its last transaction.")
_define("transaction.two.phase.commit.enable", BOOLEAN, False, None, LOW,
    "Whether producers may take part in transactions of another system, which have no timeout.")
_define("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, at_least(1), LOW,
    "How often to look for transactions to abort because their time is over.")
_define("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, at_least(1), LOW,
    "How often to look for transactional ids to forget.")

# Its topic.
_define("transaction.state.log.num.partitions", INT, 50, at_least(1), HIGH,
    "Partitions of the transactions topic. Not to be changed later.")
_define("transaction.state.log.replication.factor", SHORT, 3, at_least(1), HIGH,
    "Replicas of the transactions topic. It is not made before there are as many brokers.")
_define("transaction.state.log.min.isr", INT, 2, at_least(1), HIGH, "min.insync.replicas of the transactions topic.")
_define("transaction.state.log.segment.bytes", INT, 104_857_600, at_least(1), HIGH,
    "Segments of the transactions topic.")
_define("transaction.state.log.load.buffer.size", INT, 5_242_880, at_least(1), HIGH,
    "How many bytes of the transactions topic are read at once when it is loaded.")

# fmt: on
