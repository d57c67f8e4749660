"""The audit log: who was let in, and who was not.

It is an ordinary logger, :data:`AUDIT_LOGGER`, to be sent to a file of its own if so wished. The level says how much an
entry matters:

======= =========================================================================================
INFO    a request was denied what it asked for
DEBUG   a request was allowed what it asked for
TRACE   nothing was asked for: the broker itself wanted to know, to leave out of a list what the
        client may not see, or to tell it what it may do
======= =========================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.security.request_context import AuthorizableRequestContext

if TYPE_CHECKING:  # authorizer.py writes this log
    from barnabas.security.authorizer import Action

AUDIT_LOGGER: Final = "barnabas.security.audit"
TRACE: Final = 5
"""Below DEBUG, and without a name in :mod:`logging`."""


class AuditLog:
    """Writes what an authorizer has decided. ``rule(*arguments)`` says why, and is called only if that is written."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger(AUDIT_LOGGER)

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
            self._logger.log(
                level,
                "%s at %s %s %s on %s in %s, referred to %d times; rule: %s",
                context.principal,
                context.client_address,
                "ALLOWED" if allowed else "DENIED",
                action.operation.title,
                action.resource_pattern,
                context.api_key.title,
                action.resource_reference_count,
                rule(*arguments),
            )
