from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.devices import machine_memory, memory_limits

TAKES = """
from services.devices import take_at_most
take_at_most(400 << 20)
bytearray(10 << 20)
try:
    bytearray(800 << 20)
except MemoryError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count it")
def test_a_process_takes_no_more_than_it_said() -> None:
    done = subprocess.run([sys.executable, "-c", TAKES], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "refused\n"


def test_the_memory_of_the_machine_is_known() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) << 10 if sys.platform == "linux" else 1 << 50
    assert 1 << 28 < machine_memory() <= total


@pytest.mark.parametrize(
    ("version", "membership"),
    [
        (2, "0::/pod.slice/box.scope/job"),
        (1, "9:name=systemd:/\n4:memory:/pod.slice/box.scope/job\n0::/"),
        (1, "4:cpu,memory:/pod.slice/box.scope/job\n"),
    ],
)
@pytest.mark.parametrize("smallest", ["", "pod.slice", "pod.slice/box.scope", "pod.slice/box.scope/job"])
def test_the_smallest_limit_among_a_group_and_its_parents_holds(
    version: int, membership: str, smallest: str, tmp_path: Path
) -> None:
    """A process in a group without a limit is killed by that of a parent: a pod's, a slice's."""
    home = tmp_path / "memory" if version == 1 else tmp_path
    limit, used = (
        ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    for group in ("", "pod.slice", "pod.slice/box.scope", "pod.slice/box.scope/job"):
        (home / group).mkdir(parents=True, exist_ok=True)
        none = "max" if version == 2 else str(2**63 - 4096)
        (home / group / limit).write_text(f"{2**28 if group == smallest else none}\n")
        (home / group / used).write_text(f"{2**20}\n")
    (tmp_path / "own").write_text(membership)
    assert machine_memory(tmp_path, tmp_path / "own") == 2**28
    assert (2**28, 2**20) in list(memory_limits(tmp_path, tmp_path / "own"))


@pytest.mark.parametrize("membership", ["0::/../../other", "4:memory:/docker/0123\n", "", "x", "0::"])
def test_a_container_sees_its_own_group_as_the_root(membership: str, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    for name in ("memory.max", "memory.current", "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"):
        (tmp_path / name).write_text(f"{2**29}\n")
    (tmp_path / "own").write_text(membership)
    assert machine_memory(tmp_path, tmp_path / "own") == machine_memory(tmp_path, tmp_path / "nothing") == 2**29
