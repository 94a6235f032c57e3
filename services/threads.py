"""Pools of threads for what lets go of the interpreter: decoders, NumPy's generators, reading ahead."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache


def cores() -> int:
    """Threads to use: as many as torch was set to use, or where it was not loaded, the machine's cores."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else os.cpu_count() or 1


@cache
def pool(threads: int, name: str) -> ThreadPoolExecutor:
    """The process' pool of that name and size."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)
