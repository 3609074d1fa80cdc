"""Checks a clean tag and builds the files of its release in `dist/`: `make release-check`.

The check uploads nothing. Each step prints its result, and the first failure ends the check. With
`--rehearse` the commit needs no tag; the check then makes the new changelog section in the built
copy.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

from release import changelog, dist, documents, wheels
from release.breaking import breaking_changes
from release.dist import DIST, say
from release.trial import TrialFailed
from release.vulkan_sdk import NoSdkError

ROOT = Path(__file__).parent.parent
WHEELS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arriero" / "wheels"
"""The folder in which `scripts/install` keeps the engines that it built."""

BUILDERS = ("docker", "podman", "buildah")


class CheckFailed(Exception):
    """The check failed. The message is one sentence that says what is wrong and how to fix it."""


def main() -> int:
    """Run the check. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make release-check", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="without a tag and a cut changelog")
    parser.add_argument(
        "--engine", action="store_true", help="with the engine's portable wheel, tried in the demo"
    )
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _check(Path(folder), is_rehearsal=arguments.rehearse, with_engine=arguments.engine)
    except (CheckFailed, TrialFailed, NoSdkError, subprocess.CalledProcessError) as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    return 0


def _check(folder: Path, *, is_rehearsal: bool, with_engine: bool) -> None:
    version = wheels.present_version(ROOT)
    _check_tree(version, is_rehearsal=is_rehearsal)
    source = folder / "source"
    _export(source)
    text = (source / "CHANGELOG.md").read_text()
    if is_rehearsal and changelog.newest(text)[0] != version:
        text = changelog.cut(text, version, time.strftime("%Y-%m-%d"))
        (source / "CHANGELOG.md").write_text(text)
    _check_changelog(text, version)
    files = _build(source, version)
    _install(folder, files, version)
    _try_lowest(folder)
    _try_pythons(folder)
    _check_documents(text)
    _check_containers(source)
    _check_upgrade()
    if with_engine:
        dist.add_engine(None)
    dist.add_sums(sorted(DIST.iterdir()))


def _check_tree(version: str, *, is_rehearsal: bool) -> None:
    if _output("git", "status", "--porcelain"):
        raise CheckFailed("the work tree has changes; commit them first")
    tags = _output("git", "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags and not is_rehearsal:
        raise CheckFailed(
            f"this commit has no tag v{version}: `git tag v{version}`, or rehearse with "
            "`make release-check REHEARSE=1`"
        )
    say(f"version {version} at {_output('git', 'rev-parse', '--short', 'HEAD').strip()}")


def _export(source: Path) -> None:
    """Copy the files in git's HEAD to `source`, and no others."""
    source.mkdir()
    archive = source.with_suffix(".tar")
    _run("git", "archive", "--output", str(archive), "HEAD")
    _run("tar", "-xf", str(archive), "-C", str(source))


def _check_changelog(text: str, version: str) -> None:
    found, date = changelog.newest(text)
    if found != version or date is None:
        raise CheckFailed(
            f"CHANGELOG.md's newest section is [{found}], not [{version}] with a date"
        )
    if changelog.section(text, changelog.UNRELEASED):
        raise CheckFailed("CHANGELOG.md has entries under [Unreleased]; move them into the version")
    say(f"changelog: [{version}] of {date}")


def _build(source: Path, version: str) -> list[Path]:
    """Build the source distribution, and from this the wheel. Returns their paths."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(source))
    files = sorted(DIST.iterdir())
    names = [each.name for each in files]
    if names != [f"arriero-{version}-py3-none-any.whl", f"arriero-{version}.tar.gz"]:
        raise CheckFailed(f"the build made {', '.join(names)}")
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files))
    say(f"built and checked: {', '.join(names)}")
    return files


def _install(folder: Path, files: Sequence[Path], version: str) -> None:
    """Check that the wheel runs in an environment without other packages."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    wheel = next(each for each in files if each.suffix == ".whl")
    constraints = str(ROOT / "constraints.txt")
    _run(str(python), "-m", "pip", "install", "--quiet", "-c", constraints, str(wheel))
    said = _output(str(python.with_name("arriero")), "--version").strip()
    if said != f"arriero {version}":
        raise CheckFailed(f"the installed wheel says {said!r}, not 'arriero {version}'")
    for program in ("balancer", "agent"):
        _output(str(python.with_name(program)), "--help")
    say(f"installed alone: {said}")


TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "jsonschema", "trustme")
"""Packages that the tests below need, in the pinned versions."""

PYTHONS = ("3.12", "3.13", "3.14")
"""Further versions of Python that `pyproject.toml` allows. The full tests run on another one."""

SMALL_TESTS = (
    *("tests/shared", "tests/agent/link", "tests/balancer/access", "tests/balancer/tls"),
    # They use private names of aiohttp and aiosqlite.
    *("tests/balancer/api/transport", "tests/balancer/store/test_database.py"),
)


