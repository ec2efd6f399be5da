"""Tools for tests of extensions: a simulated machine whose best configuration is known, and contracts.

`FakeLauncher` runs a whole search in milliseconds. A contract is a base class of tests: derive a class from
`LauncherContract` (in `launcher_contract`) or `KnobContract` (in `knob_contract`), name what is tested, and pytest runs
it. For samplers there is Optuna's own contract (`optuna.testing`). Nothing here imports pytest.
"""

from __future__ import annotations

from autotune.testing.launcher import FakeLauncher as FakeLauncher
from autotune.testing.machine import ENVIRONMENT as ENVIRONMENT
from autotune.testing.machine import FACTS as FACTS
from autotune.testing.machine import Machine as Machine
