"""Explains which limit applies to a client: the eight steps of the lookup, with the result of each."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.dataclass import dataclass
from barnabas.quota.quota_entity import QuotaEntity, QuotaTags, precedence, tags_at


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the lookup."""

    number: int
    entity: QuotaEntity
    limit: float | None
    """The limit at this step, or None."""
    matched: bool
    """Whether this is the first step with a limit: the one that applies."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the limit of a client was found."""

    steps: tuple[Step, ...]
    match: Step | None
    """None: no limit applies."""
    tags: QuotaTags | None
    """The clients that share the limit."""

    @property
    def limit(self) -> float | None:
        return None if self.match is None else self.match.limit

    @property
    def reason(self) -> str:
        """Explains the match in one sentence."""
        if self.match is None:
            return "none of the eight places has a limit"
        before = self.match.number - 1
        if not before:
            return f"step 1, {self.match.entity}, is the most specific one"
        which = "step 1 has" if before == 1 else f"steps 1 {'and' if before == 2 else 'to'} {before} have"
        return f"{which} no limit; step {self.match.number}, {self.match.entity}, is the first that has one"


def explain(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Explanation:
    """Takes the eight steps for a client; `limits` are those of one quota type."""
    match: Step | None = None
    steps = []
    for number, entity in enumerate(precedence(user, client_id), 1):
        limit = limits.get(entity)
        step = Step(number, entity, limit, limit is not None and match is None)
        if step.matched:
            match = step
        steps.append(step)
    return Explanation(tuple(steps), match, None if match is None else tags_at(match.entity.level, user, client_id))
