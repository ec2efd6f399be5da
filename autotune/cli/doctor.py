"""`autotune doctor`: what this machine has, and what would spoil a search on it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from autotune.cli.output import plain_console, say_json
from autotune.cli.target import AsJson, DeviceOption


def doctor(
    device: DeviceOption = None,
    json_output: AsJson = False,
) -> None:
    """Say what this machine has, and what would spoil a search.

    Looks at device, driver, torch, cores, memory and other tenants. Exit status 3 if no search should run here: no such
    device, or others keep more than half of the cores busy.
    """
    from autotune.core.requests import InspectRequest
    from autotune.launch.subprocess import SubprocessLauncher
    from autotune.preparation.settings import check_device
    from autotune.report.blocks import doctor_block
    from autotune.report.doctor import examine

    check_device(device)
    with tempfile.TemporaryDirectory(prefix="autotune-") as place, SubprocessLauncher(isolation="fork") as launcher:
        inspection = launcher.run(InspectRequest(device=device), Path(place))
        fork_server_bytes = launcher.fork_servers.resident_bytes if launcher.fork_servers else 0
    checks = examine(inspection, chosen=device is not None, fork_server_bytes=fork_server_bytes)
    if json_output:
        found = {"environment": inspection.environment, "failure": inspection.failure, "checks": checks}
        say_json(found)
    else:
        plain_console().print(doctor_block(checks), soft_wrap=True)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(3)
