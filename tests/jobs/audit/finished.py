"""Audits of the digits fleet, and what their results hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from jobs.audit.audit import Finished, run_audit
from jobs.fleetfile.reading import validate_fleet
from jobs.terminal.progress import Quiet
from services.loading.samples.source import open_samples
from services.records import SampleSpec, SeriesResult
from services.training.architectures import small_cnn
from services.training.epochs.checkpoints import load_weights


def audit(data: dict[str, Any]) -> Finished:
    return run_audit(validate_fleet(data), Quiet())


def series(finished: Finished, model: str, key: str, grouping: str = "class") -> SeriesResult:
    result = next(m for m in finished.result.models if m.spec.name == model)
    return next(s for s in result.series if s.series.key == key and s.grouping == grouping)


def direct_logits(weights: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a plain torch loop, and labels."""
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    network = small_cnn(width=8)
    network.load_state_dict(load_weights(weights))
    with torch.inference_mode():
        return network.eval()(torch.from_numpy(samples.images(0, len(samples)))).numpy(), samples.labels


def npz_fleet(digits_fleet: dict[str, Any], tmp_path: Path, *, without: int | None = None) -> dict[str, Any]:
    """The same digits as an npz with a grouping column, one class left out if asked."""
    samples = open_samples(SampleSpec("sklearn:digits?split=test"))
    images = (samples.images(0, len(samples)) * 16).round().astype(np.uint8) * 15
    ink = np.where(images.mean(axis=(1, 2, 3)) > np.median(images.mean(axis=(1, 2, 3))), "bold", "thin")
    kept = samples.labels != without
    names = np.array([str(k) for k in range(10)])
    np.savez(tmp_path / "d.npz", images=images[kept][:, 0], labels=samples.labels[kept], ink=ink[kept], classes=names)
    return {**digits_fleet, "samples": {"uri": f"npz:{tmp_path / 'd.npz'}"}}
