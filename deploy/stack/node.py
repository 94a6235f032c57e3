"""``ray start`` for a further node of the stack on 127.0.0.1: Ray itself starts one only where the network reaches it.

``python -m deploy.stack.node start --address 127.0.0.1:PORT ...``
"""

from __future__ import annotations

from ray._private import ray_constants, services
from ray.scripts.scripts import main


def _loopback(address: str | None = None) -> str:
    return "127.0.0.1"


if __name__ == "__main__":
    ray_constants.ENABLE_RAY_CLUSTER = True  # its own check; what it starts reads the variable, which says no
    services.get_node_ip_address = _loopback
    main()
