"""The engine process's wiring: the engine's worker, generation over it, a connection a balancer.

The worker's thread hands over each step's outputs with one call; they are detokenised and sent on
the event loop's thread while the next step is computed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

from ..shared.errors import EngineFailed
from ..shared.lifecycle import Shutdown, StartupError
from ..shared.log import context
from ..shared.messages import PROTOCOL_VERSION, Hello, Issue, Status
from ..shared.models.assignments import Assign, Reload
from ..shared.reports.model_info import Kernels
from ..shared.reports.statistics import Statistics
from .chat.templates.chat_template import TemplateError
from .chat.templates.chat_templates import given_template
from .engine.embedding.embedder import Embedder
from .engine.fair_lock import FairLock
from .engine.loaded_model import LoadedModel, ModelError
from .engine.prompt_store.model_identity import origin_of
from .engine.prompt_store.prompt_store import PromptStore
from .engine.sequence import NewSequence, SequenceId, SequenceOutput
from .engine.statistics import EngineStatistics
from .engine.worker import Worker
from .generation.local_generation import LocalGeneration
from .generation.port import Ticket
from .generation.preparation import Preparation
from .generation.preparer import Preparer
from .generation.prompt_saver import PromptSaver
from .generation.query_executor import QueryExecutor
from .generation.text_queries import TextQueries
from .link.connection import Connection
from .link.queries import Queries
from .link.reporter import Reporter
from .link.requests import Requests
from .link.session import Session
from .link.slots import Slots
from .settings import AgentSettings
from .supervision.supervisor_protocol import Loaded, Ready, SupervisorChannel

logger = logging.getLogger(__name__)


class EngineWorker(Protocol):
    """What the daemon needs of the engine; see `engine.worker.Worker`."""

    lock: FairLock

    def start(self) -> LoadedModel: ...
    def stop(self) -> None: ...
    def submit(self, sequence: NewSequence) -> None: ...
    def finish(self, sequence_id: SequenceId) -> None: ...
    def drop(self, sequence_id: SequenceId) -> None: ...
    def statistics(self) -> EngineStatistics: ...


class MakeWorker(Protocol):
    """Makes a worker without starting it; see `engine.worker.Worker`."""

    def __call__(
        self,
        model_path: Path,
        *,
        slots: int,
        context_size: int,
        kv_cells: int | None,
        host_cache: int,
        threads: int,
        max_stall: float,
        gpu_layers: int,
        kernels: Literal["auto"] | Kernels,
        speculate: int,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
    ) -> EngineWorker: ...


async def main(
    settings: AgentSettings,
    shutdown: Shutdown,
    channel: SupervisorChannel,
    *,
    make_worker: MakeWorker = Worker,
) -> None:
    """Serve until `shutdown` is requested. Raises `StartupError` where it cannot go on."""
    await _Agent(settings, shutdown, channel, make_worker).run()


class _Agent:
    def __init__(
        self,
        settings: AgentSettings,
        shutdown: Shutdown,
        channel: SupervisorChannel,
        make_worker: MakeWorker,
    ) -> None:
        if settings.model is None:
            raise StartupError("no model to serve: name a GGUF file with --model FILE")
        self._settings = settings
        self._shutdown = shutdown
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[tuple[SequenceOutput, ...]] = asyncio.Queue()
        self._crash: asyncio.Future[BaseException] = self._loop.create_future()
        self._slots = Slots(settings.slots)
        self._connections: list[Connection] = []
        self._is_ready = False
        self._preparer: Preparer | None = None
        self._embedder: Embedder | None = None
        self._worker = make_worker(
            settings.model,
            slots=settings.slots,
            context_size=settings.context_size,
            kv_cells=settings.kv_cells,
            host_cache=settings.host_cache,
            threads=settings.threads,
            max_stall=settings.max_stall,
            gpu_layers=settings.gpu_layers,
            kernels=settings.kernels,
            speculate=settings.speculate,
            on_step=self._on_step,
            on_crash=self._on_crash,
        )
        self._reporter = Reporter(
            read=self._statistics,
            tell=self._report,
            call_later=self._loop.call_later,
        )

    async def run(self) -> None:
        logger.info("loading the model", extra=context(model=self._settings.model))
        try:
            model = await self._loop.run_in_executor(None, self._worker.start)
        except ModelError as error:
            raise StartupError(str(error)) from error
        try:
            store = await self._loop.run_in_executor(None, _open_store, self._settings, model)
            self._channel.report(Loaded(model=model.info))
            issues = await self._channel.issues.get()
            if not self._shutdown.requested.is_set():
                await self._serve(model, store, issues)
        finally:
            await self._loop.run_in_executor(None, self._worker.stop)

    # ---- on the worker's thread

    def _on_step(self, outputs: tuple[SequenceOutput, ...]) -> None:
        self._loop.call_soon_threadsafe(self._steps.put_nowait, outputs)

    def _on_crash(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._crash.set_result, error)

    # ---- on the embedder's thread

    def _stir(self) -> None:
        self._loop.call_soon_threadsafe(self._reporter.stir)

    # ---- on the event loop's thread

    async def _serve(
        self, model: LoadedModel, store: PromptStore | None, issues: tuple[Issue, ...]
    ) -> None:
        self._preparer = preparer = _preparer(self._settings, model, store)
        lasting = _lasting_issues(preparer) if _generates(model) else ()
        generation = LocalGeneration(
            Preparation(preparer), self._worker, PromptSaver(store), model.vocab.piece
        )
        self._embedder = self._make_embedder(model)
        executor = QueryExecutor(TextQueries(model.vocab, preparer), self._embedder)
        self._slots = Slots(self._settings.slots if _generates(model) else 0)
        try:
            self._connections = self._connect(model, lasting + issues, generation, executor)
            self._reporter.look()
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(each)
                    for each in (
                        self._hand_out_steps(generation),
                        self._tell(lasting),
                        self._drain(),
                        self._fail(),
                    )
                ]
                await asyncio.wait(
                    [group.create_task(connection.run()) for connection in self._connections]
                )
                for helper in helpers:
                    helper.cancel()
        finally:
            self._reporter.stop()
            # They use the model, which is freed after this.
            await self._loop.run_in_executor(None, generation.close)
            await self._loop.run_in_executor(None, executor.close)
        if self._crash.done():
            raise StartupError(f"the engine stopped: {_line(self._crash.result())}")

    def _make_embedder(self, model: LoadedModel) -> Embedder | None:
        if model.embedding is None:
            return None
        return Embedder(
            model.embedding,
            model.vocab,
            self._worker.lock,
            max_stall=self._settings.max_stall,
            on_change=self._stir,
        )

    def _connect(
        self,
        model: LoadedModel,
        issues: tuple[Issue, ...],
        generation: LocalGeneration,
        executor: QueryExecutor,
    ) -> list[Connection]:
        settings = self._settings
        slots = self._slots.total
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=self._channel.agent_id,
            name=settings.name,
            version=version("arriero"),
            slots=slots,
            model=model.info,
        )
        status = Status(slots=slots, accepting=True, model=model.info, issues=issues)
        tickets = map(Ticket, count(1))

        def connect(url: str) -> Connection:
            requests = Requests(slots=self._slots, tickets=tickets)
            queries = Queries(tickets)
            session = Session(hello=hello, status=status, requests=requests, queries=queries)
            return Connection(
                url,
                session,
                generation,
                executor,
                on_connected=lambda: self._ready(model),
                on_change=self._slots_changed,
                on_order=_keep_own_model,
            )

        return [connect(url) for url in settings.balancer]

    async def _hand_out_steps(self, generation: LocalGeneration) -> None:
        while True:
            generation.stepped(await self._steps.get())
            self._reporter.stir()

    async def _tell(self, lasting: tuple[Issue, ...]) -> None:
        while True:
            issues = lasting + await self._channel.issues.get()
            for connection in self._connections:
                connection.tell(issues)

    async def _drain(self) -> None:
        await self._shutdown.requested.wait()
        for connection in self._connections:
            connection.drain(self._settings.drain_timeout)

    async def _fail(self) -> None:
        await asyncio.wait({self._crash})
        error = self._crash.result()
        for connection in self._connections:
            connection.fail(EngineFailed(f"the engine stopped: {_line(error)}"))

    def _slots_changed(self) -> None:
        for connection in self._connections:
            connection.slots_changed()
        if self._slots.num_busy:
            self._reporter.stir()

    def _statistics(self) -> EngineStatistics:
        return replace(
            self._worker.statistics(),
            num_grammars=self._preparer.num_grammars if self._preparer else 0,
            num_embedding_cells=self._embedder.num_cells if self._embedder else 0,
        )

    def _report(self, statistics: Statistics) -> None:
        for connection in self._connections:
            connection.report(statistics)

    def _ready(self, model: LoadedModel) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._channel.report(Ready(model=model.info.name))


def _open_store(settings: AgentSettings, model: LoadedModel) -> PromptStore | None:
    if settings.cache_dir is None or settings.model is None:
        return None
    try:
        return PromptStore(
            settings.cache_dir,
            limit_bytes=settings.cache_limit,
            origin=origin_of(model.info, settings.model),
        )
    except OSError as error:
        raise StartupError(f"--cache-dir {settings.cache_dir} cannot be used: {error}") from error


def _preparer(settings: AgentSettings, model: LoadedModel, store: PromptStore | None) -> Preparer:
    try:
        return Preparer(
            model,
            settings.context_size,
            template=given_template(settings.chat_template) if settings.chat_template else None,
            family=settings.chat_family,
            store=store,
        )
    except TemplateError as error:
        raise StartupError(str(error)) from error


def _generates(model: LoadedModel) -> bool:
    return "generate" in model.info.tasks


def _lasting_issues(preparer: Preparer) -> tuple[Issue, ...]:
    if preparer.template_issue is None:
        return ()
    logger.warning("conversations cannot be served: %s", preparer.template_issue)
    return (Issue(code="chat_template", message=preparer.template_issue),)


def _keep_own_model(order: Assign | Reload) -> None:
    """What an operator wishes for this host by hand comes before what the fleet wishes."""
    logger.warning("`%s` ignored: this agent serves the model it was started with", order.type)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
