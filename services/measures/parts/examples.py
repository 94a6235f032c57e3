"""Single samples before and after an attack: predictions, margins, distances and pictures."""

from __future__ import annotations

import numpy as np
import torch

from services.measures.attacks.margins import Network, judged, passes
from services.measures.measure import Columns
from services.storage.pictures import png_of


def examples(network: Network, images: torch.Tensor, points: torch.Tensor, labels: torch.Tensor) -> Columns:
    """What is shown of n samples `images` and what an attack made of them, `points`, both (n, C, H, W) in [0, 1].

    Columns: `before`, `after`: the predicted classes, -1 where logits are not finite; `margin_before`, `margin_after`:
    the label's logit less the largest other (0 where not finite); `l2`, `linf`: distances in [0, 1] pixel units;
    `gain`: the picture of the perturbation shows a change of d as ``0.5 + gain d``, so that the largest one fills its
    range; `rounded`: whether the adversarial in 8 bits, which is what its picture holds, is still not of its class;
    `original`, `adversarial`, `perturbation`: PNG.
    """
    with torch.no_grad():
        eighths = (points * 255).round() / 255
        margins, classes = zip(*(_seen(network, each, labels) for each in (images, points, eighths)), strict=True)
    clean, moved = images.cpu().numpy(), points.cpu().numpy()
    change = moved.astype(np.float64) - clean.astype(np.float64)
    flat = np.abs(change).reshape(len(change), -1)
    linf = flat.max(axis=1)
    gain = 0.5 / np.where(linf > 0, linf, 0.5)
    pictures = {
        "original": [png_of(image) for image in clean],
        "adversarial": [png_of(image) for image in moved],
        "perturbation": [png_of(0.5 + by * each) for by, each in zip(gain, change, strict=True)],
    }
    return {
        "before": classes[0],
        "after": classes[1],
        "margin_before": margins[0],
        "margin_after": margins[1],
        "l2": np.sqrt((flat**2).sum(axis=1)),
        "linf": linf,
        "gain": gain,
        "rounded": classes[2] != labels.cpu().numpy(),
        **{name: np.array(column, dtype=object) for name, column in pictures.items()},
    }


def _seen(network: Network, images: torch.Tensor, labels: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Margins and predictions; a tie for the top goes to the other class, as in all attacks."""
    margin, rival = judged(passes(network, images), labels)
    predicted = torch.where(margin > 0, labels, rival)
    return torch.nan_to_num(margin, nan=0.0).double().cpu().numpy(), predicted.cpu().numpy()
