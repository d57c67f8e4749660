from barnabas.log.file_handle import Buffer
from barnabas.replica.partition import Partition

def append_next(partition: Partition, records: Buffer) -> tuple[int, int, int, bool] | None: ...
