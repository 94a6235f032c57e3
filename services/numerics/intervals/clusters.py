"""Samples that come in clusters (the images of a patient, the frames of a video): the unit is the cluster.

Samples of a cluster resemble each other, so limits for independent samples are too narrow. Clusters are independent,
and the mean score of a cluster's samples in a group lies in [0, bound] as a single score does: every limit for
independent bounded scores holds for these means. What is estimated is then the mean over clusters, each counting once,
however many samples it has. Exact tests of counts need 0/1 units: they take one sample of each cluster, drawn without
looking at scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.numerics.arguments import Floats, Ints


def cluster_means(
    values: NDArray[Any], groups: NDArray[np.integer[Any]], clusters: NDArray[np.integer[Any]]
) -> tuple[Floats, Ints]:
    """(M,) the mean of each cluster's values in each group that it has samples of, and (M,) the group.

    Args:
        values, groups, clusters: (N,); groups and clusters are numbers from 0.
    """
    pairs, place = np.unique(np.stack([groups, clusters]).astype(np.int64), axis=1, return_inverse=True)
    counts = np.bincount(place.ravel(), minlength=pairs.shape[1])
    sums = np.bincount(place.ravel(), weights=values, minlength=pairs.shape[1])
    top = float(np.max(values, initial=0.0))  # rounding of a sum must not leave the scores' range
    return np.minimum(sums / np.maximum(counts, 1), top), pairs[0]


def one_of_each(clusters: NDArray[np.integer[Any]], seed: int) -> Ints:
    """Ascending rows of one sample of each cluster (N,), drawn evenly by the seed."""
    turn = np.random.default_rng([seed, 16]).permutation(len(clusters))
    _, first = np.unique(np.asarray(clusters)[turn], return_index=True)
    return np.sort(turn[first]).astype(np.int64)
