"""Shared fixtures: where the real data lies, and what a CPU-only test environment needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

ROOT = Path(__file__).resolve().parents[1]

# No deadline: a busy machine is not a fault. In CI the same examples every time; at a desk, new ones.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def _define_missing_torchvision_operators() -> None:
    """Beside a CPU wheel of torch, torchvision's compiled operators may be missing; two schemas let it import."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, schema in {
        "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    }.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)
    globals()["_torchvision_library"] = library


@pytest.fixture(scope="session")
def torchvision_operators() -> None:
    """Ask for this before importing timm, torchvision or robustbench in a test."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        _define_missing_torchvision_operators()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images, networks and published results; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CLASSWISE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"real data not found at {folder}; set CLASSWISE_SHARED_DATA")
    return folder
