"""Optional features whose dependencies are extras of the package."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple


class extra(NamedTuple):  # noqa: N801 - reads as a statement
    """Turns a missing dependency into an error that names the extra to install::

    with extra("arrow", "send_table"):
        import pyarrow

    ImportError: send_table needs pyarrow, which is not installed: pip install 'barnabas[arrow]'
    """

    name: str
    feature: str

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, ModuleNotFoundError):
            return
        package = (error.name or "").split(".")[0]
        if package not in {"", "barnabas"}:  # those would be bugs of this package
            raise ImportError(
                f"{self.feature} needs {package}, which is not installed: pip install 'barnabas[{self.name}]'",
                name=package,
            ) from error