def lowest(constraints: str) -> list[str]:
    """Return the arguments of `uv pip install` that choose the lowest allowed versions.

    `constraints` pins the versions of `TOOLS`.
    """
    pins = dict(line.lower().split("==") for line in constraints.splitlines() if "==" in line)
    return ["--resolution", "lowest-direct", *(f"{tool}=={pins[tool]}" for tool in TOOLS)]


def _try_lowest(folder: Path) -> None:
    """Run the small tests and the demo with the lowest allowed versions of all dependencies."""
    _try_small(folder / "lowest", sys.executable, lowest((ROOT / "constraints.txt").read_text()))
    say("the lowest versions of all dependencies pass small tests and run the demo")


def _try_pythons(folder: Path) -> None:
    """Run the small tests and the demo with each of `PYTHONS` on the PATH, with pinned versions."""
    for version in PYTHONS:
        found = _uv("python", "find", "--no-python-downloads", version)
        if found.returncode:
            say(f"not tried: Python {version} is not on the PATH")
            continue
        pinned = ["-c", str(ROOT / "constraints.txt"), *TOOLS]
        _try_small(folder / version, found.stdout.strip(), pinned)
        say(f"Python {version} passes small tests and runs the demo")


def _try_small(folder: Path, interpreter: str, wanted: Sequence[str]) -> None:
    """Make an environment in `folder`, and run the small tests and the demo in it."""
    _run(interpreter, "-m", "venv", "--without-pip", str(folder))
    python = str(folder / "bin" / "python")
    wheels_here = {each.parent for each in WHEELS.glob("*/*.whl")}
    found = [word for each in sorted(wheels_here) for word in ("--find-links", str(each))]
    installing = ("-m", "uv", "pip", "install", "--quiet", "--python", python, *found)
    _run(sys.executable, *installing, "-e", f"{ROOT}[agent]", *wanted)
    _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SMALL_TESTS)
    _run(python, "-m", "demo.run", "--once")


def _uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "uv", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _check_documents(text: str) -> None:
    broken = [
        change
        for port, document in documents.served().items()
        for change in breaking_changes(documents.frozen(port), document)
        if not changelog.excuses(text, change)
    ]
    if broken:
        raise CheckFailed(
            "the APIs break promises that CHANGELOG.md has no entry of under *Changed*: "
            + "; ".join(broken)
        )
    say("API documents: no promise is broken without a word")


def _check_containers(source: Path) -> None:
    files = sorted((source / "deploy" / "container").glob("Containerfile*"))
    linted = "linted, " if lint(files) else ""
    builder = next(filter(_can_build, BUILDERS), None)
    if builder is None:
        for file in files:
            _check_containerfile(file)
        none = f"since none of {', '.join(BUILDERS)} runs here"
        say(f"container files: {linted}read, not built, {none}")
        return
    file = files[0]  # the others need a GPU's toolkit
    _run(builder, "build", "--file", str(file), "--tag", "arriero:release-check", str(source))
    say(f"container files: {linted}{file.name} is built by {builder}")


def lint(files: Sequence[Path]) -> bool:
    """Run the linter on container files. Returns false if the extra `test` is not installed."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        return False
    _run(str(hadolint), "--no-color", *map(str, files))
    return True


def _can_build(builder: str) -> bool:
    """Return whether `builder` is installed and runs. Docker also needs a running daemon."""
    if shutil.which(builder) is None:
        return False
    return subprocess.run([builder, "info"], capture_output=True, check=False).returncode == 0


def _check_containerfile(file: Path) -> None:
    """Check that a container file has a base image with a tag, and that all copied files exist."""
    lines = file.read_text().replace("\\\n", " ").splitlines()
    if not any(re.match(r"FROM \S+:\S+", line) for line in lines):
        raise CheckFailed(f"{file.name} has no FROM with a tag")
    for line in lines:
        if not line.startswith("COPY ") or "--from=" in line:
            continue
        *sources, _ = line.split()[1:]
        for each in (word for word in sources if not word.startswith("--")):
            if not list(file.parents[2].glob(each.rstrip("/") if each != "." else "*")):
                raise CheckFailed(f"{file.name} copies {each}, which is not there")


def _check_upgrade() -> None:
    """Test daemons of the last release together with present ones, as in a rolling upgrade."""
    _run(sys.executable, "-m", "pytest", "-q", "integration_tests/test_upgrade.py")
    released = changelog.before((ROOT / "CHANGELOG.md").read_text(), wheels.present_version(ROOT))
    say(f"upgrade: from {released or 'itself, since nothing was released before'}")


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-8:]
        raise CheckFailed("\n".join([f"{' '.join(command[:4])} … failed:", *last]))


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckFailed(f"{' '.join(command[:4])} … failed: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
