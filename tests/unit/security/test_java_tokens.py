"""HMACs and SCRAM credentials of delegation tokens, as Kafka's own classes compute them."""

from __future__ import annotations

import base64
import os
import random
import shutil
import string
import subprocess
from pathlib import Path

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.config_def import Password
from barnabas.common.identifiers import random_uuid
from barnabas.metadata.delegation_tokens import DelegationToken
from barnabas.security.tokens import DelegationTokenCache, token_hmac
from oracles.kafka_server import JARS

pytestmark = [pytest.mark.java, pytest.mark.mechanism("A08")]

PROGRAM = Path(__file__).with_name("TokenJudge.java")
ALPHABET = string.ascii_letters + string.digits + " éß漢\U0001f511=,"


def test_hmac_and_credentials() -> None:
    if shutil.which("javac") is None or not any(JARS.glob("kafka-server-common-*.jar")):
        reason = "no javac on the PATH, or no Kafka server in target/server-jars (make jars)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    chance = random.Random(48)
    script, ours = [], []
    for _ in range(20):
        key = Password("".join(chance.choices(ALPHABET, k=chance.randint(1, 80))))
        token = DelegationToken(str(random_uuid()), "User:alice", "User:alice", (), 0, 1, 1)
        cache = DelegationTokenCache(key, {token.token_id: token}.copy, MockClock(0))
        cache.update({token.token_id: token})
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            found = cache.credential(mechanism, token.token_id)
            assert found is not None
            credential = found.credential
            words = (key.value, token.token_id, mechanism, _base64(credential.salt), str(credential.iterations))
            script.append("\t".join(words))
            secret = token_hmac(key, token.token_id)
            ours.append("\t".join(map(_base64, (secret, credential.stored_key, credential.server_key))))
    done = subprocess.run(
        ["java", "-Xmx256m", "-Dfile.encoding=UTF-8", "-cp", f"{JARS}{os.sep}*", str(PROGRAM)],
        input="\n".join(script) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ours


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
