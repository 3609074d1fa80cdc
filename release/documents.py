"""The OpenAPI documents of both ports as they were frozen, for comparison with those of today.

`python -m release.documents` freezes those that a balancer serves now: after a release, not before.
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
    """The document of this port as it was frozen."""
    document: dict[str, Any] = json.loads((FOLDER / f"{port}.json").read_text())
    return document


def served() -> dict[str, dict[str, Any]]:
    """The documents that a balancer of this interpreter serves, by port."""
    with _balancer() as addresses:
        documents = {}
        for port in PORTS:
            with urllib.request.urlopen(f"http://{addresses[port]}/openapi.json") as answer:
                documents[port] = json.load(answer)
        return documents


@contextmanager
def _balancer() -> Iterator[dict[str, str]]:
    """The addresses of a balancer's ports, while it runs."""
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
    """Freeze the documents of today."""
    for port, document in served().items():
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{port}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
