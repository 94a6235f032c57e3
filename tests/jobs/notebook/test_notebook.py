"""docs/notebook.ipynb in a real kernel: every cell runs, and shows what it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = DOCS.parent
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root / 'deploy/python'}")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [shown_by(cell) for cell in notebook.cells if cell.cell_type == "code"]
    _, audit, gates, frame, figure, samples = shown
    assert "linear" in audit["text/html"] and "report.html" in audit["text/html"]
    assert "<progress" not in audit["text/html"], "the bar is gone when the audit has ended"
    assert gates["text/plain"].startswith("('") and "clean wcr >= 0.7" in gates["text/plain"]
    assert "digit 9" in frame["text/html"] and "pgd10/linf-0.05000" in frame["text/html"]
    assert figure["application/vnd.plotly.v1+json"]["data"], "a figure that displays itself"
    assert "predicted" in samples["text/html"]


def shown_by(cell: Any) -> dict[str, Any]:
    """All that a cell displays, by type."""
    merged: dict[str, Any] = {}
    for output in cell.outputs:
        for kind, content in output.get("data", {}).items():
            merged[kind] = merged[kind] + content if isinstance(merged.get(kind), str) else content
    return merged
