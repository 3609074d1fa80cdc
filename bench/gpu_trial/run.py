"""Runs the steps of a trial on this machine, as many as fit into a call."""

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.gpu_trial.plan import State, Step, next_step, skipped, steps

ROOT = Path(__file__).parents[2]
SHOWN_LINES = 60
"""Lines of a step's output that go into the results if it was not done."""


class Trial:
    """`work` keeps what is made and the states of the steps; `results` gets one document."""

    def __init__(self, pack: Path, work: Path, results: Path, *, jobs: int, chosen: dict[str, int]):
        self._pack, self._work, self._results, self._jobs = pack, work, results, jobs
        self._venv = work / "venv"
        self._state_file = work / "state.json"
        self._states: dict[str, State] = {}
        self._found: dict[str, dict[str, Any]] = {}
        """Of each step: seconds, results, and the end of its output."""
        self._gpu = _said(
            "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"
        )
        self._nvcc = _said("nvcc", "--version").rpartition("\n")[2]
        self._steps = steps(has_gpu=bool(self._gpu and self._nvcc), cores=jobs, **chosen)
        self._chosen = chosen
        for folder in (work / "logs", results):
            folder.mkdir(parents=True, exist_ok=True)
        if self._state_file.is_file():
            kept = json.loads(self._state_file.read_text())
            self._states = {name: State(**state) for name, state in kept["states"].items()}
            self._found = kept["found"]

    def go_on(self, seconds: float, only: Sequence[str], skip: Sequence[str]) -> None:
        """Run steps until the call is over. Raises `SystemExit` for names that are no steps."""
        deadline = time.monotonic() + seconds
        if unknown := [
            each for each in (*only, *skip) if each not in {s.name for s in self._steps}
        ]:
            names = "; ".join(step.name for step in self._steps)
            raise SystemExit(f"gpu-trial: there is no step {unknown[0]!r}; there are: {names}")
        chosen = [s for s in self._steps if s.name not in skip and (not only or s.name in only)]
        if not self._gpu:
            print("gpu-trial: nvidia-smi shows no GPU: this is a rehearsal on the CPU", flush=True)
        elif not self._nvcc:
            print("gpu-trial: there is no nvcc: llama.cpp is built for the CPU", flush=True)
        self._unpack_source()
        while step := next_step(chosen, self._states, deadline - time.monotonic()):
            self._run(step, deadline)
            self._save(chosen)
        self._save(chosen)
        for each in chosen:
            state = self._states.get(each.name)
            why = skipped(each, self._states)
            print(f"{each.name}: {state.state if state else 'skipped: ' + why if why else 'to do'}")

    def _unpack_source(self) -> None:
        """llama.cpp's source to where `bench.source` looks for it."""
        version = (self._pack / "llama-cpp-python.version").read_text().strip()
        folder = self._work / "cache" / "arriero" / "bench" / f"source-{version}"
        if not folder.is_dir():
            unfinished = folder.with_suffix(".part")
            with tarfile.open(self._pack / "llama.cpp.tar.xz") as files:
                files.extractall(unfinished, filter="data")
            unfinished.rename(folder)

    def _run(self, step: Step, deadline: float) -> None:
        print(f"{step.name}: begins, {deadline - time.monotonic():.0f} s are left", flush=True)
        began = time.monotonic()
        shutil.rmtree(ROOT / "bench" / "results", ignore_errors=True)
        log = self._work / "logs" / f"{step.name.replace(' ', '-')}.txt"
        tries = self._states[step.name].tries + 1 if step.name in self._states else 1
        state = State("done", tries=tries)
        with log.open("w") as output:
            for command in step.commands:
                code = self._call(command, output, deadline)
                if code is None:
                    state = State("interrupted", "the call was over", tries)
                elif code:
                    state = State("failed", f"exit code {code} of {command}", tries)
                if state.state != "done":
                    break
        lines = log.read_text(errors="replace").splitlines()
        self._states[step.name] = state
        self._found[step.name] = {
            "seconds": round(time.monotonic() - began, 1),
            "said": lines[-SHOWN_LINES if state.state != "done" else -1 :],
            "results": {
                path.stem: json.loads(path.read_text())
                for path in (ROOT / "bench" / "results").glob("*.json")
            },
        }
        print(f"{step.name}: {state.state} after {time.monotonic() - began:.0f} s", flush=True)
        if state.state == "failed":
            print("\n".join(lines[-10:]), flush=True)

    def _call(self, command: str, output: Any, deadline: float) -> int | None:
        """The exit code; `None` if the command had to be stopped at the deadline."""
        places = {
            "python": self._venv / "bin" / "python",
            "system_python": sys.executable,
            "venv": self._venv,
            "pack": self._pack,
        }
        quoted = {name: shlex.quote(str(place)) for name, place in places.items()}
        process = subprocess.Popen(
            command.format(**quoted),
            shell=True,
            cwd=ROOT,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environment(self) -> dict[str, str]:
        """What the build and the benchmarks read."""
        cuda = (
            "-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES=native" if self._nvcc and self._gpu else ""
        )
        flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
        switches = "-fno-dse -frecord-gcc-switches"  # as scripts/install has them, for AMX
        amx = f"'-DCMAKE_C_FLAGS={switches}' '-DCMAKE_CXX_FLAGS={switches}'"
        given = ["-DBUILD_SHARED_LIBS=ON -DGGML_RPC=on", cuda, amx if "amx_int8" in flags else ""]
        cache = self._work / "cache"
        built = sorted(cache.glob("arriero/bench/peer-*/bin/libllama.so"), key=_changed)
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "XDG_CACHE_HOME": str(cache),
            "CMAKE_ARGS": " ".join(filter(None, given)),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(self._jobs),
            **({"LLAMA_CPP_LIB_PATH": str(built[-1].parent)} if built else {}),
        }

    def _save(self, chosen: Sequence[Step]) -> None:
        states = {name: asdict(state) for name, state in self._states.items()}
        unfinished = self._state_file.with_suffix(".part")
        unfinished.write_text(json.dumps({"states": states, "found": self._found}))
        unfinished.rename(self._state_file)
        left_out = {
            each.name: why
            for each in self._steps
            if each.name not in states
            if (why := skipped(each, self._states) or ("" if each in chosen else "not asked for"))
        }
        document = {
            "card": self._gpu or None,
            "nvcc": self._nvcc or None,
            "cores": os.cpu_count(),
            "jobs": self._jobs,
            "system": platform.platform(),
            "python": platform.python_version(),
            "commit": (self._pack / "commit").read_text().strip(),
            "chosen": self._chosen,
            "skipped": left_out,
            "to do": [s.name for s in chosen if s.name not in states and s.name not in left_out],
            "steps": {name: states[name] | self._found[name] for name in states},
        }
        (self._results / "gpu-trial.json").write_text(json.dumps(document, indent=2) + "\n")


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _said(*command: str) -> str:
    """The output of a program; empty if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
