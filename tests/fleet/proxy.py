"""A wire to the server that a test can cut and mend: a proxy on a port of its own."""

import selectors
import socket
import threading
from contextlib import suppress


class Wire:
    def __init__(self, port: int) -> None:
        self._server_port, self._pairs = port, {}
        self._listener: socket.socket | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._ended = False
        self._thread: threading.Thread | None = None
        self.mend()

    def mend(self) -> None:
        self._ended = False
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close every connection, and refuse new ones."""
        self._ended = True
        self._thread.join()
        self._listener.close()
        for one in list(self._pairs):
            one.close()
        self._pairs.clear()

    def _carry(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._ended:
                for key, _ in ready.select(0.05):
                    if key.fileobj is self._listener:
                        near, _ = self._listener.accept()
                        far = socket.create_connection(("127.0.0.1", self._server_port))
                        self._pairs.update({near: far, far: near})
                        ready.register(near, selectors.EVENT_READ)
                        ready.register(far, selectors.EVENT_READ)
                        continue
                    self._pass_on(ready, key.fileobj)

    def _pass_on(self, ready: selectors.BaseSelector, one: socket.socket) -> None:
        other, data = self._pairs.get(one), b""
        with suppress(OSError):
            data = one.recv(2**16)
            if data and other is not None:
                other.sendall(data)
                return
        for end in (one, other):
            if end is not None and end in self._pairs:
                ready.unregister(end)
                del self._pairs[end]
                end.close()
