"""Handles the loss of records that a query had not read."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from barnabas.common.errors import BarnabasError

log = logging.getLogger(__name__)


class DataLossError(BarnabasError):
    """Records or a topic were deleted before a query had read them."""


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Fails the query, or logs a warning, as the option ``failOnDataLoss`` says."""

    fail: bool

    def report(self, what: str) -> None:
        if self.fail:
            raise DataLossError(
                f"{what}. Some data may have been lost because they are not available any more: they were aged out, or "
                "the topic was deleted before all of it was read. To go on without them, set the option "
                "failOnDataLoss to false."
            )
        log.warning("%s. Some data may have been lost; failOnDataLoss is false, so the query goes on", what)
