"""Runs a client as its user would: its own home, a small repository to work in, an environment."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from client_tests.outside import Outside
from client_tests.recorder import Recorder

ROOT = Path(__file__).parent.parent
DEADLINE = 300.0
"""Seconds for a run of a client. The demo model may take a minute for a long prompt."""


@cache
def programs(client: str) -> Path:
    """The folder of the programs of a client of `clients.toml`, installed if need be."""
    script = ROOT / "scripts" / "install-client"
    command = [sys.executable, script, client]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())


@dataclass(frozen=True)
class Run:
    """What a program that has ended left."""

    code: int
    stdout: str
    stderr: str

    def ok(self) -> "Run":
        assert self.code == 0, self
        return self

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.ok().stdout)

    @property
    def json_lines(self) -> list[Any]:
        """Those lines of standard output that are JSON objects."""
        lines = self.ok().stdout.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.stdout[-4000:]}\n{self.stderr[-4000:]}"


class Desk:
    """Where a client works: `home` and `work` are its folders, `arriero` is what it talks to."""

    def __init__(self, folder: Path, arriero: Recorder, outside: Outside) -> None:
        self.arriero = arriero
        self.outside = outside
        self.home = folder / "home"
        self.work = folder / "work"
        for each in (self.home, self.work):
            each.mkdir()
        (self.work / "notes.md").write_text("# Notes\n\nA llama carries loads over mountains.\n")
        self._git("init", "--quiet")
        self._git("add", ".")
        self._git("commit", "--quiet", "--message", "Notes")

    def _git(self, *arguments: str) -> None:
        who = ["-c", "user.name=Tester", "-c", "user.email=tester@localhost"]
        subprocess.run(["git", *who, *arguments], cwd=self.work, check=True)

    def write(self, path: str, text: str) -> None:
        """Writes a file of the client's settings, below its home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    async def run(
        self,
        client: str,
        program: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        deadline: float = DEADLINE,
    ) -> Run:
        """Runs a program of a client to its end, with nothing of our own environment but PATH."""
        process = await self.start(client, program, *arguments, env=env)
        return await self._ended(process, [program, *arguments], deadline)

    async def start(
        self,
        client: str,
        program: str,
        *arguments: str,
        env: dict[str, str] | None = None,
        output: int = asyncio.subprocess.PIPE,
    ) -> asyncio.subprocess.Process:
        """Starts what `run` runs; the caller ends it with `end_group`.

        `output`: a file for both its outputs, which otherwise have to be read.
        """
        folder = await asyncio.to_thread(programs, client)
        own = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8"}
        return await asyncio.create_subprocess_exec(
            folder / program,
            *arguments,
            cwd=self.work,
            env=own | self.outside.settings | (env or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    async def _ended(
        self, process: asyncio.subprocess.Process, command: list[str], deadline: float
    ) -> Run:
        try:
            async with asyncio.timeout(deadline):
                out, err = await process.communicate()
        except TimeoutError:
            raise AssertionError(
                f"{command} did not end in {deadline} s; {self.arriero.exchanges}"
            ) from None
        finally:
            end_group(process)
            await process.wait()
        assert process.returncode is not None
        return Run(process.returncode, out.decode(), err.decode())


def end_group(process: asyncio.subprocess.Process) -> None:
    """Ends what a client left running, too: it is the leader of its own process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
