from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.replica.results import LogReadResult

def plain_read(
    partition: Any, request: Any, max_bytes: int, min_one_message: bool, fetch_only_leader: bool
) -> LogReadResult | None: ...
def read_plain(
    fetch_infos: Sequence[tuple[Any, Any]],
    results: list[Any],
    index: int,
    online: Mapping[Any, Any],
    limit_bytes: int,
    min_one_message: bool,
    fetch_only_leader: bool,
) -> tuple[int, int, bool]: ...
