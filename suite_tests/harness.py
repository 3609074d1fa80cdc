"""Runs suites of others, and judges what they find by the list of what may fail."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from client_tests.program import programs

SMOLLM2 = "SmolLM2"
"""The model that the suites ask."""

DEMO = "arriero-demo"
"""The demo model, for what SmolLM2 cannot do: it reasons."""

ALIASES = {
    SMOLLM2: [
        *("gpt-6-astra", "gpt-3.5-turbo-instruct", "text-embedding-3-small"),
        *("claude-opus-5-5", "model_id", "openbmb/MiniCPM-SALA-FC"),
    ],
    DEMO: ["gpt-5", "claude-sonnet-4"],
}
"""Names that suites have in them."""


async def run(
    suite: str,
    program: str,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Runs a program of a suite of `suites.toml` to its end; returns its exit code and output.

    What it writes to standard error is shown with the test. `env` is its whole environment.
    """
    folder = await asyncio.to_thread(programs, suite)
    process = await asyncio.create_subprocess_exec(
        folder / program, *arguments, env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def judge(found: Mapping[str, str | None], may_fail: Mapping[str, str]) -> None:
    """Fails if the suite's findings are not those that are listed.

    `found` says of each check what is wrong, or `None` if it passed; `may_fail` says why checks may
    fail, by their names or by how these begin (`6.*`). A check that is listed and passes is an
    error, too: so the list is never longer than it has to be.
    """
    assert found, "the suite has run no checks"
    listed = {name: [each for each in may_fail if _is_meant(name, each)] for name in found}
    new = [f"{name}: {finding}" for name, finding in found.items() if finding and not listed[name]]
    assert not new, "\n".join([f"{len(new)} of {len(found)} checks fail:", *new])
    passing = [name for name, patterns in listed.items() if patterns and found[name] is None]
    unused = may_fail.keys() - {each for patterns in listed.values() for each in patterns}
    assert not passing, f"listed as failing, but these pass: {passing}"
    assert not unused, f"listed as failing, but there are no such checks: {sorted(unused)}"


def _is_meant(name: str, listed: str) -> bool:
    return name.startswith(listed[:-1]) if listed.endswith("*") else name == listed
