"""Parses ``sasl.jaas.config``: a login module and its options.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";

Java reads the same syntax with its StreamTokenizer. Words consist of letters, digits and ``-_$.``; values with other
characters are quoted, with Java's escapes in them. ``//`` and ``/* */`` are comments. Kafka allows one entry per
listener and mechanism. An error names the option or the position, never a value, which may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.common.dataclass import dataclass, field
from barnabas.common.errors import InvalidConfigurationError

PLAIN_LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS_LOGIN_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": OAUTHBEARER_LOGIN_MODULE,
    "GSSAPI": KERBEROS_LOGIN_MODULE,
}
"""The login module of each mechanism."""
CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
MAX_LENGTH: Final = 1 << 20

_TOKEN: Final = re.compile(
    r"""\s+ | //[^\r\n]* | /\*.*?\*/
      | (?P<word>(?:[A-Za-z0-9_.$\-]|[^\x00-\x7f])+)
      | "(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"
      | '(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
      | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module with its options. The values of options are secrets."""

    login_module: str
    control_flag: str
    options: Mapping[str, str] = field(repr=False)

    def required(self, option: str) -> str:
        """Returns the value of an option that must be there."""
        value = self.options.get(option)
        if not value:
            raise InvalidConfigurationError(f"sasl.jaas.config: {self.login_module} needs the option {option}")
        return value


class _Token(NamedTuple):
    kind: str
    """word, string, or the mark itself."""
    text: str
    position: int


def parse_jaas(text: str) -> JaasEntry:
    """Parses a configuration with one entry; raises `InvalidConfigurationError`."""
    if len(text) > MAX_LENGTH:
        raise InvalidConfigurationError(f"sasl.jaas.config is too long: {len(text)} characters")
    entries = list(_entries(_tokens(text)))
    if len(entries) != 1:
        raise InvalidConfigurationError(f"sasl.jaas.config must have one login module: it has {len(entries)}")
    return entries[0]


def jaas_for(mechanism: str, text: str) -> JaasEntry:
    """Parses a configuration and checks that its login module is the mechanism's, if it is one of Kafka's."""
    entry = parse_jaas(text)
    expected = LOGIN_MODULES.get(mechanism)
    if expected is not None and entry.login_module != expected:
        raise InvalidConfigurationError(
            f"sasl.jaas.config: the login module of {mechanism} is {expected}, not {entry.login_module}"
        )
    return entry


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            what = "unterminated quotes" if text[position] in "\"'" else "unexpected character"
            raise InvalidConfigurationError(f"sasl.jaas.config: {what} at position {position}")
        kind = found.lastgroup
        if kind == "word":
            yield _Token("word", found[0], position)
        elif kind == "mark":
            yield _Token(found[0], found[0], position)
        elif kind is not None:
            yield _Token("string", _ESCAPE.sub(_unescaped, found[kind]), position)
        position = found.end()


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)


def _entries(tokens: Iterator[_Token]) -> Iterator[JaasEntry]:
    for token in tokens:
        if token.kind != "word":
            raise InvalidConfigurationError(
                f"sasl.jaas.config: expected the class of a login module at position {token.position}"
            )
        flag = next(tokens, None)
        if flag is None or flag.kind != "word" or flag.text.lower() not in CONTROL_FLAGS:
            raise InvalidConfigurationError(
                f"sasl.jaas.config: the login module at position {token.position} must be followed by one of "
                f"{', '.join(sorted(CONTROL_FLAGS))}"
            )
        yield JaasEntry(token.text, flag.text.lower(), dict(_options(tokens)))


def _options(tokens: Iterator[_Token]) -> Iterator[tuple[str, str]]:
    """Yields the options of an entry, up to its semicolon."""
    for key in tokens:
        if key.kind == ";":
            return
        if key.kind == "=":
            raise InvalidConfigurationError(f"sasl.jaas.config: an option has no name at position {key.position}")
        equals = next(tokens, None)
        if equals is None or equals.kind != "=":
            # Perhaps the rest of a password without quotes, so it is not shown.
            raise InvalidConfigurationError(f"sasl.jaas.config: expected name=value at position {key.position}")
        value = next(tokens, None)
        if value is None or value.kind not in {"word", "string"}:
            raise InvalidConfigurationError(f"sasl.jaas.config: option {key.text} has no value")
        yield key.text, value.text
    raise InvalidConfigurationError("sasl.jaas.config must end with a semicolon")
