"""What a mutation run found: a table of modules, and the survivors as differences of source."""

from __future__ import annotations

import ast
import difflib
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

COLUMNS = ("killed", "timeout", "survived", "doubtful", "not covered")


def write(folder: Path) -> float:
    """Print the table, write `survivors.diff`, and return the per cent of mutants that were killed or timed out."""
    mutants = json.loads((folder / "mutants.json").read_text())
    lines = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    status = {name: each for name, version, each in lines if mutants.get(name) == version}
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for name, each in status.items():
        table[name.split(".")[2]][each if each in COLUMNS else "killed"] += 1
    whole = sum(table.values(), Counter())
    head = [
        "| module | mutants | killed | timeout | survived | doubtful | not covered | killed, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [_row(module, row) for module, row in [*sorted(table.items()), ("all", whole)]]
    sys.stdout.write("\n".join([*head, *rows, ""]))
    living = [name for name, each in status.items() if each not in ("killed", "timeout")]
    (folder / "survivors.diff").write_text("".join(difference(folder, name) for name in sorted(living, key=order)))
    return share(whole)


def _row(module: str, row: Counter[str]) -> str:
    cells = [module, row.total(), *(row[key] for key in COLUMNS), f"{share(row):.1f}"]
    return f"| {' | '.join(map(str, cells))} |"


def share(row: Counter[str]) -> float:
    """Per cent of mutants that a test noticed."""
    return 100.0 * (row["killed"] + row["timeout"]) / max(1, row.total())


def order(name: str) -> tuple[str, int]:
    """By function, then by number."""
    function, _, number = name.partition("__mutmut_")
    return function, int(number)


def difference(folder: Path, name: str) -> str:
    """The changed lines of a mutant."""
    path = folder / "tree" / "services" / "numerics" / f"{name.split('.')[2]}.py"
    function, _, number = name.rpartition(".")[2].partition("__mutmut_")
    before, after = (_source(path, f"{function}__mutmut_{which}") for which in ("orig", number))
    changed = [line for line in difflib.unified_diff(before, after, n=0, lineterm="") if not line.startswith("@@")][2:]
    return "\n".join([f"# {name}", *changed, ""]) + "\n"


_SOURCES: dict[Path, dict[str, list[str]]] = {}


def _source(path: Path, function: str) -> list[str]:
    if path not in _SOURCES:
        code = path.read_text()
        lines = code.splitlines()
        results = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
        _SOURCES[path] = {node.name: lines[node.lineno - 1 : node.end_lineno] for node in results}
    return [line.replace(function, function.partition("__mutmut_")[0]) for line in _SOURCES[path][function]]
