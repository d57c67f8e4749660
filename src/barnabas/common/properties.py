r"""Java's ``.properties`` files: ``server.properties``, ``meta.properties``, the files of command line tools.

The format has more rules than ``key=value``:

* A key ends at the first ``=``, ``:`` or blank that is not escaped; blanks around the separator are ignored. ``a=b``,
  ``a : b`` and ``a b`` are equal. Blanks at the end of a value are significant.
* A line that begins with ``#`` or ``!`` is a comment. A ``#`` elsewhere is part of the value.
* A backslash at the end of a line joins the next one, without its leading blanks. An even number of backslashes is a
  number of escaped ones and joins nothing; a comment is never continued.
* ``\t \n \r \f`` and ``\u00e9`` are escapes, so ``C:\temp`` contains a tab; a backslash before anything else is
  dropped.
* The bytes are ISO 8859-1. Other characters are written with ``\u``, those beyond 16 bits with two of them.
* The last value of a duplicate key wins.

Values are not interpreted here: all of them are strings (see `barnabas.common.config_def`).

>>> parse_properties("listeners = PLAINTEXT://:9092\n# data\nlog.dirs=/a,\\\n   /b")
{'listeners': 'PLAINTEXT://:9092', 'log.dirs': '/a,/b'}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from barnabas.common.errors import InvalidConfigurationError

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES: Final = {character: f"\\{name}" for name, character in _NAMED.items()}


class PropertiesError(InvalidConfigurationError):
    """The text is not in the format of Java's properties files."""


def load_properties(path: Path) -> dict[str, str]:
    """Reads the settings of a file in order. Raises `OSError` if it cannot be opened."""
    try:
        return parse_properties(path.read_bytes().decode("iso-8859-1"))
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Parses the settings of a text in order; `PropertiesError` names the line of an invalid escape."""
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _split(line)
        properties[_unescaped(line[:key_end], number)] = _unescaped(line[value_start:], number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines with their continuations and line numbers, without comments and empty lines."""
    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()  # the text after the last line end is not a line
    logical, start = "", 0
    joined = False
    for number, line in enumerate(lines, 1):
        piece = line.lstrip(_BLANKS)
        if not logical:
            start = start if joined else number
            # Java checks the length of the logical line, not whether one has begun: so after a line with only a
            # backslash, the next one can still be a comment.
            if not piece or piece[0] in "#!":
                joined = False
                continue
        joined = (len(piece) - len(piece.rstrip("\\"))) % 2 == 1
        logical += piece[:-1] if joined else piece
        if not joined:
            yield start, logical
            logical = ""
    if joined or logical:
        yield start, logical


def _split(line: str) -> tuple[int, int]:
    """Returns the end of the key and the start of the value."""
    key_end, size = 0, len(line)
    guarded = separated = False
    while key_end < size:
        character = line[key_end]
        if not guarded and (character in "=:" or character in _BLANKS):
            break
        guarded = character == "\\" and not guarded
        key_end += 1
    value_start = key_end
    while value_start < size:
        character = line[value_start]
        if character in "=:" and not separated:
            separated = True
        elif character not in _BLANKS:
            break
        value_start += 1
    return key_end, value_start


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escape: str = match[1]
        if escape[0] != "u":
            return _NAMED.get(escape, escape)
        if len(escape) != 5:
            raise PropertiesError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return chr(int(escape[1:], 16))

    result = _ESCAPE.sub(character, text)
    try:
        # Two escapes may form one character beyond 16 bits.
        return result.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PropertiesError(f"line {line}: a \\u escape of a surrogate pair is incomplete") from None


def format_properties(properties: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """Formats settings so that `parse_properties`, and Java, read the same settings. The text is ASCII."""
    lines = [f"# {_ascii(line)}" for comment in comments for line in _LINE_END.split(comment)]
    lines += [f"{_escaped(key, is_key=True)}={_escaped(value, is_key=False)}" for key, value in properties.items()]
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str, *, is_key: bool) -> str:
    parts = []
    for index, character in enumerate(text):
        if character in "\\=:#!" or (character == " " and (is_key or index == 0)):
            parts.append(f"\\{character}")
        else:
            parts.append(_NAMES.get(character) or _ascii(character))
    return "".join(parts)


def _ascii(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04X}" for code in codes)
