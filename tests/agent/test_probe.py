import json
import subprocess
import sys

from tests.waiting import HANGS


def test_what_computes_here() -> None:
    program = [sys.executable, "-m", "arriero.agent.probe", "127.0.0.1:9"]
    done = subprocess.run(program, capture_output=True, check=True, timeout=HANGS, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == {"devices", "cpu", "problems"}
    assert "--rpc: 127.0.0.1:9 cannot be reached" in done.stderr
