"""What it costs to say why a class is weak: confusions, the gallery, an audit that is cached, and the report's opening.

Usage: python -m benchmarks.why --data DIR [--images 2000]

PGD-20 at Linf 8/255 on CIFAR-10 networks, in process: seconds of processor time that the driver spends on confusion
matrices, and forward passes and seconds of the gallery, each as a share of the attack's. Then the same audit again, as
a process of its own whose results are all cached, and its report opened in Chromium where that is installed.
Targets: 1 % and 3 % of the attack's seconds, and the page within 2 s.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from benchmarks.adequacy import Costs
from benchmarks.drills import page
from jobs.audit.judging import model_result
from jobs.audit.publish import audit_and_publish
from jobs.fleetfile.reading import validate_fleet

EXAMPLE = Path(__file__).resolve().parents[1] / "deploy" / "examples" / "cifar10_small.yaml"
NAMES = ("wide_std", "base_kw", "cnn_a_adv", "conv_small_pgd", "resnet2b", "resnet20")
MOST_CONFUSIONS, MOST_GALLERY, MOST_OPENING = 0.01, 0.03, 2.0


def fleet_of(data: Path, images: int, storage: str) -> dict[str, Any]:
    """The example's fleet with its files where they lie, and one attack."""
    fleet: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    models = [model for model in fleet["models"] if model["name"] in NAMES]
    for model in models:
        model["uri"] = model["uri"].replace("weights=weights/", f"weights={data / 'networks' / 'cifar10'}/")
        del model["clean_accuracy"]
    return {
        "fleet": "why",
        "samples": {"uri": f"npz:{data / 'cifar10' / 'test.npz'}", "per_class": images // 10},
        "models": models,
        "measures": ["clean", {"name": "pgd", "steps": 20, "epsilons": [8 / 255]}],
        "storage": storage,
        "resources": {"runner": "local", "workers": 1, "batch": 128, "shard": 1000},
    }


@contextmanager
def confusion_seconds(spent: list[float]) -> Iterator[None]:
    """Add the processor time of everything that makes and writes confusion matrices to `spent`."""

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.process_time()
            result = work(*arguments)
            spent.append(time.process_time() - begin)
            return result

        return call

    names = ("matrices", "confusion_results", "write_confusions")
    with mock.patch.multiple(model_result, **{name: timed(getattr(model_result, name)) for name in names}):
        yield


def cached_seconds(fleet: Path) -> float:
    """Processor time of `classwise audit` as a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from jobs.cli import main; main()", "audit", "-q", str(fleet)]
    subprocess.run(command, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def opening_seconds(report: Path) -> float:
    """From the request to the end of loading, the median of three."""
    driver = page.browser()
    try:
        taken = []
        for _ in range(3):
            driver.get("about:blank")
            driver.get(report.as_uri())
            taken.append(driver.execute_script("return performance.getEntriesByType('navigation')[0].duration") / 1000)
        return float(sorted(taken)[1])
    finally:
        driver.quit()


def main() -> int:
    """Print the shares; 1 when one is above its target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fleet, costs, spent = fleet_of(asked.data, asked.images, f"{folder}/runs"), Costs(), list[float]()
        file = Path(folder) / "fleet.yaml"
        file.write_text(yaml.safe_dump(fleet))
        with confusion_seconds(spent):
            published = audit_and_publish(validate_fleet(fleet), costs)
        attack, gallery = costs.seconds["measure"], costs.seconds["gallery"]
        print(f"attack {attack:.1f} s on {len(fleet['models'])} networks, {asked.images} images")
        print(f"confusions {sum(spent):.2f} s, {100 * sum(spent) / attack:.2f} % of the attack")
        passes = 100 * costs.passes["gallery"] / costs.passes["measure"]
        print(f"gallery {gallery:.2f} s, {100 * gallery / attack:.2f} % of the attack ({passes:.2f} % of its passes)")
        print(f"the same audit, cached: {cached_seconds(file):.1f} s of processor time")
        opening = 0.0
        if shutil.which("chromedriver"):
            report = Path(published.folder) / "report.html"
            opening = opening_seconds(report)
            print(f"report of {report.stat().st_size / 1e6:.1f} MB opens in {opening:.2f} s")
    kept = sum(spent) <= MOST_CONFUSIONS * attack and gallery <= MOST_GALLERY * attack and opening <= MOST_OPENING
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
