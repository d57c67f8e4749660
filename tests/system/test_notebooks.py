"""The notebooks in ``examples/notebooks`` run, and print what is stored in them, which the documentation site shows.

After a change of a notebook: ``python tests/system/test_notebooks.py`` runs them all and stores what they print.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
NOTEBOOKS: Final = ROOT / "examples" / "notebooks"
LIMIT_S: Final = 600
LONG: Final = {"spark.ipynb"}
"""Those that start Spark."""


def read(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(path, as_version=4)


def run(notebook: Any, directory: Path) -> None:
    """Runs all cells, in a process of their own, which has nothing but this interpreter's packages."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    resources = {"metadata": {"path": str(directory)}}
    nbclient.NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources).execute()


def printed(notebook: Any) -> list[str]:
    """Returns what each cell prints. Standard error, where Spark writes, is not part of it."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(one.text for one in cell.outputs if one.get("name") == "stdout") for cell in cells]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=pytest.mark.nightly if path.name in LONG else ())
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    ],
)
def test_a_notebook_prints_what_is_stored_in_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = read(NOTEBOOKS / name)
    stored = printed(notebook)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    run(notebook, tmp_path)
    assert printed(notebook) == stored
    assert "".join(stored).strip(), "the site shows what it prints"


def store() -> None:
    """Runs the notebooks and stores what they print."""
    nbformat: Any = import_module("nbformat")  # it has hardly any types
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = read(path)
        run(notebook, path.parent)
        notebook.metadata.pop("language_info", None)
        texts = iter(printed(notebook))
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number}"
            cell.metadata.clear()
            if cell.cell_type == "code":
                cell.execution_count = None
                text = next(texts)
                cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
        nbformat.write(notebook, path)


if __name__ == "__main__":
    store()
