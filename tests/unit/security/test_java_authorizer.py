"""The same ACLs and the same questions to Kafka's authorizer and to ours: the same responses.

`AclJudge.java` runs a script on Kafka's own classes. Here the script is made up at random, from so few names that ACLs
and questions meet; ours runs it too.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.security.acl import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    acl,
)
from barnabas.security.authorizer import Action
from barnabas.security.principal import KafkaPrincipal, serialize_principal
from barnabas.security.standard_authorizer import StandardAuthorizer
from oracles.definitions import JARS
from unit.security.contexts import context_of
from unit.security.naive_authorizer import HOSTS, NAMES, OPERATIONS, PRINCIPALS

pytestmark = [pytest.mark.java, pytest.mark.mechanism("R04")]

PROGRAM = Path(__file__).with_name("AclJudge.java")
TYPES = [kind for kind in ResourceType if kind not in {ResourceType.UNKNOWN, ResourceType.ANY}]
CLIENTS = ["User:alice", "User:bob", "User:carol", "Group:alice", "User:root"]
CLIENT_HOSTS = [*HOSTS[:2], "2001:db8::1"]
ACL_HOSTS = [*HOSTS, "2001:db8:0:0:0:0:0:1"]
ASKED_NAMES = [name for name in NAMES if name == "*" or not name.startswith("*")]
"""See `test_where_they_differ` for the others."""


def jars() -> list[Path]:
    """Kafka's authorizer and the client library of its own version, of which there may be a newer one beside it."""
    (metadata,) = JARS.glob("kafka-metadata-*.jar")
    clients = f"kafka-clients-{metadata.stem.rpartition('-')[2]}.jar"
    (found, *_) = JARS.parent.glob(f"*/{clients}")
    return [found, *(jar for jar in sorted(JARS.glob("*.jar")) if not jar.name.startswith("kafka-clients-"))]


def java(script: Sequence[str]) -> list[str]:
    """The responses of AclJudge.java."""
    path = ""
    missing = None
    if shutil.which("java") is None or shutil.which("javac") is None:
        missing = "no java and javac on the PATH"
    try:
        path = os.pathsep.join(map(str, jars()))
    except ValueError:
        missing = "no kafka-metadata, or no kafka-clients of the same version, in the folders of target (make jars)"
    if missing is not None:
        # A CI run must not lose these tests.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, str(PROGRAM)]
    done = subprocess.run(
        command, input="\n".join(script) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def line(*words: object) -> str:
    return "\t".join(map(str, words))


def acl_line(binding: AclBinding) -> str:
    pattern, entry = binding.pattern, binding.entry
    return line(
        "acl",
        pattern.resource_type.name,
        pattern.name,
        pattern.pattern_type.name,
        entry.principal,
        entry.host,
        entry.operation.name,
        entry.permission_type.name,
    )


def random_acl(chance: random.Random) -> AclBinding:
    return acl(
        chance.choice(PRINCIPALS),
        chance.choice(OPERATIONS),
        chance.choice(TYPES[:3]),
        chance.choice(NAMES),
        chance.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        chance.choice((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
        chance.choice(ACL_HOSTS),
    )


def test_decisions() -> None:
    chance = random.Random(20_240_229)
    script: list[str] = []
    ours: list[str] = []
    for _ in range(150):
        acls = list(dict.fromkeys(random_acl(chance) for _ in range(chance.choice((0, 1, 3, 8, 30)))))
        default = chance.random() < 0.5
        authorizer = StandardAuthorizer(acls)
        authorizer.configure({"super.users": "User:root", "allow.everyone.if.no.acl.found": default})
        script += map(acl_line, acls)
        script.append(line("load", "User:root", str(default).lower()))
        for _ in range(60):
            principal, host = chance.choice(CLIENTS), chance.choice(CLIENT_HOSTS)
            operation, kind, name = chance.choice(OPERATIONS), chance.choice(TYPES[:3]), chance.choice(ASKED_NAMES)
            script.append(line("ask", principal, host, operation.name, kind.name, name))
            action = Action(operation, ResourcePattern(kind, name))
            ours.append(authorizer.authorize(context_of(principal, host), [action])[0].name)
        for _ in range(15):
            principal, host = chance.choice(CLIENTS), chance.choice(CLIENT_HOSTS)
            operation, kind = chance.choice(OPERATIONS), chance.choice(TYPES[:3])
            script.append(line("type", principal, host, operation.name, kind.name))
            ours.append(authorizer.authorize_by_resource_type(context_of(principal, host), operation, kind).name)
    theirs = java(script)
    assert len(theirs) == len(ours)
    questions = [command for command in script if command.startswith(("ask", "type"))]
    different = [case for case in zip(questions, ours, theirs, strict=True) if case[1] != case[2]]
    assert different == []
    assert {"ALLOWED", "DENIED"} == set(ours)


def test_where_they_differ() -> None:
    """Kafka does not apply ACLs for all names to a name that begins with a star. Here what is denied to all is denied.

    Topics cannot have such names, groups and transactional ids can.
    """
    denied = acl("User:*", AclOperation.ALL, ResourceType.GROUP, "*", permission_type=AclPermissionType.DENY)
    authorizer = StandardAuthorizer([denied])
    authorizer.configure({"allow.everyone.if.no.acl.found": True})
    script = [acl_line(denied), line("load", "", "true")]
    ours = []
    for name in ("a", "*a"):
        action = Action(AclOperation.READ, ResourcePattern(ResourceType.GROUP, name))
        ours.append(authorizer.authorize(context_of(), [action])[0].name)
        script.append(line("ask", "User:alice", "192.0.2.7", "READ", "GROUP", name))
    assert (ours, java(script)) == (["DENIED", "DENIED"], ["DENIED", "ALLOWED"])


def test_principals() -> None:
    principals = [KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "ä" * 100, True), KafkaPrincipal("", "")]
    script = [line("principal", it.type, it.name, str(it.token_authenticated).lower()) for it in principals]
    assert java(script) == [serialize_principal(principal).hex() for principal in principals]


def test_codes_and_filters() -> None:
    kinds = (AclOperation, AclPermissionType, ResourceType, PatternType)
    codes = " ".join(f"{member.name}={int(member)}" for kind in kinds for member in kind)
    script = ["codes"]
    ours = [f"{codes} "]
    for wanted_type in (ResourceType.ANY, ResourceType.TOPIC, ResourceType.GROUP):
        for wanted_name in (None, "a", "ab", "*"):
            for wanted_pattern in PatternType:
                for name in ("a", "ab", "abc", "*"):
                    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
                        pattern = ResourcePattern(ResourceType.TOPIC, name, pattern_type)
                        selecting = ResourcePatternFilter(wanted_type, wanted_name, wanted_pattern)
                        script.append(
                            line(
                                "filter",
                                wanted_type.name,
                                wanted_name or "",
                                wanted_pattern.name,
                                "TOPIC",
                                name,
                                pattern_type.name,
                            )
                        )
                        ours.append(str(selecting.matches(pattern)).lower())
    assert java(script) == ours
