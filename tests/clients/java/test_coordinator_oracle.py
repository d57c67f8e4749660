"""Our assignors beside Kafka's, and our regular expressions beside RE2/J, on the same random inputs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from barnabas.common.client_pattern import ClientPattern
from barnabas.common.errors import InvalidRegularExpressionError
from barnabas.common.identifiers import Uuid
from barnabas.coordinator.group.assignor.partition_assignor import GroupSpec, MemberSubscription
from barnabas.coordinator.group.assignor.range_assignor import RangeAssignor
from barnabas.coordinator.group.assignor.uniform_assignor import UniformAssignor
from barnabas.coordinator.group.consumer.assignment import Assignment
from clients.java.conftest import java_or_skip
from oracles.coordinator import CoordinatorOracle
from unit.metadata.samples import uid

pytestmark = pytest.mark.java

CASES = 300
TOPICS = [uid(number) for number in range(1, 6)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[CoordinatorOracle]:
    with java_or_skip():
        made = CoordinatorOracle()
    with made:
        yield made


def random_group(chance: random.Random, *, homogeneous: bool) -> GroupSpec:
    """Members with what they had before somebody came, went, or was subscribed to something else."""
    sizes = {topic_id: chance.randrange(1, 9) for topic_id in TOPICS}
    common = frozenset(chance.sample(TOPICS, chance.randrange(1, len(TOPICS) + 1)))
    names = [f"member-{number}" for number in chance.sample(range(100), chance.randrange(1, 9))]
    assigned: dict[str, dict[Uuid, set[int]]] = {name: {} for name in names}
    for topic_id, size in sizes.items():
        for partition in range(size):
            owner = chance.choice([*names, None])
            if owner is not None:
                assigned[owner].setdefault(topic_id, set()).add(partition)
    members = {}
    for name in names:
        topics = common if homogeneous else frozenset(chance.sample(TOPICS, chance.randrange(1, len(TOPICS) + 1)))
        members[name] = MemberSubscription(
            topics,
            {topic_id: frozenset(numbers) for topic_id, numbers in assigned[name].items()},
            f"instance-{name}" if chance.random() < 0.2 else None,
        )
    return GroupSpec(members, sizes)


def loads(made: dict[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, assignment.values())) for assignment in made.values())


def kept(spec: GroupSpec, made: dict[str, Assignment]) -> int:
    """How many partitions stay where they were."""
    return sum(
        len(numbers & made[name].get(topic_id, frozenset()))
        for name, member in spec.members.items()
        for topic_id, numbers in member.assignment.items()
    )


@pytest.mark.parametrize("homogeneous", [True, False])
def test_range(kafka: CoordinatorOracle, *, homogeneous: bool) -> None:
    chance = random.Random(1)
    for _ in range(CASES):
        spec = random_group(chance, homogeneous=homogeneous)
        assert RangeAssignor().assign(spec) == kafka.assign("range", spec)


def test_uniform_if_all_want_the_same(kafka: CoordinatorOracle) -> None:
    """Kafka goes through hash maps, so who gets a free partition is up to chance. But how many each one gets, and how
    many stay where they are, is not."""
    chance = random.Random(2)
    for _ in range(CASES):
        spec = random_group(chance, homogeneous=True)
        ours, theirs = UniformAssignor().assign(spec), kafka.assign("uniform", spec)
        assert loads(ours) == loads(theirs), spec
        assert kept(spec, ours) == kept(spec, theirs), spec


def test_uniform_if_they_want_different_things(kafka: CoordinatorOracle) -> None:
    """Both move partitions about until that makes nothing better, and may end up at different points, now one of them
    at a better one and now the other. All in all ours has to be as even, and to move no more."""
    chance = random.Random(2)
    same = 0
    spread = [0, 0]
    stayed = [0, 0]
    for _ in range(CASES):
        spec = random_group(chance, homogeneous=False)
        both = UniformAssignor().assign(spec), kafka.assign("uniform", spec)
        same += loads(both[0]) == loads(both[1])
        for which, made in enumerate(both):
            assert sum(loads(made)) == sum(loads(both[0])), "everything is assigned"
            spread[which] += sum(load * load for load in loads(made))
            stayed[which] += kept(spec, made)
    assert same > 0.9 * CASES
    assert spread[0] <= 1.001 * spread[1]
    assert stayed[0] >= 0.99 * stayed[1]


# -- regular expressions

ATOMS = [
    "a",
    "b",
    "-",
    ".",
    "\\.",
    "\\d",
    "\\w",
    "\\S",
    "[ab]",
    "[^a]",
    "[a-c1]",
    "[[:alpha:]]",
    "\\Q.\\E",
    "^",
    "$",
    "\\b",
]
ENDS = ["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?"]
FORMS = ["{}{}", "(?:{}|{})", "({}){}", "(?i:{}){}", "(?P<name>{}){}"]
SPECIAL = [
    "(a)\\1",
    "(?=a)",
    "(?!a)b",
    "(?<=a)b",
    "(?>a)",
    "a++",
    "a**",
    "(",
    ")",
    "[a",
    "*",
    "a{2,1}",
    "a{1001}",
    "(?i)AB",
    "(?s).",
    "(?P=name)",
    "\\A-\\z",
    "\\Qa.b",
    "[]a]",
    "(|a)b",
    "",
    "\\pL+",
    "\\p{Greek}",
    "\\P{Lu}+",
    "[\\pN-]+",
    "(?i)\\Qa.B\\E",
    "(?<name>a)b",
    "(?P<name>a",
    "\\Z",
    "\\8",
    "a{,2}",
    "a{1000}",
    "\\x{10FFFF}",
    "[z-a]",
    "a|*",
    "(?z)a",
    "a\\",
]


def random_pattern(chance: random.Random, depth: int) -> str:
    if depth == 0:
        return chance.choice(ATOMS)
    one = random_pattern(chance, depth - 1)
    if chance.random() < 0.4:
        return f"(?:{one}){chance.choice(ENDS)}"
    return chance.choice(FORMS).format(one, random_pattern(chance, depth - 1))


def matched(pattern: str, texts: list[str]) -> list[bool] | None:
    try:
        regex = ClientPattern(pattern)
    except InvalidRegularExpressionError:
        return None
    return [regex.matches(text) for text in texts]


def test_patterns(kafka: CoordinatorOracle) -> None:
    chance = random.Random(3)
    texts = ["", *("".join(chance.choices("aAbB-.1\n", k=chance.randrange(1, 7))) for _ in range(30))]
    patterns = [*SPECIAL, *(random_pattern(chance, chance.randrange(4)) for _ in range(CASES))]
    different = [
        (pattern, theirs, mine)
        for pattern in patterns
        if pattern.count("?P<name>") < 2  # see test_where_re2_and_re2j_differ
        and (theirs := kafka.matches(pattern, texts)) != (mine := matched(pattern, texts))
    ]
    assert different == []
    assert sum(matched(pattern, texts) is None for pattern in patterns) < CASES / 3, "most of them are patterns"


@pytest.mark.parametrize(
    ("pattern", "text", "java", "here"),
    [
        ("(?:a{1000}){2}", "a" * 2000, [True], None),
        ("(?P<n>a)(?P<n>b)", "ab", None, [True]),
        ("\\C", "a", None, [True]),
    ],
)
def test_where_re2_and_re2j_differ(
    kafka: CoordinatorOracle, pattern: str, text: str, java: list[bool] | None, here: list[bool] | None
) -> None:
    """As docs/deviations.md says. RE2 counts nested repetitions together, up to 1000; RE2/J ran out of memory with
    ``(?:(?:(?:){1000}){1000}){1000}``."""
    assert kafka.matches(pattern, [text]) == java
    assert matched(pattern, [text]) == here
