"""Stand-ins for an engine process and for model files, with behaviour."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from arriero.agent.models.port import (
    FetchCode,
    FetchedModel,
    FetchError,
    OnHeader,
    OnProgress,
    RemoteModel,
)
from arriero.agent.supervision.supervisor_protocol import (
    Order,
    Report,
    ReportStatus,
    ShareThreads,
)
from arriero.shared.models.assignments import Download
from tests.agent.fakes import Expected

DEMO = Path(__file__).parents[3] / "demo" / "arriero-demo.gguf"


class FakeProcess:
    """An engine process that says what the test makes it say."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[Order] = Expected()
        self._reports: asyncio.Queue[Report | int] = asyncio.Queue()
        self._code = -signal.SIGKILL
        self.has_ended = False

    def say(self, order: Order) -> None:
        self.orders.put_nowait(order)

    async def reports(self) -> AsyncIterator[Report]:
        while not isinstance(report := await self._reports.get(), int):
            yield report
        self._code = report

    def kill(self) -> None:
        self.exit(-signal.SIGKILL)

    async def end(self) -> int:
        self.has_ended = True
        return self._code

    def report(self, *reports: Report) -> None:
        for report in reports:
            self._reports.put_nowait(report)

    def exit(self, code: int) -> None:
        self._reports.put_nowait(code)

    async def order(self) -> Order:
        """The next one that is no news."""
        while isinstance(order := await self.orders.get(), ReportStatus | ShareThreads):
            pass
        return order


class FakeLease:
    def __init__(self) -> None:
        self.is_released = False

    def release(self) -> None:
        self.is_released = True


class FakeFiles:
    """Fetches at once, unless the test holds it up or lets it fail.

    Every source is the same file at `path`, which a fetch says has `size` bytes.
    """

    def __init__(self, path: Path = DEMO) -> None:
        self.path = path
        self.size = 2**20
        self.failures: dict[str, FetchCode] = {}
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.num_cancelled = 0
        self.http_hosts: list[tuple[str, ...]] = []
        self.remote: RemoteModel | None = None
        """What is shown of it before it is fetched."""
        self.leases: dict[str, FakeLease] = {}

    async def fetch(
        self,
        source: str,
        *,
        sha256: str | None = None,
        http_hosts: Sequence[str] = (),
        on_progress: OnProgress,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        self.http_hosts.append(tuple(http_hosts))
        if on_header is not None and self.remote is not None:
            await on_header(self.remote)
        on_progress(Download(file=source, bytes=1, total=2))
        try:
            await self.may_go_on.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if source in self.failures:
            raise FetchError(self.failures[source], f"{source} is bad", "mend it")
        self.leases[source] = FakeLease()
        return FetchedModel(path=self.path, bytes=self.size, lease=self.leases[source])

    async def room(self) -> int | None:
        return None
