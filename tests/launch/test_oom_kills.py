"""The kernel's count of out-of-memory kills is found where each version of control groups keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.launch.oom import oom_kills


@pytest.mark.parametrize(
    ("groups", "counter", "content"),
    [
        ("0::/user/job\n", "user/job/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n"),
        ("0::/outside/of/container\n", "memory.events", "oom 2\noom_kill 2\n"),
        ("4:memory:/docker/abc\n0::/\n", "memory/docker/abc/memory.oom_control", "under_oom 0\noom_kill 2\n"),
        ("4:memory:/docker/abc\n0::/\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"),
    ],
    ids=["v2", "v2 in a container", "v1", "v1 in a container"],
)
def test_the_counter_of_our_own_group_is_read(tmp_path: Path, groups: str, counter: str, content: str) -> None:
    for place, text in (("proc/self/cgroup", groups), (f"sys/fs/cgroup/{counter}", content)):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)

    assert oom_kills(tmp_path) == 2


def test_no_control_groups_mean_unknown_and_not_zero(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) is None
