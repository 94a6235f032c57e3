"""Files of an object storage are read by a copy, anew when they changed, and never where only folders are granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.errors import SourceError, StorageError
from services.loading.confined import confined_to
from services.loading.models.source import fingerprint
from services.loading.nearby import nearby
from services.loading.samples.source import open_samples
from services.records import ModelSpec, SampleSpec
from services.storage import files
from services.training.architectures.build import build
from services.training.epochs.checkpoints import save_weights

FACTORY = "factory:services.training.architectures:small_cnn?width=2&weights="


def test_a_path_is_itself_and_a_url_a_copy_of_now(tmp_path: Path) -> None:
    assert nearby("~/w.pt", "here") == Path("~/w.pt").expanduser()
    files.write_bytes("memory://near/a.bin", b"one")
    first = nearby("memory://near/a.bin", "here")
    assert first.read_bytes() == b"one" and first.suffix == ".bin"
    files.write_bytes("memory://near/a.bin", b"two")
    assert nearby("memory://near/a.bin", "here").read_bytes() == b"two"
    with pytest.raises(StorageError, match=r"near/none"):
        nearby("memory://near/none", "here")


def test_weights_by_url_are_the_same_model(tmp_path: Path) -> None:
    state = build("small_cnn", seed=0, width=2).state_dict()
    prints = set()
    for place in ("memory://near", str(tmp_path)):
        save_weights(f"{place}/w.safetensors", state)
        prints.add(fingerprint(ModelSpec("m", f"{FACTORY}{place}/w.safetensors")))
    assert len(prints) == 1


def test_no_url_is_opened_where_only_some_folders_are_granted(tmp_path: Path) -> None:
    files.write_bytes("memory://near/w.safetensors", b"")
    with confined_to([str(tmp_path)]):
        with pytest.raises(SourceError, match=r"expected a file below a granted folder, found memory://near"):
            fingerprint(ModelSpec("m", f"{FACTORY}memory://near/w.safetensors"))
        with pytest.raises(SourceError, match=r"expected a file below a granted folder, found memory://near"):
            open_samples(SampleSpec("npz:memory://near/w.npz"))
