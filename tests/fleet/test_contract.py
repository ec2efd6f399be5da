"""A fleet with one real worker keeps the contract for launchers."""

import pytest

from autotune.launch.base import Launcher
from autotune.testing.launcher_contract import LauncherContract


class TestFleetLauncher(LauncherContract):
    @pytest.fixture(autouse=True)
    def _one_for_all(self, fleet) -> None:
        fleet.worker("one")
        self.made = fleet.launcher()

    def launcher(self) -> Launcher:
        return self.made
