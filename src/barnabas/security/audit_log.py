"""The audit log: logs allowed and denied requests.

It is an ordinary logger, :data:`AUDIT_LOGGER`, which can be sent to its own file. The level is the importance of an
entry:

======= =========================================================================================
INFO    a request was denied
DEBUG   a request was allowed
TRACE   the broker itself checked a permission, to filter a list or to return authorized
        operations; the client did not ask for it
======= =========================================================================================

Denials are limited: 20 lines in 10 s for each principal and address, then a line with the number of the others. So a
client that retries without a pause does not fill the disk, and does not hide the denials of other clients. The levels
below INFO are switched on for an investigation, and are complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.log_safety import LimitedLogger
from barnabas.security.request_context import AuthorizableRequestContext

if TYPE_CHECKING:  # authorizer.py writes this log
    from barnabas.security.authorizer import Action

AUDIT_LOGGER: Final = "barnabas.security.audit"
TRACE: Final = 5
"""A level below DEBUG, without a name in :mod:`logging`."""


class _Reason:
    """The reason for a decision, found when the line is formatted: that takes longer than the decision."""

    __slots__ = ("_arguments", "_rule")

    def __init__(self, rule: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._rule = rule
        self._arguments = arguments

    def __str__(self) -> str:
        return str(self._rule(*self._arguments))


class AuditLog:
    """Logs decisions of an authorizer. ``rule(*arguments)`` returns the reason, and is called only if it is logged."""

    __slots__ = ("_limited", "_logger")

    def __init__(self, logger: logging.Logger | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._logger = logger or logging.getLogger(AUDIT_LOGGER)
        self._limited = LimitedLogger(self._logger, clock=clock)

    def record(
        self,
        context: AuthorizableRequestContext,
        action: Action,
        allowed: bool,
        rule: Callable[..., object],
        *arguments: object,
    ) -> None:
        if allowed:
            level = logging.DEBUG if action.log_if_allowed else TRACE
        else:
            level = logging.INFO if action.log_if_denied else TRACE
        if self._logger.isEnabledFor(level):
            self._limited.log_for(
                f"requests of {context.principal} at {context.client_address}",
                level,
                "%s at %s %s %s on %s in %s, referred to %d times; rule: %s",
                context.principal,
                context.client_address,
                "ALLOWED" if allowed else "DENIED",
                action.operation.title,
                action.resource_pattern,
                context.api_key.title,
                action.resource_reference_count,
                _Reason(rule, arguments),
            )
