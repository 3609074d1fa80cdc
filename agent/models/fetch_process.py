"""The fetching process: downloads one model's files, tells how far it is, ends.

It may be killed at any moment: what has arrived stays, and the next one goes on from there.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import BinaryIO

from .download.progress import Tell
from .fetch_protocol import (
    Arriving,
    Fetch,
    Fetched,
    FetchReport,
    Refused,
    decode_fetch,
    encode_fetch_report,
)
from .folder.models_folder import ModelsFolder
from .port import FetchError
from .sources.fetching import fetched

NICENESS = 10
"""The engine's threads go first: hashing a file must not slow down streams."""

MAX_TRACEBACK = 20_000
"""Most characters of a traceback, its last ones."""

MAX_TOLD = 2000
"""Most characters of a message, and of a hint."""


def main() -> None:
    """Do what the first line of standard input says; end when standard input does."""
    orders, reports = sys.stdin.buffer, sys.stdout.buffer
    # What libraries print must not get between the reports.
    sys.stdout = sys.stderr
    os.nice(NICENESS)
    # huggingface-hub would also ask the hub and the environment which program calls it.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    line = orders.readline()
    if not line:
        return
    fetch = decode_fetch(line)
    agent_gone = threading.Thread(target=_end_with, args=(orders,), daemon=True)
    agent_gone.start()
    carry_out(fetch, reports, agent_gone.join)


def carry_out(fetch: Fetch, reports: BinaryIO, until_leased: Callable[[], None]) -> None:
    """Fetch, and report to `reports`. The files stay leased until `until_leased` returns."""
    try:
        folder = ModelsFolder(fetch.root, fetch.limit)
        with fetched(fetch.source, fetch.sha256, folder, tell=_teller(reports)) as found:
            _write(reports, Fetched(paths=found.paths, kept=found.kept, bytes=found.bytes))
            until_leased()
    except FetchError as error:
        _write(reports, _refused(error))
    except Exception as error:
        # The boundary: the agent logs the traceback and goes on.
        told = f"the fetch failed: {error!r}"[:MAX_TOLD]
        _write(
            reports,
            Refused(
                code="fetch_failed", message=told, traceback=traceback.format_exc()[-MAX_TRACEBACK:]
            ),
        )


def _teller(reports: BinaryIO) -> Tell:
    def tell(file: str, size: int, total: int | None) -> None:
        _write(reports, Arriving(file=file, bytes=size, total=total))

    return tell


def _refused(error: FetchError) -> Refused:
    """Servers have a say in messages; issues go to every balancer, so they are bounded."""
    return Refused(code=error.code, message=error.message[:MAX_TOLD], hint=error.hint[:MAX_TOLD])


def _write(reports: BinaryIO, report: FetchReport) -> None:
    reports.write(encode_fetch_report(report))
    reports.flush()


def _end_with(orders: BinaryIO) -> None:
    """End the process when the agent does, or when it wants no more of it."""
    orders.read()
    os._exit(0)


if __name__ == "__main__":
    main()
