"""Builds the files of a release in `dist/`, and tries them without a compiler: `make dist`.

The files are the source and the wheel of Arriero, the portable wheel of its engine for this kind
of system, the bill of materials and the checksums.
"""

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from release import engine_wheel, sbom
from release.trial import Trial, TrialFailed
from release.vulkan_sdk import NoSdkError

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def main() -> int:
    """Build and try the files. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__)
    parser.add_argument(
        "--backend", choices=engine_wheel.BACKENDS, help="else vulkan if its SDK is there"
    )
    arguments = parser.parse_args()
    try:
        shutil.rmtree(DIST, ignore_errors=True)
        _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
        add_engine(arguments.backend)
        add_sums(sorted(DIST.iterdir()))
    except (TrialFailed, NoSdkError, subprocess.CalledProcessError) as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    return 0


def add_engine(backend: str | None) -> None:
    """Add the engine's wheel and the bill of materials to `dist/`, which has Arriero's wheel.

    If `backend` is `None`, the engine has Vulkan if its SDK is installed. Raises `TrialFailed`,
    `NoSdkError` or `CalledProcessError`.
    """
    [wheel] = DIST.glob("arriero-*.whl")
    backend, why = engine_wheel.chosen(backend)
    say(why)
    engine = engine_wheel.built(backend, DIST)
    say(f"engine: {engine.name}, {engine.stat().st_size / 1e6:.1f} MB")
    if platform.system() == "Linux" and "manylinux" not in engine.name:
        raise TrialFailed(f"{engine.name} is for no more than this very system")
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder) / "venv")
        trial.install(wheel, engine)
        say(f"installed without a compiler; {trial.doctor()}")
        trial.demo()
        say("the demo answers")
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        bill = sbom.bill(sbom.packages(trial.python), when)
    target = DIST / f"{wheel.name.split('-py3')[0]}-agent.cdx.json"
    target.write_text(json.dumps(bill, indent=1) + "\n")
    say(f"bill of materials: {target.name}, {len(bill['components'])} components")


def add_sums(files: Sequence[Path]) -> None:
    """Write `SHA256SUMS` of `files`, for `sha256sum --check`."""
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    say(f"to upload: {DIST.name}/, with SHA256SUMS")


def say(what: str) -> None:
    """Print that a step succeeded."""
    print(f"✓ {what}", flush=True)


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
