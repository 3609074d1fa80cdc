"""Faults of several kinds from one seed, under load: the short form of `python -m bench.chaos`.

Whoever may make network namespaces tries a partition, too.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

WITHIN = 280.0
"""Seconds, after which it hangs: rounds, and `--quiet` after each, on a slow machine."""
FAULTS = ["kill-engine", "stop-engine", "vanish", "restart-balancer"]
ANYWHERE = ("--seed", "178", "--rounds", "2", "--faults", ",".join(FAULTS))
IN_NAMESPACES = ("--seed", "1243", "--rounds", "3", "--faults", ",".join([*FAULTS, "partition"]))
PATIENT = ("--quiet", "30")
"""Tests share their cores with other tests: only what is wrong or endless counts, not how slow."""


def arguments() -> tuple[str, ...]:
    has_network = os.geteuid() == 0 and Path("/dev/net/tun").exists()
    return IN_NAMESPACES if has_network else ANYWHERE


@pytest.mark.timeout(WITHIN + 20)
async def test_every_request_ends_once_and_right_whatever_strikes() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.chaos", "--agents", "2", *PATIENT, *arguments()),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=Path(__file__).parent.parent,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WITHIN):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # its daemons, too
            await process.wait()
    shown = said.decode()
    assert process.returncode == 0, shown
    table = shown.partition("allowed")[2]
    assert all(fault in table for fault in FAULTS), shown
