"""What is opened lies in the granted folders, whatever links say and whenever they are changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from services.errors import SourceError
from services.loading.confined import confined_to, files_below, is_confined, open_granted, trust, within, within_tree
from services.loading.fingerprint import existing
from services.loading.models.source import load_model
from services.loading.samples.listing import class_folders, listing
from services.loading.samples.metadata import read_metadata
from services.loading.samples.schemes import imagefolder
from services.loading.samples.source import open_samples
from services.records import ModelSpec, SampleSpec
from services.running.workers import Worker

SECRET = "swordfish-0123456789"


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "granted" / "sub").mkdir(parents=True)
    (tmp_path / "granted" / "mine").write_text("file_name\n")
    return tmp_path / "granted"


def test_a_file_is_granted_by_where_it_is_and_not_by_what_it_is_called(granted: Path) -> None:
    (granted / "out").symlink_to(granted.parent / "private" / "secret")
    (granted / "in").symlink_to(granted / "mine")
    (granted / "up").symlink_to(granted.parent)
    with confined_to([str(granted)]):
        for good in (granted / "mine", granted / "in", granted / "sub" / ".." / "mine"):
            assert within(good, "x") == existing(good, "x") == good
            open_granted(good, "x").close()
        for bad in (granted / "out", granted / ".." / "private" / "secret", granted / "up" / "private" / "secret"):
            for look in (within, existing, open_granted):
                with pytest.raises(SourceError, match="leads out of"):
                    look(bad, "x")
        with pytest.raises(SourceError, match="leads out of"):  # as a name that begins alike
            within(granted.with_name("granted-not") / "x", "x")
    assert existing(granted / "out", "x") == granted / "out"  # a laptop confines nothing


def test_a_tree_is_granted_when_no_link_in_it_leads_out(granted: Path) -> None:
    (granted / "sub" / "in").symlink_to(granted / "mine")
    with confined_to([str(granted)]):
        assert within_tree(granted, "x") == existing(granted, "x", folder=True) == granted
        (granted / "sub" / "folder").symlink_to(granted.parent / "private")
        with pytest.raises(SourceError, match="sub/folder, which leads out of"):
            existing(granted, "x", folder=True)


def test_a_folder_of_the_programs_own_is_granted(granted: Path) -> None:
    own = granted.parent / "private"
    with confined_to([str(granted / "sub")]):
        with pytest.raises(SourceError):
            within(own / "secret", "x")
        trust(own)
        assert within(own / "secret", "x") == own / "secret"


def test_a_link_that_is_changed_while_it_is_opened_shows_nothing(granted: Path, tmp_path: Path) -> None:
    """The loser of the race reads its own file or is refused, a thousand times."""
    table, over = granted / "metadata.csv", threading.Event()
    table.symlink_to(granted / "mine")

    def flip() -> None:
        number = 0
        while not over.is_set():
            other = granted / "other"
            other.symlink_to([granted / "mine", tmp_path / "private" / "secret"][number % 2])
            other.replace(table)
            number += 1

    thread = threading.Thread(target=flip)
    thread.start()
    outcomes = set()
    try:
        with confined_to([str(granted)]):
            for _ in range(1000):
                try:
                    outcomes.add(str(read_metadata(table)))
                except SourceError as error:
                    outcomes.add(" ".join(problem.found for problem in error.problems))
    finally:
        over.set()
        thread.join()
    assert len(outcomes) == 2 and SECRET not in str(outcomes)


def test_a_worker_is_confined_as_its_driver_is(granted: Path) -> None:
    with confined_to([]):
        Worker("cpu", 1, confine=(str(granted),))
        with pytest.raises(SourceError, match="leads out of"):
            existing(granted.parent / "private" / "secret", "x")


def test_no_name_of_a_folder_elsewhere_is_told(granted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class folder becomes a link between the look and the listing: names of others' files stood in the error."""
    private = granted.parent / "private"
    (private / f"{SECRET}.weird").touch()
    (private / SECRET).mkdir()
    for name in ("a", "b"):
        (granted / "set" / name).mkdir(parents=True)
        Image.new("L", (8, 8), 40 * len(name)).save(granted / "set" / name / "0.png")
    real = imagefolder.class_folders

    def swapped(root: Path) -> Any:
        found = real(root)
        (root / "b").rename(granted / "b")
        (root / "b").symlink_to(private)
        return found

    monkeypatch.setattr(imagefolder, "class_folders", swapped)
    with confined_to([str(granted)]), pytest.raises(SourceError, match=r"set/b, which leads out of them") as refused:
        open_samples(SampleSpec(f"imagefolder:{granted}/set?mode=L"))
    assert SECRET not in str(refused.value) and "weird" not in str(refused.value)


