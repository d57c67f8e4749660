from typing import Any

from barnabas.protocol.headers import ParsedHeader

def read_common_header(buffer: Any, apis: dict[int, Any], header_type: type, new_tuple: Any) -> ParsedHeader | None: ...
