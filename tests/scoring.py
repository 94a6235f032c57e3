"""Scoring servers for tests: a small one that speaks the Open Inference Protocol, and MLflow's own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

from tests.ports import free_port

Score = Callable[[np.ndarray], np.ndarray]


def of_network(network: Any) -> Score:
    """Scores of a network as a server computes them."""

    def score(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(network(torch.from_numpy(images)).numpy())

    return score


@dataclass
class Served:
    """A server that runs.

    Attributes:
        score: (n, C, H, W) float32 to what is answered.
        faults: answers before the first good one: status and headers, one a request.
        images: how many it was sent in requests that it answered.
        busy, most_busy: requests at work at once.
    """

    score: Score
    shape: tuple[int, ...]
    token: str = ""
    metadata: bool = True
    seconds: float = 0.0
    faults: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    images: int = 0
    requests: int = 0
    busy: int = 0
    most_busy: int = 0
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def uri(self) -> str:
        return f"http:http://127.0.0.1:{self.port}/v2/models/net/infer"


@contextmanager
def kserve(score: Score, shape: tuple[int, ...] = (1, 8, 8), **options: Any) -> Iterator[Served]:
    """A server of one model `net` at a free port."""
    served = Served(score, shape, **options)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served))
    server.daemon_threads = True
    served.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tensor = {"name": "pixels", "datatype": "FP32", "shape": [-1, *served.shape]}
            known = served.metadata and self.path == "/v2/models/net"
            self._answer(*((200, {"name": "net", "inputs": [tensor]}) if known else (404, {"error": "unknown"})))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with served.lock:
                served.requests += 1
                fault = served.faults.pop(0) if served.faults else None
                served.busy += 1
                served.most_busy = max(served.most_busy, served.busy)
            try:
                time.sleep(served.seconds)
                if fault is not None:
                    answer = (fault[0], {"error": "overloaded"}, fault[1])
                elif served.token and self.headers.get("authorization") != f"Bearer {served.token}":
                    answer = (401, {"error": "who are you?"}, {})
                else:
                    answer = (200, self._scored(json.loads(body)["inputs"][0]), {})
            finally:
                with served.lock:  # before it is sent: who has the answer may ask again at once
                    served.busy -= 1
            self._answer(*answer)

        def _scored(self, tensor: dict[str, Any]) -> dict[str, Any]:
            assert (tensor["name"], tensor["datatype"]) == ("pixels", "FP32")
            images = np.array(tensor["data"], dtype=np.float32).reshape(tensor["shape"])
            with served.lock:
                served.images += len(images)
                scores = served.score(images)
            datatype = "FP32" if scores.dtype.kind == "f" else "INT64"
            output = {
                "name": "scores",
                "datatype": datatype,
                "shape": list(scores.shape),
                "data": scores.ravel().tolist(),
            }
            return {"model_name": "net", "model_version": "1", "outputs": [output]}

        def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-length": str(len(data)), **(headers or {})}.items():
                self.send_header(name, value)
            with suppress(BrokenPipeError):  # who asked did not wait
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


@contextmanager
def mlflow_server(model_uri: str) -> Iterator[str]:
    """MLflow's scoring server of a logged model, in a thread; yields the address that scores."""
    import uvicorn
    from mlflow.pyfunc import load_model, scoring_server

    config = uvicorn.Config(scoring_server.init(load_model(model_uri)), port=free_port(), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{config.port}/invocations"
    finally:
        server.should_exit = True
        thread.join()