def test_folders_are_listed_as_they_are_open(granted: Path) -> None:
    private = granted.parent / "private"
    (granted / "out").symlink_to(private)
    (granted / "in").symlink_to(granted / "sub")
    (granted / "sub" / "file").touch()
    with confined_to([str(granted)]):
        for look in (lambda path: list(files_below(path, "x")), class_folders, listing):
            with pytest.raises(SourceError, match=r"out, which leads out of them"):
                look(granted / "out")
        with pytest.raises(SourceError, match=r"out, which leads out of them"):
            list(files_below(granted, "x", follow=True))
        assert list(files_below(granted, "x")) == [granted / "mine", granted / "sub" / "file"]
        for name in (private / "secret", private / "nothing"):
            (granted / "link").unlink(missing_ok=True)
            (granted / "link").symlink_to(name)
            with pytest.raises(SourceError, match=r"link, which leads out of them"):
                existing(granted / "link", "x")


def field(tag: bytes, content: bytes) -> bytes:
    """A field of a protocol buffer; its length as a number of four bytes."""
    size = len(content)
    return tag + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21]) + content


TAGS = {"as usual": b"\x6a", "with bits beyond those that are read": b"\xea\x80\x80\x80\x10"}


@pytest.mark.parametrize("tag", TAGS)
def test_a_graph_takes_no_weights_from_where_the_process_runs(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime looks there for what it was not given, and finds entries that another reader of the file does not.

    On the local stack the secrets lie there.
    """
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    (tmp_path / "granted").mkdir()
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "api.token").write_bytes(bytes(64 * 10 * 4))
    monkeypatch.chdir(tmp_path / "cwd")
    weights = onnx.TensorProto(name="w", data_type=1, dims=[64, 10], data_location=onnx.TensorProto.EXTERNAL)
    entry = field(b"\x0a", b"location") + field(b"\x12", b"api.token")
    shape = onnx.helper.make_tensor("shape", onnx.TensorProto.INT64, [2], [-1, 64])
    steps = ("Reshape", ["x", "shape"], ["flat"]), ("MatMul", ["flat", "w"], ["y"])
    nodes = [onnx.helper.make_node(*step) for step in steps]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", ["n", 1, 8, 8]), ("y", None)))
    graph = onnx.helper.make_graph(nodes, "g", [x], [y], [shape]).SerializeToString()
    graph += field(b"\x2a", weights.SerializeToString() + field(TAGS[tag], entry))
    head = onnx.ModelProto(ir_version=8, opset_import=[onnx.helper.make_opsetid("", 17)]).SerializeToString()
    (tmp_path / "granted" / "m.onnx").write_bytes(head + field(b"\x3a", graph))
    assert onnxruntime.InferenceSession(head + field(b"\x3a", graph), providers=["CPUExecutionProvider"])
    refused = r"a file at .*granted/api.token|more than 32 bits"
    with confined_to([str(tmp_path / "granted")]), pytest.raises(SourceError, match=refused):
        load_model(ModelSpec("m", f"onnx:{tmp_path}/granted/m.onnx"))


def test_where_no_folder_is_granted_nothing_is_opened(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with confined_to([]):
        assert is_confined()
        with pytest.raises(SourceError, match="which leads out of them"):
            open_granted(tmp_path / "x", "x")
        Worker("cpu", 1, confine=None)  # in the driver's process: as settled there
        assert is_confined()
    with confined_to(None), open_granted(tmp_path / "x", "x") as file:
        assert not is_confined() and file.read() == b"x"
