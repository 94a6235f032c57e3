"""What the sampling measures cost, beside what they replace, measured in one run.

    python -m benchmarks.probabilistic --data ../shared/data [--images 1000]

(a) ProbAcc(0.05) at alpha = 5 %, uniform noise of radius 8/255, against
    * the passes of a fixed-n test with the same guarantee: both verdicts err with probability at most alpha, and
      samples whose failure probability is at most rho / 2 or at least 2 rho are decided with probability at least
      1 - alpha. The least such n is computed exactly (`fixed_sample_size`); the sequential test's exact power at those
      two points is printed beside it and must be as good;
    * the wall time of the published way, 100 draws image by image, with the draws one at a time and in one batch. Its
      100 draws cannot decide rho = 0.05 with those error rates.
(b) Adaptive smoothing against the fixed procedure of the same n, on the decision "radius >= r".
(c) Peak memory as the number of draws grows.
(d) The cost of noise beside a forward pass.

One thread. Seconds are given as CPU time and as wall time: on an idle machine they agree, on a shared one wall time
measures the neighbours too.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import zoo
from benchmarks.binomial import fixed_sample_size
from benchmarks.probacc import probacc
from benchmarks.spending import characteristics
from services.measures.probabilistic import Pr, ProbAcc
from services.measures.radius import Radius
from services.measures.sampling.noise import unit_noise

NETWORKS = (
    "cifar10_wide_std",
    "cifar10_wide_madry8",
    "cifar10_base_kw",
    "cifar10_cnn_a_adv",
    "cifar10_resnet2b",
    "cifar10_resnet20",
)
LOOPED = 25
"""Images the published loop is timed on; its cost an image is constant, so it is scaled to all."""
RHO, ALPHA, RADIUS, BATCH = 0.05, 0.05, 8 / 255, 250


def now() -> np.ndarray:
    """CPU seconds and wall seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def run(measure, network, images, labels) -> tuple[dict[str, np.ndarray], int, np.ndarray]:
    """Columns, images forwarded and seconds of a measure over all images, in batches."""
    network.count, start = 0, now()
    parts = [
        measure.from_model(
            network, images[i : i + BATCH], labels[i : i + BATCH], np.arange(i, min(i + BATCH, len(images))), seed=0
        )
        for i in range(0, len(images), BATCH)
    ]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return columns, network.count, now() - start


def published_loop(network, images, labels, draws: int, together: bool) -> np.ndarray:
    """Seconds an image for `draws` uniform draws around each image, image by image."""
    start = now()
    with torch.inference_mode():
        for image, label in zip(images, labels, strict=True):
            hits = 0
            for _ in range(1 if together else draws):
                noise = (torch.rand(draws if together else 1, *image.shape) * 2 - 1) * RADIUS
                hits += int((network((image + noise).clamp(0, 1)).argmax(1) == label).sum())
    return (now() - start) / len(images)


def verdicts(folder: Path, images, labels) -> None:
    measure = ProbAcc(rho=RHO, alpha=ALPHA, radii=(RADIUS,))
    fixed = fixed_sample_size(RHO, robust=RHO / 2, vulnerable=2 * RHO, alpha=ALPHA)
    boundary = measure.boundary()
    robust, vulnerable = characteristics(boundary, RHO / 2), characteristics(boundary, 2 * RHO)
    print(f"(a) fixed n = {fixed} draws a sample; sequential test decides p = rho/2 rightly with probability")
    print(f"    {robust.accept:.4f}, p = 2 rho with {vulnerable.reject:.4f}; at most {boundary.horizon} draws a sample")
    for name in NETWORKS:
        network = zoo.Counted(zoo.load(folder, name))
        columns, passes, seconds = run(measure, network, images, labels)
        found = probacc(columns[f"{measure.stem(RADIUS)}/verdict"], alpha=ALPHA, delta=0.05)
        few = slice(0, LOOPED)
        single = published_loop(network, images[few], labels[few], 100, False) * len(images)
        batched = published_loop(network, images[few], labels[few], 100, True) * len(images)
        print(
            f"    {name:22s} ProbAcc in [{found.low:.3f}, {found.high:.3f}] undecided {found.undecided:4d} | "
            f"{passes / len(images):6.1f} passes an image = {passes / len(images) / fixed:6.1%} of fixed | "
            f"{seconds[0]:.1f} s CPU ({seconds[1]:.1f} wall); published loop takes "
            f"{single[0] / seconds[0]:.1f}x CPU ({single[1] / seconds[1]:.1f}x wall), "
            f"with its draws in one batch {batched[0] / seconds[0]:.1f}x ({batched[1] / seconds[1]:.1f}x)",
            flush=True,
        )


def smoothing(folder: Path, images, labels, draws: int) -> None:
    print(f"(b) smoothing, sigma .25, n = {draws} (scaled down from 100,000), alpha .001, decision radius >= .25")
    for name in ("cifar10_base_kw", "cifar10_wide_madry8"):
        network = zoo.Counted(zoo.load(folder, name))
        key = "radius/sigma-0.25/at-0.25"
        fixed, fixed_passes, slow = run(Radius(at=(0.25,), draws=draws), network, images, labels)
        quick, passes, fast = run(Radius(at=(0.25,), draws=draws, method="adaptive"), network, images, labels)
        print(
            f"    {name:22s} certified {fixed[key].sum():.0f} fixed, {quick[key].sum():.0f} adaptive of {len(images)}, "
            f"agree on {(fixed[key] == quick[key]).mean():.1%} | passes {passes / fixed_passes:.1%} of fixed, "
            f"{slow[0]:.1f} s CPU against {fast[0]:.1f} s",
            flush=True,
        )


def memory(folder: Path, images, labels) -> None:
    network, peaks = zoo.Counted(zoo.load(folder, "cifar10_base_kw")), []
    for draws in (20, 100, 500):
        run(Pr(radii=(RADIUS,), draws=draws), network, images, labels)
        peaks.append((draws, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    print("(c) peak memory: " + ", ".join(f"{draws} draws {peak:.0f} MiB" for draws, peak in peaks))


def noise(folder: Path, images) -> None:
    network, ids, draws = (
        zoo.load(folder, "cifar10_wide_std"),
        np.repeat(np.arange(25), 10),
        np.tile(np.arange(10), 25),
    )
    with torch.inference_mode():
        forward = min(_seconds(lambda: network(images[:250])) for _ in range(15)) / 250
    for kind in ("uniform", "gaussian", "laplace"):
        cost = (
            min(_seconds(lambda k=kind: unit_noise(k, seed=0, ids=ids, draws=draws, dimension=3072)) for _ in range(15))
            / 250
        )
        print(
            f"(d) {kind:9s} {cost / 3072 * 1e9:5.1f} ns a number, "
            f"{cost / forward:.0%} of a forward pass ({forward * 1e6:.0f} us), CPU time"
        )


def _seconds(work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of shared real data")
    parser.add_argument("--images", type=int, default=1000, help="CIFAR-10 test images for (a)")
    parser.add_argument("--draws", type=int, default=2000, help="n of the smoothing procedures in (b)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels, _ = zoo.images(options.data, "cifar10/test.npz", slice(0, options.images))
    memory(options.data, images[:250], labels[:250])  # first: the peak is that of the whole process
    noise(options.data, images)
    verdicts(options.data, images, labels)
    smoothing(options.data, images[:50], labels[:50], options.draws)


if __name__ == "__main__":
    main()
