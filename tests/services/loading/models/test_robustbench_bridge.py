"""RobustBench for real: its architectures, its cache layout, its own `load_model`."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from services.errors import SourceError
from services.loading.confined import confined_to
from services.loading.models.robustbench_bridge import adapted_autoattack, atomic_downloads, robustbench_module
from services.loading.models.source import fingerprint, load_model
from services.loading.preflight.look import preflight
from services.loading.samples.source import open_samples
from services.records import ModelSpec, SampleSpec

pytestmark = pytest.mark.usefixtures("torchvision_operators")


def place(root: Path, threat: str, name: str, state: object) -> Path:
    path = root / "cifar10" / threat / f"{name}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def uri(root: Path, name: str, threat: str) -> str:
    return f"robustbench:{name}?dataset=cifar10&threat_model={threat}&model_dir={root}"


def architecture(name: str, threat: str) -> torch.nn.Module:
    torch.manual_seed(0)
    zoo = robustbench_module("robustbench.model_zoo.cifar10")
    return zoo.cifar_10_models[zoo.ThreatModel(threat)][name]["model"]().eval()


@pytest.mark.parametrize(
    ("name", "threat", "wrap"),
    [
        ("Hendrycks2020AugMix_WRN", "corruptions", lambda state: state),
        ("Rebuffi2021Fixing_R18_cutmix_ddpm", "L2", lambda state: state),
        ("Wong2020Fast", "Linf", lambda state: {"state_dict": {f"module.{k}": v for k, v in state.items()}}),
    ],
)
@pytest.mark.long
def test_its_architectures_through_its_own_loader(name: str, threat: str, wrap: object, tmp_path: Path) -> None:
    model = architecture(name, threat)
    place(tmp_path, threat, name, wrap(model.state_dict()))  # type: ignore[operator]
    spec = ModelSpec("m", uri(tmp_path, name, threat))
    loaded = load_model(spec)
    images = torch.rand(2, 3, 32, 32)
    assert loaded.network is not None
    with torch.no_grad():
        assert torch.allclose(loaded.network(images), model(images), atol=1e-5)
    assert loaded.digest == fingerprint(spec)
    assert 0.5 < loaded.facts["leaderboard"]["clean_accuracy"] < 1
    assert not any(parameter.requires_grad for parameter in loaded.network.parameters())


@pytest.mark.long
def test_a_trained_network_passes_preflight(tmp_path: Path, shared_data: Path) -> None:
    """The trained ResNet-18 that pyautoattack ships has the layout of an entry of the zoo."""
    spec = importlib.util.find_spec("pyautoattack")
    assert spec is not None and spec.origin is not None
    state = torch.load(Path(spec.origin).parent / "examples/model_test.pt", map_location="cpu")
    place(tmp_path, "L2", "Sehwag2021Proxy_R18", state)
    loaded = load_model(ModelSpec("m", uri(tmp_path, "Sehwag2021Proxy_R18", "L2"), clean_accuracy=0.946))
    samples = open_samples(SampleSpec(f"npz:{shared_data / 'cifar10/test.npz'}"))
    facts, problems = preflight(loaded, samples, device="cpu", probe=20)
    assert problems == ()
    assert facts["clean_accuracy"] >= 0.8


def test_no_weights_and_no_network_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = robustbench_module("robustbench.utils")

    def offline(identity: str, target: str) -> None:
        Path(target + "abc").write_bytes(b"half")
        raise ConnectionError("no route to host")

    monkeypatch.setattr(utils, "download_gdrive_new", offline)
    root = tmp_path / "models"
    with pytest.raises(SourceError, match=r"weights at .*/cifar10/L2/Rice2020Overfitting.pt, found no file, and "):
        load_model(ModelSpec("m", uri(root, "Rice2020Overfitting", "L2")))
    assert list(tmp_path.iterdir()) == []


def test_a_download_is_moved_into_place_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = robustbench_module("robustbench.utils")
    state = architecture("Hendrycks2020AugMix_WRN", "corruptions").state_dict()
    observed = []

    def served(identity: str, target: str) -> None:
        observed.append(Path(target).name)
        torch.save(state, target)

    monkeypatch.setattr(utils, "download_gdrive_new", served)
    spec = ModelSpec("m", uri(tmp_path, "Hendrycks2020AugMix_WRN", "corruptions"))
    before = fingerprint(spec)
    load_model(spec)
    load_model(spec)
    assert observed == [".Hendrycks2020AugMix_WRN.pt.part"]
    assert fingerprint(spec) != before
    assert [path.name for path in (tmp_path / "cifar10/corruptions").iterdir()] == ["Hendrycks2020AugMix_WRN.pt"]


def test_of_many_cold_starts_one_downloads_also_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads, each with a lock of its own as processes have: never two downloads at once, and one that succeeds."""
    utils = robustbench_module("robustbench.utils")
    target, busy, calls = tmp_path / "w.pt", threading.Lock(), []

    def served(identity: str, path: str) -> None:
        assert busy.acquire(blocking=False), "two downloads at once"
        calls.append(path)
        first = len(calls) == 1
        Path(path).write_text("half")
        time.sleep(0.02)
        busy.release()
        if first:
            raise ConnectionError("reset by peer")
        Path(path).write_text("whole")

    monkeypatch.setattr(utils, "download_gdrive_new", served)

    def fetch(_: int) -> str:
        try:
            utils.download_gdrive_new("id", target)
        except ConnectionError:  # started again while the next one downloads
            utils.download_gdrive_new("id", target)
        return target.read_text()

    with atomic_downloads(utils), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fetch, range(8))) == ["whole"] * 8
    assert len(calls) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["w.pt"]


