"""The principal of a TLS client: the distinguished name of its certificate, mapped by rules.

``ssl.principal.mapping.rules`` is a list of rules, of which the first that matches the whole name decides::

    RULE:^CN=(.*?),OU=Messengers.*$/$1/L,  DEFAULT

    CN=Barnabas,OU=Messengers,O=Castle     ->  User:barnabas
    CN=Klamm,OU=Officials,O=Castle         ->  User:CN=Klamm,OU=Officials,O=Castle

A rule has a pattern, a replacement with ``$1`` for groups, and ``L`` or ``U`` for lower or upper case; a slash in it is
escaped by a backslash. Patterns are Java's in Kafka and Python's here; they come from the administrator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from barnabas.common.config_def import ConfigError
from barnabas.common.errors import SslAuthenticationError
from barnabas.network.reactor.channel import KafkaChannel
from barnabas.security.principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from barnabas.security.tls.certificate import DerError, read_certificate

SETTING: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_JAVA_NAMED_GROUP: Final = re.compile(r"\(\?<(?![=!])")

PrincipalBuilder = Callable[[bytes | None], KafkaPrincipal]
"""Takes the client's certificate in DER, or None if it has sent none."""


class NoMatchingRuleError(ValueError):
    """No rule matches a distinguished name."""


class MappingRule:
    """One rule."""

    __slots__ = ("_case", "_pattern", "_replacement", "text")

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        try:
            self._pattern = re.compile(_JAVA_NAMED_GROUP.sub("(?P<", pattern))
            self._replacement = _parse_replacement(replacement, self._pattern)
        except (re.error, ValueError) as error:
            raise ConfigError(f"Invalid rule: `RULE:{pattern}/{replacement}/{case}`: {error}", name=SETTING) from None
        self._case = case
        self.text = f"RULE:{pattern}/{replacement}" + (f"/{case}" if case else "")

    def apply(self, name: str) -> str | None:
        """Returns the mapped name; None if the rule does not match."""
        if self._pattern.fullmatch(name) is None:
            return None
        # As in Kafka, the pattern is then searched again: one that can also match an empty end replaces that, too.
        mapped = self._pattern.sub(self._replace, name)
        return mapped.lower() if self._case == "L" else mapped.upper() if self._case == "U" else mapped

    def _replace(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part[0]] or "" for part in self._replacement)


def _parse_replacement(text: str, pattern: re.Pattern[str]) -> list[str | tuple[int | str]]:
    """Splits Java's form of a replacement into literal text and references to groups.

    ``\\x`` is the letter x, ``$12`` group 12, or group 1 and a 2 if there are fewer groups; ``${name}`` a named group.
    A reference to a group that does not exist is literal text, unless the pattern has no groups at all.
    """
    parts: list[str | tuple[int | str]] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\\":
            if at == len(text):
                raise ValueError("character to be escaped is missing")
            parts.append(text[at])
            at += 1
        elif letter != "$":
            parts.append(letter)
        elif named := re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}").match(text, at):
            if named[1] not in pattern.groupindex:
                raise ValueError(f"no group with name {{{named[1]}}}")
            parts.append((named[1],))
            at = named.end()
        elif digits := re.compile(r"[0-9]+").match(text, at):
            number = digits[0]
            while len(number) > 1 and int(number) > pattern.groups:
                number = number[:-1]
            if int(number) <= pattern.groups:
                parts.append((int(number),))
            elif pattern.groups:
                parts.append("$" + number)
            else:
                raise ValueError(f"no group {number}")
            at += len(number)
        else:
            raise ValueError("illegal group reference")
    return parts


class SslPrincipalMapper:
    """Maps distinguished names to the names of principals."""

    __slots__ = ("_rules",)

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Raises `ConfigError` for rules that cannot be parsed."""
        self._rules: list[MappingRule | None] = []
        """None stands for DEFAULT."""
        for split in _SPLITTER.finditer(rules.strip()):
            rule = split[1]
            match = _PARSER.match(rule)
            if match is None or match.end() != len(rule):
                rest = rule if match is None else rule[match.end() :]
                raise ConfigError(f"Invalid rule: `{rule}`, unmatched substring: `{rest}`", name=SETTING)
            if match[1] is not None:
                self._rules.append(None)
            elif match[2] is not None:
                self._rules.append(MappingRule(match[2], match[3], match[4]))

    def name(self, distinguished_name: str) -> str:
        """Returns the mapped name; raises `NoMatchingRuleError` if no rule matches."""
        for rule in self._rules:
            mapped = distinguished_name if rule is None else rule.apply(distinguished_name)
            if mapped is not None:
                return mapped
        raise NoMatchingRuleError(f"No rules apply to {distinguished_name}, rules {self}")

    def __repr__(self) -> str:
        return f"[{', '.join('DEFAULT' if rule is None else rule.text for rule in self._rules)}]"


class CertificatePrincipalBuilder:
    """Builds the principal from a certificate, as Kafka's default builder does."""

    __slots__ = ("_mapper",)

    def __init__(self, mapping_rules: str = "DEFAULT") -> None:
        self._mapper = SslPrincipalMapper(mapping_rules)

    def __call__(self, certificate: bytes | None) -> KafkaPrincipal:
        """Raises `NoMatchingRuleError`, or `DerError` for a certificate that cannot be parsed."""
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER_TYPE, self._mapper.name(read_certificate(certificate).subject))


class TlsAuthenticator:
    """Takes the certificate of the TLS handshake for authentication; there is nothing to exchange after it."""

    __slots__ = ("_build", "complete", "principal")

    def __init__(self, build: PrincipalBuilder) -> None:
        self._build = build
        self.complete = False
        self.principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None:
        """Called once the handshake is complete."""
        try:
            self.principal = self._build(channel.transport.peer_certificate)
        except (NoMatchingRuleError, DerError) as error:
            raise SslAuthenticationError(f"Failed to build the principal of a certificate: {error}") from error
        self.complete = True
