from collections.abc import Callable
from typing import Any

from barnabas.protocol.message import Decoder, Encoder, Struct

class RequestEncoder:
    def __init__(
        self, request: type[Struct], topic: type[Struct], partition: type[Struct], version: int, otherwise: Encoder
    ) -> None: ...
    def __call__(self, message: Any, append: Callable[[Any], None]) -> None: ...

class ResponseDecoder:
    def __init__(
        self, response: type[Struct], topic: type[Struct], partition: type[Struct], version: int, otherwise: Decoder
    ) -> None: ...
    def __call__(self, buffer: Any, start: int, end: int) -> tuple[Any, int]: ...
