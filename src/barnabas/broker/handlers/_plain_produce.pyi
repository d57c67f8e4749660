from typing import Any

def plain_produce(
    payload: memoryview, start: int, version: int
) -> tuple[int, int, Any, list[tuple[int, memoryview]]] | None: ...
