"""The device of a worker: which one it is, and what happens when its memory runs out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.errors import ClasswiseError, Problem, ResourceError

MESSAGES = (
    "out of memory",
    "can't allocate memory",  # torch on the CPU
    "failed to allocate memory",  # ONNX Runtime, whose errors are of its own type
    "bad_alloc",
    "alloc_failed",  # cuBLAS and cuDNN
)
"""What libraries say, for hardly any has a type of error for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library or the system ran out of memory; not what classwise itself says of it."""
    text = str(error).lower()
    matches = any(words in text for words in MESSAGES)
    return isinstance(error, MemoryError) or (matches and not isinstance(error, ClasswiseError))


GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a limit and of what is used, in version 2 and version 1 of control groups."""


def control_groups(controller: str, root: Path = GROUPS, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """Folders of the control groups that hold this process, each with all its parents, for each of them has limits.

    Of version 2, and of version 1 that of the `controller`. A container often sees its own group as the root, under a
    path that is only there on its host.
    """
    lines = ["0::/", f"1:{controller}:/"]
    with suppress(OSError):
        lines += membership.read_text().splitlines()
    for line in lines:
        number, names, path = f"{line}::".split(":", 2)
        homes = [root, root / "unified"] if number == "0" else [root / controller, root / names]
        if number == "0" or controller in names.split(","):
            parts = [part for part in path.rstrip(":").split("/") if part not in ("", ".", "..")]
            yield from (home.joinpath(*parts[:depth]) for home in homes for depth in range(len(parts), -1, -1))


def memory_limits(root: Path = GROUPS, membership: Path = MEMBERSHIP) -> Iterator[tuple[int, int]]:
    """Bytes that each control group of this process may take, and those that its processes take."""
    for group in control_groups("memory", root, membership):
        for limit, used in _MEMORY:
            with suppress(OSError, ValueError):
                yield int((group / limit).read_text()), int((group / used).read_text())


def machine_memory(root: Path = GROUPS, membership: Path = MEMBERSHIP) -> int:
    """Bytes that the processes of this machine, or of the smallest of this process's control groups, may take.

    0: unknown.
    """
    limits = [limit for limit, _ in memory_limits(root, membership)]
    with suppress(AttributeError, OSError, ValueError):  # no POSIX
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=0)


def take_at_most(size: int) -> None:
    """Let this process, and each that it starts, take so many bytes; more is a `MemoryError` there (on Linux)."""
    with suppress(ImportError):
        import resource

        limits = resource.getrlimit(resource.RLIMIT_DATA)
        soft = min([size, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_DATA, (soft, limits[1]))


def release(device: str) -> None:
    """Give the device's cached blocks back, so that a smaller batch finds room in one piece."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


@contextmanager
def threads_given_back() -> Iterator[None]:
    """A worker in this process, and whoever sets torch's threads: the caller's own work gets back what it had."""
    import torch

    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def started(wanted: str, threads: int) -> str:
    """Start torch with so many threads (0: its default) and return the device to use: "cpu" or "cuda".

    Raises:
        ResourceError: "cuda" is wanted and no GPU is visible.
    """
    import torch

    if threads:
        torch.set_num_threads(threads)
    cuda = torch.cuda.is_available()
    if wanted == "cuda" and not cuda:
        raise ResourceError(Problem("resources.gpus", "a visible GPU", "none", "set gpus: 0 or check CUDA"))
    return "cuda" if cuda and wanted in ("auto", "cuda") else "cpu"
