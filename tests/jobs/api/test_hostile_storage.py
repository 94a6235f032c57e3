"""What a worker of a model that is a program can put into the storage, and the API must not hand out: links to its own
files, its signing key and its callers' tokens among them."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jobs.api.serve import build
from jobs.api.settings import Settings, digests, plain
from jobs.submission.submission import Ending, folder_in, write_ending
from jobs.upkeep.sync import sync_bundle
from services.errors import StorageError
from services.records import AuditResult, Outcome
from tracking.bundle.bundle import folder_of, write_bundle

from .conftest import TOKEN

SECRET = "the signing key of this deployment"
ID = f"digits-{'a' * 16}"
AUDIT = "20261128T010000Z-00000001"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file that the API may read and its callers may not."""
    path = tmp_path / "etc" / "signing.key"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def bundle(settings: Settings, board_audit: Callable[..., AuditResult]) -> Path:
    """A finished audit in the storage, with its submission."""
    result = board_audit(AUDIT, {"m": ({}, {"clean": 0.9})}, fleet="digits")
    folder = Path(write_bundle(result, folder_of(settings.storage, "digits", AUDIT))).parent
    (folder / "report.html").write_text("<p>report</p>")
    _ended(settings, folder)
    return folder


def _ended(settings: Settings, bundle: Path) -> None:
    home = folder_in(settings.storage, ID)
    write_ending(home, Ending("1", "finished", Outcome.PASS, str(bundle), bundle.name))
    (Path(home) / "fleet.json").write_text("{}")


@pytest.fixture
def reader(settings: Settings) -> TestClient:
    app = build(plain(settings), digests(settings, os.environ))
    return TestClient(app, headers={"authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)


def _shown(answer: bytes) -> bytes:
    """All that an answer holds, members of an archive too."""
    if zipfile.is_zipfile(io.BytesIO(answer)):
        with zipfile.ZipFile(io.BytesIO(answer)) as archive:
            return b"".join(archive.read(name) for name in archive.namelist())
    return answer


def test_what_is_no_link_is_handed_out(reader: TestClient, bundle: Path) -> None:
    for part, held in (("report", b"<p>report</p>"), ("bundle", b"<p>report</p>"), ("result", AUDIT.encode())):
        answer = reader.get(f"/v1/audits/{ID}/{part}")
        assert answer.status_code == 200 and held in _shown(answer.content), part


@pytest.mark.parametrize("part", ["report", "bundle", "result", "logs"])
@pytest.mark.parametrize("kind", ["file", "folder", "ending"])
def test_nothing_outside_the_storage_is_handed_out(
    reader: TestClient, bundle: Path, key: Path, settings: Settings, kind: str, part: str
) -> None:
    """A link in the place of a file, a folder behind a link, and an ending that names another folder."""
    outside = key.parent
    if kind == "file":
        for name in ("report.html", "extra.txt"):
            (bundle / name).unlink(missing_ok=True)
            (bundle / name).symlink_to(key)
        (Path(folder_in(settings.storage, ID)) / "log.txt").symlink_to(key)
    else:
        for file in bundle.iterdir():
            if file.is_file():
                shutil.copy(file, outside / file.name)
        (outside / "report.html").unlink()
        (outside / "report.html").write_text(SECRET)
        if kind == "folder":
            shutil.rmtree(bundle)
            bundle.symlink_to(outside)
        else:
            _ended(settings, outside)
    answer = reader.get(f"/v1/audits/{ID}/{part}")
    assert SECRET.encode() not in _shown(answer.content)
    expected = {"file": {"result": 200}, "folder": {"logs": 200}, "ending": {"logs": 200}}[kind].get(part, 503)
    assert answer.status_code == expected, answer.text


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
def test_nothing_outside_a_bundle_is_uploaded(bundle: Path, key: Path, tmp_path: Path) -> None:
    """Runs of MLflow are read by more people than the files of whoever uploads."""
    (bundle / "report.html").unlink()
    (bundle / "report.html").symlink_to(key)
    with pytest.raises(StorageError, match=r"report\.html.*a link that leads out of it"):
        sync_bundle(str(bundle), f"sqlite:///{tmp_path}/mlflow.db")
    assert SECRET.encode() not in b"".join(file.read_bytes() for file in (tmp_path / "mlruns").rglob("*.html"))


def test_a_list_shows_no_folder_behind_a_link(reader: TestClient, bundle: Path, settings: Settings, key: Path) -> None:
    (Path(settings.storage) / "audits" / "other").symlink_to(key.parent)
    (key.parent / "private-name").mkdir()
    answer = reader.get("/v1/fleets/other/audits")
    assert answer.status_code == 404 and "private-name" not in answer.text
    assert [fleet["id"] for fleet in reader.get("/v1/fleets").json()["fleets"]] == ["digits"]


PLANTED = {
    "ending: a pipe": f"submissions/other-{'b' * 16}/ending.json",
    "fleet.json: a terabyte": f"submissions/other-{'b' * 16}/fleet.json",
    "fleet.json: a pipe": f"submissions/other-{'b' * 16}/fleet.json",
    "progress: a terabyte": f"submissions/other-{'b' * 16}/progress.json",
    "queue: a terabyte": f"queue/0100-{0:013d}-{'a' * 12}-other-{'b' * 16}.json",
    "queue: a pipe": f"queue/0100-{0:013d}-{'a' * 12}-other-{'b' * 16}.json",
    "bundle: a terabyte": "audits/other/x/bundle.json",
    "bundle: a pipe": "audits/other/x/bundle.json",
    "overview: a terabyte": "audits/other/x/overview.json",
    "upload: a terabyte": "audits/other/x/tracking.json",
}


@pytest.mark.parametrize(
    "planted", ["ending: a link", "ending: a terabyte", "fleet: a link", "queue: a link", *PLANTED]
)
def test_what_one_worker_plants_hides_no_other_audit(
    reader: TestClient, bundle: Path, settings: Settings, key: Path, planted: str
) -> None:
    other = Path(folder_in(settings.storage, f"other-{'b' * 16}"))
    other.mkdir(parents=True)
    (other / "fleet.json").write_text("{}")
    if planted == "ending: a link":
        (other / "ending.json").symlink_to(key)
    elif planted == "ending: a terabyte":
        with (other / "ending.json").open("wb") as file:
            file.truncate(1 << 40)
    elif planted in PLANTED:
        path = Path(settings.storage) / PLANTED[planted]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if planted.endswith("pipe"):
            os.mkfifo(path)
        else:
            with path.open("wb") as file:
                file.truncate(1 << 40)
    elif planted == "fleet: a link":
        (Path(settings.storage) / "audits" / "other").symlink_to(key.parent)
    else:
        (Path(settings.storage) / "queue").mkdir()
        entry = f"0100-{0:013d}-{'a' * 12}-other-{'b' * 16}.json"
        (Path(settings.storage) / "queue" / entry).symlink_to(key)
    assert ID in {audit["id"] for audit in reader.get("/v1/audits").json()["audits"]}
    assert "digits" in {fleet["id"] for fleet in reader.get("/v1/fleets").json()["fleets"]}
    assert "classwise_storage_up 1.0" in reader.get("/metrics").text
    for path in ("/v1/progress", "/v1/failures"):
        assert reader.get(path).json().get("problem") is None
