"""Reading another machine's files: limits that a container or an administrator set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracea.profiler import machine

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some Processor
flags\t\t: fpu avx2 fma hypervisor

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_the_first_processor_counts(tmp_path: Path) -> None:
    found = machine.processor(write(tmp_path, {"proc/cpuinfo": CPUINFO}))
    assert (found.model, found.vendor) == ("Some Processor", "GenuineIntel")
    assert found.flags == {"fpu", "avx2", "fma", "hypervisor"}
    assert found.virtual


def test_an_arm_processor_is_named_by_its_numbers(tmp_path: Path) -> None:
    text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    found = machine.processor(write(tmp_path, {"proc/cpuinfo": text}))
    assert found.model == "implementer 0x41 part 0xd0c"
    assert "asimd" in found.flags


def test_a_machine_without_proc_has_no_flags_and_no_quota(tmp_path: Path) -> None:
    assert machine.processor(tmp_path).flags == frozenset()
    assert machine.cpu_quota(tmp_path) is None
    assert machine.cores_usable(tmp_path) == len(machine.cores_allowed())


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        # The parent's limit counts for the child.
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/job\n2:memory:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "50000\n",
            },
            4.0,
        ),
        ({"proc/self/cgroup": "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n"}, None),
        # Inside a container the group's path is the host's, and the limit lies at the mount point.
        ({"proc/self/cgroup": "0::/host/abc\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1.0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "garbage\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 0\n"}, None),
    ],
)
def test_the_quota_is_the_tightest_of_all_groups(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert machine.cpu_quota(write(tmp_path, files)) == quota


def test_usable_cores_are_allowed_ones_cut_to_the_quota_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cores_allowed", lambda: (0, 1, 2, 3))
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"})
    assert machine.cores_usable(root) == 3
    (root / "sys/fs/cgroup/cpu.max").write_text("1000 100000\n", encoding="utf-8")
    assert machine.cores_usable(root) == 1


def test_affinity_limits_the_cores_allowed() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machine.cores_allowed() == (min(before),)
    finally:
        os.sched_setaffinity(0, before)
