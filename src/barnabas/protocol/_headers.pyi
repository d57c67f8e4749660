from collections.abc import Callable
from typing import Any

from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.message import Buffer

def header_parser(
    apis: dict[int, Any], header_type: type, otherwise: Callable[[Buffer], ParsedHeader]
) -> Callable[[Buffer], ParsedHeader]: ...