class Custom:
    """An object that only unpickling could make."""


def test_bad_weights_are_told_before_robustbench_sees_them(tmp_path: Path) -> None:
    name = "Hendrycks2020AugMix_WRN"
    spec = ModelSpec("m", uri(tmp_path, name, "corruptions"))
    place(tmp_path, "corruptions", name, {"state_dict": {}, "args": Custom()})
    with pytest.raises(SourceError, match=r"that needs .*Custom, which runs code"):
        load_model(spec)
    place(tmp_path, "corruptions", name, {"w": torch.zeros(2)})
    with pytest.raises(SourceError, match=r"Error.s. in loading state_dict"):
        load_model(spec)
    (tmp_path / f"cifar10/corruptions/{name}.pt").write_text("<html>quota</html>")
    with pytest.raises(SourceError, match="an HTML page"):
        fingerprint(spec)


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="did you mean 'Rice2020Overfitting'"):
        load_model(ModelSpec("m", uri(tmp_path, "Rice2020Overfiting", "L2")))
    with pytest.raises(SourceError, match="use threat_model="):
        load_model(ModelSpec("m", uri(tmp_path, "Wong2020Fast", "L2")))
    with pytest.raises(SourceError, match="one of Linf, L2, corruptions, found 'l2'"):
        load_model(ModelSpec("m", uri(tmp_path, "Rice2020Overfitting", "l2")))


def test_stand_ins_do_not_stay() -> None:
    robustbench_module("robustbench.eval")
    assert "autoattack" not in sys.modules


def test_its_autoattack_call_works_on_pyautoattack() -> None:
    """`robustbench.eval.benchmark` constructs and calls AutoAttack like this."""
    from pyautoattack import AutoAttack

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 10))
    attack = adapted_autoattack(AutoAttack)(
        model, norm="Linf", eps=0.1, version="custom", attacks_to_run=["apgd-ce"], device="cpu", log_path=None
    )
    images = torch.rand(8, 3, 4, 4)
    labels = model(images).argmax(dim=1)
    adversarial = attack.run_standard_evaluation(images, labels, bs=4, state_path=None)
    assert adversarial.shape == images.shape
    assert float((adversarial - images).abs().max()) <= 0.1 + 1e-6
    assert (model(adversarial).argmax(dim=1) != labels).any()
    assert np.isfinite(adversarial.numpy()).all()


@pytest.mark.parametrize("parts", [".pt", ".pt_m0.pt"])
def test_a_link_to_weights_of_others_is_not_followed(tmp_path: Path, parts: str) -> None:
    """Of a zoo in a granted folder; and nothing is downloaded there."""
    name, threat = "Hendrycks2020AugMix_WRN", "corruptions"
    private = place(tmp_path / "private", threat, name, architecture(name, threat).state_dict())
    granted, spec = tmp_path / "granted", ModelSpec("m", uri(tmp_path / "granted", name, threat))
    (granted / "cifar10" / threat).mkdir(parents=True)
    with confined_to([str(granted)]):
        with pytest.raises(SourceError, match="weights in the granted folder, found none"):
            load_model(spec)
        (granted / "cifar10" / threat / f"{name}{parts}").symlink_to(private)
        with pytest.raises(SourceError, match="leads out of them"):
            load_model(spec)
        (granted / "cifar10" / threat / f"{name}{parts}").unlink()
        private.rename(granted / "cifar10" / threat / f"{name}.pt")
        loaded = load_model(spec)
    assert loaded.network is not None and loaded.digest == fingerprint(spec)
