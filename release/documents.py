"""The frozen OpenAPI documents of both ports, for comparison with the present ones.

`python -m release.documents` freezes the present documents. Run it after a release, not before.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "documents"
PORTS = ("inference", "management")


def frozen(port: str) -> dict[str, Any]:
    """Return the frozen document of `port`."""
    document: dict[str, Any] = json.loads((FOLDER / f"{port}.json").read_text())
    return document


def served() -> dict[str, dict[str, Any]]:
    """Return the documents that the present balancer serves, by port."""
    with _balancer() as addresses:
        documents = {}
        for port in PORTS:
            with urllib.request.urlopen(f"http://{addresses[port]}/openapi.json") as answer:
                documents[port] = json.load(answer)
        return documents


@contextmanager
def _balancer() -> Iterator[dict[str, str]]:
    """Run a balancer in the context, which yields the addresses of its ports."""
    command = [Path(sys.executable).parent / "balancer"]
    command += ["--inference-addr", "127.0.0.1:0", "--management-addr", "127.0.0.1:0"]
    command += ["--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            yield dict(word.split("=", 1) for word in words if "=" in word)
        finally:
            process.terminate()


def main() -> None:
    """Freeze the present documents."""
    for port, document in served().items():
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{port}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
