"""Tries the files of a release as a user would, on a host without a compiler."""

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "make")


class TrialFailed(Exception):
    """A trial failed. The message is one sentence that says why."""


class Trial:
    """A new environment in `folder`, whose programs find only the environment's own programs."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self._bin = folder / "bin"
        self.python = self._bin / "python"
        self._environment = {
            "PATH": str(self._bin),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            # Registries are the host's own business.
            **{name: text for name, text in os.environ.items() if name.startswith("PIP_")},
        }
        there = [name for name in COMPILERS if shutil.which(name, path=str(self._bin))]
        if there:
            raise TrialFailed(f"the environment has {', '.join(there)}")

    def install(self, wheel: Path, engine: Path) -> None:
        """Install an agent from both wheels. Raises `TrialFailed`."""
        constraints = ("-c", str(ROOT / "constraints.txt"))
        self.run("python", "-m", "pip", "install", "--quiet", *constraints, str(engine))
        self.run("python", "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[agent]")

    def probe(self) -> dict[str, Any]:
        """Return what an agent's probe reports about this host. Raises `TrialFailed`."""
        said = self.run("python", "-m", "arriero.agent.probe")
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    def doctor(self) -> str:
        """Return doctor's line about llama.cpp.

        Raises `TrialFailed` if the line names no variant.
        """
        said = self._output("arriero", "doctor", "--url", "http://127.0.0.1:9")
        found = [line for line in said.splitlines() if "llama.cpp is installed" in line]
        if not found or "with kernels for" not in found[0]:
            raise TrialFailed(f"doctor names no variant of llama.cpp's kernels: {said}")
        return found[0].lstrip("✓ ")

    def demo(self) -> None:
        """Check that a balancer and two agents answer a question. Raises `TrialFailed`."""
        self.run("python", "-m", "demo.run", "--once")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program. Returns its output. Raises `TrialFailed` if the exit code is not 0."""
        done = self._done(program, arguments)
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
            raise TrialFailed(f"{program} {' '.join(arguments[:3])} failed:\n{last}")
        return done.stdout

    def _output(self, program: str, *arguments: str) -> str:
        return self._done(program, arguments).stdout

    def _done(self, program: str, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self._bin / program, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
