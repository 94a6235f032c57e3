"""Texts of others as a terminal may be given them."""

from __future__ import annotations

import re

_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """A text as a terminal shows it: orders to it, and marks that turn text around, are written as escapes of JSON.

    Names come from the files of others, and logs from their models: an escape sequence moves the cursor, changes the
    window's title and writes to the clipboard.
    """
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))
