"""A server for all tests of the fleet, and real workers."""

from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet
from tests.postgres import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture
def fleet(server: Server, tmp_path_factory) -> Iterator[Fleet]:
    """Nothing of it is left afterwards."""
    with Fleet(server, tmp_path_factory.mktemp("fleet") / "files") as made:
        yield made
