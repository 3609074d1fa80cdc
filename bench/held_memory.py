"""How much memory callers can take from a balancer: `python -m bench.held_memory`.

The balancer runs with the default settings in a memory cgroup of `--limit`, version 1 or 2, which
needs root; without one its peak is measured and nothing limits it. All of these go on at once for
`--seconds`, beside a caller in a process of its own that sends one short request after the other:

- 32 WebSockets without a key that send megabytes of messages without an end,
- 24 bodies of 15 MB of one key, which drip at their end,
- 300 bodies of 7.9 MB of token ids of another, which wait for a slot,
- 40 responses in the background with bodies of 15 MB,
- 8 answers of 40,000 tokens with `top_logprobs` of 20, which are not streamed.

Prints the peak of the balancer's memory and of the cgroup, what the attackers were answered, and
how many of the modest caller's requests were answered. It fails if the balancer ended.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from arriero.balancer.access.access_key import new_key
from integration_tests.daemons import BIN, Daemon, Fleet
from integration_tests.nobody_else_notices import greedy

MB = 10**6
ADMIN = new_key(b"a" * 32)
NUM_TOKENS = 40_000
AT_ONCE = 4
"""Bodies that are sent at once: the attackers have one line, and the balancer two cores."""

RETRY = 1.0
"""Seconds after which an attacker tries again, as `Retry-After` says."""

GROUPS = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A cgroup that limits the memory of the processes that are started in it."""

    def __init__(self, limit: int) -> None:
        is_first = (GROUPS / "memory").is_dir()
        self._folder = (GROUPS / "memory" if is_first else GROUPS) / f"arriero-{os.getpid()}"
        limit_file, peak = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        self._limit_file, self._peak = (
            (limit_file, peak) if is_first else ("memory.max", "memory.peak")
        )
        self.is_there = False
        with suppress(OSError):
            self._folder.mkdir()
            (self._folder / self._limit_file).write_text(str(limit))
            self.is_there = True

    def programs(self, folder: Path) -> Path:
        """A folder whose `balancer` starts in the group."""
        join = f"echo $$ > {self._folder}/cgroup.procs\n" if self.is_there else ""
        script = folder / "balancer"
        script.write_text(f'#!/bin/sh\n{join}exec {BIN}/balancer "$@"\n')
        script.chmod(0o755)
        return folder

    def peak(self) -> float:
        """The most that the group had, in MB."""
        if not self.is_there:
            return 0.0
        with suppress(OSError):
            return int((self._folder / self._peak).read_text()) / MB
        return 0.0

    def close(self) -> None:
        """All processes in it have ended."""
        with suppress(OSError):
            self._folder.rmdir()


def resident(balancer: Daemon) -> tuple[float, float]:
    """The balancer's memory now and at its peak, in MB."""
    try:
        lines = Path(f"/proc/{balancer.process.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    values = dict(line.split(":", 1) for line in lines)
    now, peak = (values.get(name, "0 kB").split()[0] for name in ("VmRSS", "VmHWM"))
    return int(now) * 1024 / MB, int(peak) * 1024 / MB


Attack = Callable[[], Awaitable[object]]


async def repeated(name: str, attack: Attack, seen: Counter[tuple[str, object]]) -> None:
    """One after the other, until cancelled; what each was answered is counted."""
    while True:
        try:
            outcome = await attack()
        except (OSError, ValueError):
            outcome = "cut"
        except Exception as error:  # of an HTTP client whose balancer may have ended
            outcome = type(error).__name__
        seen[name, outcome[0] if isinstance(outcome, tuple) else outcome] += 1
        await asyncio.sleep(RETRY)


def modest(url: str, key: str, seconds: float) -> list[tuple[int, float]]:
    """The statuses of short requests, one after the other, and how long each took."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    seen: list[tuple[int, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        asked = Request(f"{url}/api/v1/generate", greedy.generate("hello"), headers)
        try:
            with urlopen(asked, timeout=seconds) as response:
                status = response.status
        except HTTPError as error:
            status = error.code
        except OSError:
            status = 0
        seen.append((status, time.monotonic() - begun))
        time.sleep(0.1)
    return seen


async def attacked(
    fleet: Fleet, balancer: Daemon, seconds: float, processes: ProcessPoolExecutor
) -> None:
    """Run all attacks and print what came of them."""
    names = ("drips", "waits", "background", "likely", "modest")
    keys = {name: await greedy.make_key(fleet, ADMIN, name) for name in names}
    agent = await greedy.make_key(fleet, ADMIN, "rack", "agent")
    drips = greedy.generate("x" * 15 * MB)
    waits = greedy.generate(greedy.token_ids(79 * MB // 10), greedy.FULL)
    background = greedy.background(15 * MB)
    likely = greedy.generate(greedy.MUCH, max_tokens=NUM_TOKENS, logprobs=True, top_logprobs=20)

    turn = asyncio.Semaphore(AT_ONCE)

    def post(name: str, body: bytes, path: str = "/api/v1/generate", **more: bool) -> Attack:
        return lambda: greedy.post(fleet, path, keys[name], body, turn=turn, **more)

    attacks: list[tuple[str, int, Attack]] = [
        ("likely", 8, post("likely", likely)),
        ("strangers", 32, lambda: greedy.unfinished_message(fleet, 30 * MB)),
        ("background", 40, post("background", background, "/v1/responses")),
        ("drips", 24, post("drips", drips, drips=True)),
        ("waits", 300, post("waits", waits)),
    ]
    seen: Counter[tuple[str, object]] = Counter()
    async with greedy.agents(fleet, agent, most=NUM_TOKENS):
        tasks = [
            asyncio.create_task(repeated(name, attack, seen))
            for name, num, attack in attacks
            for _ in range(num)
        ]
        end = time.monotonic() + seconds
        asking = asyncio.get_running_loop().run_in_executor(
            processes, modest, fleet.inference, keys["modest"], seconds
        )
        while time.monotonic() < end and balancer.process.returncode is None:
            await asyncio.sleep(5)
            print(f"{resident(balancer)[0]:7.0f} MB", flush=True)
        asked = await asking
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    seen.update(("modest", status) for status, _ in asked)
    print(f"the modest caller's longest wait: {max(each for _, each in asked):.1f} s")
    for (name, outcome), num in sorted(seen.items(), key=str):
        print(f"{name:>11} {outcome}: {num}")


async def measured(limit: int, seconds: float) -> bool:
    """Whether the balancer lived."""
    group = MemoryGroup(limit)
    if not group.is_there:
        print("no cgroup can be made here: nothing limits the balancer's memory")
    try:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fleet = Fleet(stack, group.programs(folder), forks=False)
            await fleet.open_client()
            (folder / "admin.key").write_text(ADMIN)
            balancer = await fleet.start_balancer(
                admin_key_file=folder / "admin.key",
                buffered_request_timeout=None,
                token_timeout=None,
                heartbeat_timeout=60,
            )
            print(f"at the start: {resident(balancer)[0]:.0f} MB")
            processes = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
            await attacked(fleet, balancer, seconds, processes)
            lived = balancer.process.returncode is None
            print(
                f"peak: {resident(balancer)[1]:.0f} MB resident, {group.peak():.0f} MB in the group"
            )
            print(
                "the balancer lived"
                if lived
                else f"the balancer ended: {balancer.process.returncode}"
            )
            return lived
    finally:
        group.close()


def main() -> None:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit", type=int, default=2 * 2**30, help="bytes of memory")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    if not asyncio.run(measured(given.limit, given.seconds)):
        sys.exit(1)


if __name__ == "__main__":
    main()
