from barnabas.log.leader_epoch_cache import LeaderEpochFileCache
from barnabas.log.local_log import LocalLog
from barnabas.log.producer_states import ProducerStates

def append_plain(
    local_log: LocalLog,
    state: ProducerStates,
    leader_epochs: LeaderEpochFileCache,
    batch: memoryview,
    leader_epoch: int,
) -> tuple[int, int, int] | None: ...
