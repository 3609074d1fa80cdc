"""A name whose addresses a test changes, for a daemon that looks it up as it would any other.

The daemon has a mount namespace of its own, where a file of the test's lies over `/etc/hosts`. So
the machine's resolver answers, and nothing outside notices.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NAME = "balancers.test"
_OVER_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'


class Hosts:
    """`prefix` goes before a command that is to find the name. Skips the test where that fails."""

    def __init__(self, file: Path) -> None:
        self._file = file
        whoever = () if os.geteuid() == 0 else ("--map-root-user",)
        unshare = shutil.which("unshare")
        if unshare is None:
            pytest.skip("no mount namespaces: `unshare` (util-linux) is missing")
        namespace = (unshare, *whoever, "--mount", "--")
        self.prefix = (*namespace, "sh", "-c", _OVER_HOSTS, str(file))
        self.name("127.0.0.9")
        done = self._look_up()
        if "127.0.0.9" not in done.stdout:
            pytest.skip(f"a name of the test's own cannot be looked up here: {done.stderr.strip()}")

    def name(self, *addresses: str) -> None:
        """The name has these addresses from now on."""
        lines = [f"{address} {NAME}" for address in addresses]
        # Written in place: what lies over the machine's file is this one, not its path.
        self._file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def _look_up(self) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, "getent", "ahostsv4", NAME]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
