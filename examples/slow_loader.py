"""Images that arrive from storage with 10 ms of latency each: here the loader decides, not the model.

    autotune search examples/slow_loader.py

The storage is a small HTTP server on this machine's loopback, in a thread of the training process; it waits as a
remote one would and then sends a compressed image. Waiting needs no core, so loader workers help even where cores are
few: each keeps a connection of its own, and two fetch twice as much as one.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import os
import threading
import time
import zlib
from collections.abc import Iterable

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import Dataset

LATENCY_SECONDS = 0.010  # modest: Amazon's guidelines expect 100 to 200 ms for a small object from S3
ENLARGED = 4  # each scanned pixel becomes 4x4
SIDE = 8 * ENLARGED

baseline = {"batch_size": 32}
space = {"num_workers": (0, 8)}  # more than the cores at hand: they wait more than they work


class Storage(http.server.BaseHTTPRequestHandler):
    """Answers `GET /17` with image 17: `SIDE` x `SIDE` bytes, compressed."""

    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # header and body are two writes; Nagle would hold the second for 40 ms

    def do_GET(self) -> None:
        """Wait as a network would, then send."""
        time.sleep(LATENCY_SECONDS)
        body = _images()[int(self.path.removeprefix("/"))]
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a line for each image would drown the log."""


class QuietServer(http.server.ThreadingHTTPServer):
    """One daemon thread for each connection; ends with its process."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a worker that is stopped leaves its connection without a farewell."""


class RemoteDigits(Dataset[tuple[Tensor, int]]):
    """Items are a float32 image of shape (1, 32, 32), pixels in 0..1, fetched when asked for, and its class 0..9."""

    def __init__(self) -> None:
        self.port = serve()
        self.classes = load_digits().target.tolist()

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        connection = _connection(os.getpid(), self.port)
        connection.request("GET", f"/{index}")
        pixels = np.frombuffer(zlib.decompress(connection.getresponse().read()), dtype=np.uint8)
        image = torch.from_numpy(pixels.astype(np.float32).reshape(1, SIDE, SIDE)) / 255
        return image, self.classes[index]


def dataset() -> RemoteDigits:
    return RemoteDigits()


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 4) ** 2, 10),
    )


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, classes = batch
    return nn.functional.cross_entropy(model(images), classes)


def optimizer(params: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.05, momentum=0.9)


@functools.cache
def serve() -> int:
    """Start the storage once in this process, and tell its port; it ends with the process."""
    _images()  # before the first request, not while it is timed
    server = QuietServer(("127.0.0.1", 0), Storage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


@functools.cache
def _connection(process: int, port: int) -> http.client.HTTPConnection:
    """The connection of this process; a forked worker has another number, and so opens its own."""
    return http.client.HTTPConnection("127.0.0.1", port)


@functools.cache
def _images() -> tuple[bytes, ...]:
    """All images as the storage keeps them."""
    scans = (load_digits().images * (255 / 16)).astype(np.uint8)
    return tuple(zlib.compress(np.kron(scan, np.ones((ENLARGED, ENLARGED), np.uint8)).tobytes()) for scan in scans)
