"""YAML that others wrote: bounded while it is read, and whatever is wrong with it is a `ValueError`."""

from __future__ import annotations

from typing import Any

import yaml

from services import limits

NODES = 50_000
"""Values that are written, and values after aliases are expanded: reading one takes some 20 microseconds."""
DIGITS = 400
"""Characters of a number: YAML 1.1 multiplies what stands between colons."""
_NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


class TooManyError(Exception):
    """More values than are read."""


class Loader(yaml.SafeLoader):
    """Stops at too many values, at deep brackets while it scans, for which PyYAML does the more the more are open, and
    at numbers of hundreds of characters before they are computed.

    Raises:
        TooManyError, RecursionError, ValueError: at these.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        if self.nodes > NODES:
            raise TooManyError
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level > limits.DEPTH:
            raise RecursionError
        super().fetch_flow_collection_start(token)

    def compose_scalar_node(self, anchor: Any) -> Any:
        node = super().compose_scalar_node(anchor)
        if node.tag in _NUMBERS and len(node.value) > DIGITS:
            raise ValueError(f"a number of {len(node.value)} characters on line {node.start_mark.line + 1}")
        return node


def parsed(text: str) -> Any:
    """The value of a YAML text; what stands in it under many names is counted under each.

    Raises:
        ValueError: it is no YAML, or exceeds one of `services.limits`.
    """
    try:
        data = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None
    except TooManyError:
        raise ValueError(f"more than {NODES:,} values") from None
    except RecursionError:
        raise ValueError("YAML nested hundreds of levels deep") from None
    for _, expected, actual in limits.excesses(data):
        raise ValueError(f"{actual} where {expected} are allowed")
    return data
