from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.devices import machine_memory

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
