"""Where a client of OAUTHBEARER gets its tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from barnabas.clients.common.client_sasl import ClientMechanism, client_mechanism
from barnabas.clients.common.client_security import SECURITY, ClientSecurity
from barnabas.clients.common.security_aliases import with_kafka_names
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import SaslAuthenticationError

pytestmark = pytest.mark.mechanism("A13")

SECRET = "open-sesame"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def jwt(**claims: object) -> str:
    """A token without a signature; nobody checks it here."""
    parts = ({"alg": "none"}, {"sub": "alice", "exp": time.time() + 600, **claims})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts), ""]
    )


def mechanism(**settings: Any) -> ClientMechanism:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return client_mechanism(SECURITY.parse(with_kafka_names({"sasl.mechanism": "OAUTHBEARER", **given})))


def sent(**settings: Any) -> str:
    """What the client sends first."""
    made = mechanism(**settings)
    made.close()
    return made.begin("localhost").initial_response().decode()


def test_a_function() -> None:
    token = jwt()
    assert f"auth=Bearer {token}\x01" in sent(sasl_oauth_token_provider=lambda: token)


def test_a_coroutine_function() -> None:
    token = jwt()

    async def provide() -> str:
        await asyncio.sleep(0)
        return token

    assert token in sent(sasl_oauth_token_provider=provide)

    async def within_a_loop() -> str:
        return sent(sasl_oauth_token_provider=provide)

    assert token in asyncio.run(within_a_loop())


def test_an_object_as_kafka_python_has_it() -> None:
    token = jwt()

    class Provider:
        def token(self) -> str:
            return token

    assert token in sent(sasl_oauth_token_provider=Provider())


def test_a_token_with_its_expiry_as_librdkafka_has_it() -> None:
    assert "opaque-token" in sent(sasl_oauth_token_provider=lambda: ("opaque-token", time.time() + 100))


def test_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retriever, "value", jwt(jti="of-class"))
    assert Retriever.value in sent(sasl_oauthbearer_jwt_retriever_class=Retriever)


class Retriever:
    value = ""
    """Set by each test: a token that is made when the tests are collected can expire before they run."""

    def token(self) -> str:
        return self.value


def test_a_class_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Retriever, "value", jwt(jti="by-name"))
    assert Retriever.value in sent(sasl_oauthbearer_jwt_retriever_class=f"{__name__}.Retriever")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "to ken"
    path.write_text(jwt(jti="of-file"))
    path.chmod(0o600)
    java = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    found = sent(sasl_oauthbearer_token_endpoint_url=path.as_uri(), sasl_login_callback_handler_class=java)
    assert path.read_text() in found


def test_unsecured_tokens_of_jaas() -> None:
    jaas = f'{MODULE} unsecuredLoginStringClaim_sub="bob" unsecuredLoginExtension_traceId="7";'
    found = sent(sasl_jaas_config=jaas)
    claims = found.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"] == "bob"
    assert "traceId=7" in found


@contextmanager
def token_endpoint(token: str) -> Iterator[tuple[str, list[tuple[str | None, dict[str, list[str]]]]]]:
    """An identity provider: its address, and the requests that it gets."""
    requests: list[tuple[str | None, dict[str, list[str]]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requests.append((self.headers["Authorization"], form))
            body = json.dumps({"access_token": token}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", requests
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("in_jaas", [False, True])
def test_the_client_credentials_grant(in_jaas: bool) -> None:
    credentials = (
        {"sasl_jaas_config": f'{MODULE} clientId="me" clientSecret="{SECRET}" scope="kafka" extension_cluster="c";'}
        if in_jaas
        else {
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": SECRET,
            "sasl_oauthbearer_scope": "kafka",
        }
    )
    with token_endpoint(jwt(jti="issued")) as (url, requests):
        found = sent(sasl_oauthbearer_token_endpoint_url=url, **credentials)
    assert jwt(jti="issued").split(".")[1][:20] in found
    ((authorization, form),) = requests
    assert authorization == "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert ("cluster=c" in found) == in_jaas


def test_the_jwt_bearer_grant(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    from tls_fixtures import new_key

    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    key = tmp_path / "key.pem"
    key.write_bytes(new_key("ec").private_bytes(*form))
    key.chmod(0o600)
    template = tmp_path / "template.json"
    template.write_text('{"header": {"kid": "k1"}, "payload": {"role": "tea", "sub": "somebody"}}')
    with token_endpoint(jwt()) as (url, requests):
        sent(
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_assertion_private_key_file=str(key),
            sasl_oauthbearer_assertion_private_key_passphrase=SECRET,
            sasl_oauthbearer_assertion_algorithm="ES256",
            sasl_oauthbearer_assertion_template_file=str(template),
            sasl_oauthbearer_assertion_claim_sub="alice",
            sasl_oauthbearer_assertion_claim_aud="castle",
        )
    ((_, sent_form),) = requests
    assert sent_form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    header, claims, _ = (sent_form["assertion"][0] + "..").split(".")[:3]
    decoded = [json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (header, claims)]
    assert decoded[0]["kid"] == "k1"
    assert (decoded[1]["sub"], decoded[1]["aud"], decoded[1]["role"]) == ("alice", "castle", "tea")


def test_no_source_of_tokens() -> None:
    with pytest.raises(ConfigError, match=r"OAUTHBEARER needs a source of tokens: set sasl\.oauthbearer\.token"):
        mechanism()
    with pytest.raises(ConfigError, match="must be a function, or an object with a method token: int"):
        mechanism(sasl_oauth_token_provider=5)
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.assertion\.file or"):
        mechanism(sasl_oauthbearer_token_endpoint_url="https://a", sasl_oauthbearer_assertion_claim_sub="a")
    with pytest.raises(ConfigError, match="needs a client id and a client secret"):
        mechanism(sasl_oauthbearer_token_endpoint_url="https://a")


@pytest.mark.parametrize("result", [None, 5, ("only one",), (5, 6), ("token", "soon")])
def test_what_is_no_token(result: object) -> None:
    with pytest.raises(SaslAuthenticationError, match="must return a token"):
        mechanism(sasl_oauth_token_provider=lambda: result)


def test_a_provider_that_fails() -> None:
    def provide() -> str:
        raise RuntimeError(SECRET)

    with pytest.raises(RuntimeError):
        mechanism(sasl_oauth_token_provider=provide)


def test_the_factory_ends_the_login() -> None:
    before = set(threading.enumerate())
    security = ClientSecurity(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauth.token.provider": jwt,
        }
    )
    factory: Any = security.channel_factory()
    assert len(set(threading.enumerate()) - before) == 1
    assert repr(factory) == "ClientChannelFactory(tls=False, sasl=OAUTHBEARER)"
    factory.close()
    assert set(threading.enumerate()) <= before


def test_a_mechanism_that_cannot_be_made_ends_the_login() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError, match="Extension name 1st is invalid"):
        mechanism(sasl_oauth_token_provider=jwt, sasl_jaas_config=f'{MODULE} extension_1st="x";')
    assert set(threading.enumerate()) <= before
