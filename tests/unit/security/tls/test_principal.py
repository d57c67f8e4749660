"""The principal of a certificate: mapping rules as Kafka reads them, and the authenticator of a TLS listener."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.config_def import ConfigError
from barnabas.common.errors import SslAuthenticationError
from barnabas.security.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.tls.principal import (
    CertificatePrincipalBuilder,
    NoMatchingRuleError,
    SslPrincipalMapper,
    TlsAuthenticator,
)
from oracles.line_program import LineProgram
from tls_fixtures import PKI
from unit.security.tls.java_tls import java

__all__ = ["java"]

pytestmark = pytest.mark.mechanism("A03")

NAMES = [
    "CN=Duke, OU=ServiceUsers, O=Org, C=US",
    "CN=duke,OU=JavaSoft,O=Sun Microsystems",
    "CN=JavaUser,OU=JavaSoft,O=Sun",
    "OU=JavaSoft,O=Sun,CN=a/b",
    "1.2.840.113549.1.9.1=#1603616c69,CN=alice",
    "",
    "CN=Ünal",
]
RULES = [
    "DEFAULT",
    "",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?), OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?), *OU=(.*?), *O=(.*?), *C=(.*?)$/$1@$2/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2@$3@$4/U",
    "RULE:^.*CN=([^,]*).*$/$1$12$0/, DEFAULT",
    "RULE:^.*$/no groups/L",
    "RULE:.*/x/",
    "RULE:.+/x/",
    r"RULE:^.*CN=a\/b$/slash\/inside/",
    r"RULE:^CN=(?<who>[^,]*),.*$/${who}/",
    "  RULE:^CN=duke.*$/duke/ ,  RULE:^CN=Java.*$/java/U  ,DEFAULT  ",
    "DEFAULT, RULE:^.*$/never/",
    "RULE:^CN=nobody$/x/",
    r"RULE:^CN=(.*?),.*$/\$1 costs \\/",
    "RULE:^CN=(.*?),.*$/$1/Lower",
    "RULE:a|.*/b/",
    # broken ones
    "deny",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$",
    "DEFAULT/L",
    "RULE:/$1/",
    "RULE:^CN=(.*$/$1/",
    "RULE:.*/$1/",
    "RULE:(.*)/${nobody}/",
    "RULE:(.*)/$/",
    "RULE:^CN=(.*?),(.*)$/$1/LU",
    "RULE:^CN=(.*?),(.*)$/$1/L U",
]


def ours(rules: str, name: str) -> str | None:
    try:
        return SslPrincipalMapper(rules).name(name)
    except (ConfigError, NoMatchingRuleError):
        return None


@pytest.mark.java
@pytest.mark.parametrize("rules", RULES)
def test_rules_map_as_kafka_maps_them(java: LineProgram, rules: str) -> None:
    for name in NAMES:
        answer = java.ask({"op": "map", "rules": rules, "name": name})
        mapped = ours(rules, name)
        # A wrong reference fails there when it is first used, here at once.
        assert mapped == answer.get("result"), (name, answer)


@pytest.mark.java
@given(
    rules=st.lists(
        st.sampled_from(
            [
                "RULE:",
                "DEFAULT",
                "CN=",
                "(.*)",
                "[^,]*",
                "/",
                "$1",
                "$2",
                "\\/",
                ",",
                " ",
                "L",
                "U",
                "x",
                "O=",
                "^",
                "$",
            ]
        ),
        max_size=12,
    ).map("".join)
)
def test_rules_of_any_shape(java: LineProgram, rules: str) -> None:
    for name in NAMES[:2]:
        answer = java.ask({"op": "map", "rules": rules, "name": name})
        assert ours(rules, name) == answer.get("result"), (rules, name, answer)


def test_errors_name_the_rule() -> None:
    with pytest.raises(ConfigError, match=r"Invalid rule: `RULE:\^CN=\(x/\$1/`") as raised:
        SslPrincipalMapper("RULE:^CN=(x/$1/")
    assert raised.value.name == "ssl.principal.mapping.rules"
    with pytest.raises(NoMatchingRuleError, match=r"No rules apply to CN=b, rules \[RULE:a/b/L, RULE:c/d\]"):
        SslPrincipalMapper("RULE:a/b/L,RULE:c/d/").name("CN=b")


def test_a_certificate_becomes_a_user() -> None:
    assert CertificatePrincipalBuilder()(PKI.client.der) == KafkaPrincipal("User", "CN=alice,OU=Messengers,O=Castle")
    assert CertificatePrincipalBuilder("RULE:^CN=(.*?),.*$/$1/U")(PKI.client.der) == KafkaPrincipal("User", "ALICE")
    assert CertificatePrincipalBuilder("RULE:x/y/")(None) == ANONYMOUS, "no certificate, no rule"


def channel(certificate: bytes | None) -> Any:
    return SimpleNamespace(transport=SimpleNamespace(peer_certificate=certificate))


def test_the_authenticator_takes_the_certificate() -> None:
    authenticator = TlsAuthenticator(CertificatePrincipalBuilder())
    authenticator.authenticate(channel(PKI.client.der))
    assert authenticator.complete
    assert authenticator.principal == KafkaPrincipal("User", "CN=alice,OU=Messengers,O=Castle")
    anonymous = TlsAuthenticator(CertificatePrincipalBuilder())
    anonymous.authenticate(channel(None))
    assert anonymous.principal == ANONYMOUS


@pytest.mark.parametrize("certificate", [PKI.client.der, b"none"], ids=["no rule", "no certificate"])
def test_what_has_no_principal_is_not_authenticated(certificate: bytes) -> None:
    authenticator = TlsAuthenticator(CertificatePrincipalBuilder("RULE:^CN=bob$/bob/"))
    with pytest.raises(SslAuthenticationError, match="Failed to build the principal"):
        authenticator.authenticate(channel(certificate))
    assert not authenticator.complete
    assert authenticator.principal is None
