"""What a signature of a delivery proves to who receives it."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from jobs.notify.signing import TOLERANCE, signature, verify

SECRET = "a secret of the tests"


def test_what_a_signature_proves() -> None:
    header = signature(b"body", SECRET, 1000)
    assert header.startswith("t=1000,v1=") and verify(b"body", header, SECRET, now=1000 + TOLERANCE)
    assert not verify(b"body", header, SECRET, now=1001 + TOLERANCE)
    assert not verify(b"body", header, SECRET, now=999 - TOLERANCE)
    assert not verify(b"body", header, "another", now=1000)
    assert not verify(b"body", header.replace("t=1000", "t=1001"), SECRET, now=1000)
    assert verify(b"body", header.replace(",v1", ",v1=00,v1"), SECRET, now=1000)
    for wrong in ("", "t=1000", "v1=00", "t=x,v1=00", "t=1000,t=1000,v1=0", "t=\u0661,v1=\u00e9", "t=" + "9" * 30):
        assert not verify(b"body", wrong, SECRET, now=1000)
    assert not verify(b"body", signature(b"body", "", 1000), "", now=1000)


@given(st.binary(max_size=200), st.text(min_size=1, max_size=40), st.integers(0, 2**40), st.text(max_size=60))
def test_what_was_signed_verifies_and_no_other_text_does(body: bytes, secret: str, at: int, other: str) -> None:
    header = signature(body, secret, at)
    assert verify(body, header, secret, now=at) and not verify(body + b"x", header, secret, now=at)
    assert verify(body, other, secret, now=at) is (other == header)


def test_a_receiver_needs_the_standard_library_alone() -> None:
    code = "import sys, jobs.notify.signing; print(sorted({'pydantic', 'torch', 'requests'} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"
