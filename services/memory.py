"""Memory that runs out: how it is told from other errors, and how what is held in vain is given back."""

from __future__ import annotations

from services.errors import ClasswiseError

SAID = (
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
    told = any(words in text for words in SAID)
    return isinstance(error, MemoryError) or (told and not isinstance(error, ClasswiseError))


def release(device: str) -> None:
    """Give the device's cached blocks back, so that a smaller batch finds room in one piece."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
