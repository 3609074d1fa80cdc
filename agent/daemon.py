"""The engine process's wiring: the engine's worker, generation over it, a connection a balancer.

The worker's thread hands over each step's outputs with one call; they are detokenised and sent on
the event loop's thread while the next step is computed.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Literal, Protocol, assert_never

from ..shared.lifecycle import Shutdown, StartupError
from ..shared.log import context
from ..shared.messages import PROTOCOL_VERSION, Hello, Issue, Status
from ..shared.models.assignments import Assign, Assignment, Reload
from ..shared.reports.model_info import Kernels, KvLayout, ModelInfo
from ..shared.reports.statistics import Statistics
from ..shared.sampling import SamplingChoices
from ..shared.tracing.open_telemetry import open_tracer
from .chat.templates.chat_template import TemplateError
from .chat.templates.chat_templates import TemplateSource, given_template
from .engine.embedding.embedder import Embedder
from .engine.fair_lock import FairLock
from .engine.loaded_model import LoadedModel, ModelError
from .engine.prompt_store.model_identity import identity_of, origin_of
from .engine.prompt_store.prompt_store import PromptStore
from .engine.prompt_store.stored_prompt import ModelIdentity
from .engine.sequence import NewSequence, SequenceId, SequenceOutput
from .engine.statistics import EngineStatistics
from .engine.worker import Worker
from .generation.fingerprint import fingerprint
from .generation.local_generation import LocalGeneration
from .generation.port import Ticket
from .generation.preparation import Preparation
from .generation.preparer import Preparer
from .generation.prompt_saver import PromptSaver
from .generation.query_executor import QueryExecutor
from .generation.request_spans import RequestSpans
from .generation.text_queries import TextQueries
from .link.agent_key import AgentKey
from .link.connection import Connection
from .link.outbound import dial as dial_balancer
from .link.queries import Queries
from .link.reporter import Reporter
from .link.requests import Requests
from .link.session import Session
from .link.slots import Slots
from .settings import AgentSettings
from .supervision.supervisor_protocol import (
    Change,
    Changed,
    Dial,
    Loaded,
    Ordered,
    Ready,
    SupervisorChannel,
    Tell,
)

logger = logging.getLogger(__name__)


class EngineWorker(Protocol):
    """What the daemon needs of the engine; see `engine.worker.Worker`."""

    lock: FairLock

    def start(self) -> LoadedModel: ...
    def stop(self) -> None: ...
    def expect(self, sequence_id: SequenceId) -> None: ...
    def forget(self, sequence_id: SequenceId) -> None: ...
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
        kv_layout: Literal["auto"] | KvLayout,
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
            raise ValueError("an engine process needs a model")
        self._settings = settings
        self._shutdown = shutdown
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[tuple[SequenceOutput, ...]] = asyncio.Queue()
        self._crash: asyncio.Future[BaseException] = self._loop.create_future()
        self._slots = Slots(settings.slots)
        self._connections: list[Connection] = []
        self._assignment = channel.begin.assignment
        self._told = Tell()
        self._is_ready = False
        self._identity: ModelIdentity | None = None
        self._preparer: Preparer | None = None
        self._embedder: Embedder | None = None
        self._worker = make_worker(
            settings.model,
            slots=settings.slots,
            context_size=settings.context_size,
            kv_cells=settings.kv_cells,
            kv_layout=settings.kv_layout,
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
            self._identity = await self._loop.run_in_executor(
                None, _identity, self._settings, model
            )
            preparer = await self._make_preparer(model, store, self._assignment)
            self._channel.report(Loaded(model=_named(model.info, self._assignment)))
            dial = await self._dial_order()
            if dial is not None:
                await self._serve(model, store, preparer, dial)
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

    async def _dial_order(self) -> Dial | None:
        """The order to dial; `None` if the agent stops before."""
        async with asyncio.TaskGroup() as group:
            dial = group.create_task(self._channel.dials.get())
            stop = group.create_task(self._shutdown.requested.wait())
            await asyncio.wait({dial, stop}, return_when=asyncio.FIRST_COMPLETED)
            is_stopping = stop.done()
            dial.cancel()
            stop.cancel()
        return None if is_stopping else dial.result()

    async def _serve(
        self, model: LoadedModel, store: PromptStore | None, preparer: Preparer, dial: Dial
    ) -> None:
        self._preparer = preparer
        preparation = Preparation(preparer)
        queries = TextQueries(model.vocab, preparer)
        tracer = await self._loop.run_in_executor(
            None, open_tracer, "arriero-agent", version("arriero")
        )
        spans = RequestSpans(tracer, self._settings.name)
        generation = LocalGeneration(
            preparation, self._worker, PromptSaver(store), model.vocab.piece, spans
        )
        self._embedder = self._make_embedder(model)
        executor = QueryExecutor(queries, self._embedder)
        self._told = Tell(issues=dial.issues, work=dial.work)
        status = self._status(model, preparer)
        try:
            self._connections = self._connect(dial, status, generation, executor)
            self._reporter.look()
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(each)
                    for each in (
                        self._hand_out_steps(generation),
                        self._obey(_Served(model, store, preparer, preparation, queries)),
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
            await self._loop.run_in_executor(None, tracer.close)
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
        self, dial: Dial, status: Status, generation: LocalGeneration, executor: QueryExecutor
    ) -> list[Connection]:
        settings, begin = self._settings, self._channel.begin
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=begin.agent_id,
            name=settings.name,
            version=version("arriero"),
            slots=status.slots,
            model=status.model,
            labels=settings.labels,
            facts=begin.facts,
            work=status.work,
            takes_over=dial.takes_over,
        )
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
                on_connected=self._ready,
                on_change=self._slots_changed,
                on_order=self._pass_on,
                dial=partial(dial_balancer, tls=settings.tls, key=AgentKey(settings.key_file)),
            )

        return [connect(url) for url in settings.balancer]

    async def _hand_out_steps(self, generation: LocalGeneration) -> None:
        while True:
            generation.stepped(await self._steps.get())
            self._reporter.stir()

    async def _obey(self, served: "_Served") -> None:
        """What the supervisor orders, one after the other."""
        while True:
            order = await self._channel.orders.get()
            match order:
                case Tell():
                    self._told = order
                case Change(assignment=assignment):
                    reason = await self._change(served, assignment)
                    self._channel.report(Changed(assignment=assignment, reason=reason))
                case _:
                    assert_never(order)
            status = self._status(served.model, served.preparer)
            for connection in self._connections:
                connection.tell(status)

    async def _change(self, served: "_Served", assignment: Assignment) -> str | None:
        """Serve `assignment` with the model that is loaded. Returns why not, if so."""
        try:
            served.use(await self._make_preparer(served.model, served.store, assignment))
        except StartupError as error:
            return str(error)
        self._preparer = served.preparer
        self._assignment = assignment
        return None

    def _status(self, model: LoadedModel, preparer: Preparer) -> Status:
        """What balancers hear; makes as many slots as they hear of."""
        slots = self._assignment and self._assignment.slots
        self._slots.resize((slots or self._settings.slots) if _generates(model) else 0)
        issues = _lasting_issues(preparer) if _generates(model) else ()
        return Status(
            slots=self._slots.total,
            accepting=True,
            model=replace(
                _named(model.info, self._assignment), fingerprint=self._fingerprint(model, preparer)
            ),
            issues=issues + self._told.issues,
            work=self._told.work,
        )

    def _fingerprint(self, model: LoadedModel, preparer: Preparer) -> str | None:
        if self._identity is None or not _generates(model):
            return None
        return fingerprint(self._identity, model.vocab, preparer.traits)

    async def _drain(self) -> None:
        await self._shutdown.requested.wait()
        ordered = self._channel.drain_timeout
        timeout = self._settings.drain_timeout if ordered is None else ordered
        for connection in self._connections:
            connection.drain(timeout)

    async def _fail(self) -> None:
        await asyncio.wait({self._crash})
        error = self._crash.result()
        for connection in self._connections:
            connection.engine_stopped(f"the engine stopped: {_line(error)}")

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

    def _ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._channel.report(Ready())

    def _pass_on(self, order: Assign | Reload) -> None:
        self._channel.report(Ordered(order=order))

    async def _make_preparer(
        self, model: LoadedModel, store: PromptStore | None, assignment: Assignment | None
    ) -> Preparer:
        make = partial(_preparer, self._settings, model, store, assignment)
        preparer = await self._loop.run_in_executor(None, make)
        if _generates(model) and preparer.template_issue is not None:
            logger.warning("conversations cannot be served: %s", preparer.template_issue)
        return preparer


@dataclass(slots=True)
class _Served:
    """The model that is loaded, and what prepares requests for it, which may change."""

    model: LoadedModel
    store: PromptStore | None
    preparer: Preparer
    preparation: Preparation
    queries: TextQueries

    def use(self, preparer: Preparer) -> None:
        self.preparer = self.preparation.preparer = self.queries.preparer = preparer


def _identity(settings: AgentSettings, model: LoadedModel) -> ModelIdentity | None:
    """Of the model file; `None` where that cannot be read any more."""
    try:
        return identity_of(model.info, settings.model) if settings.model is not None else None
    except OSError as error:
        logger.warning("answers cannot move to or from this agent: %s", error)
        return None


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


def _preparer(
    settings: AgentSettings,
    model: LoadedModel,
    store: PromptStore | None,
    assignment: Assignment | None,
) -> Preparer:
    try:
        return Preparer(
            model,
            settings.context_size,
            template=_template(settings, assignment),
            family=settings.chat_family,
            store=store,
            defaults=assignment.sampling if assignment else SamplingChoices(),
        )
    except TemplateError as error:
        raise StartupError(str(error)) from error


def _template(settings: AgentSettings, assignment: Assignment | None) -> TemplateSource | None:
    if assignment is not None and assignment.chat_template is not None:
        return TemplateSource(assignment.chat_template, "the chat template that is wished for")
    return given_template(settings.chat_template) if settings.chat_template else None


def _named(info: ModelInfo, assignment: Assignment | None) -> ModelInfo:
    return info if assignment is None else replace(info, name=assignment.name)


def _generates(model: LoadedModel) -> bool:
    return "generate" in model.info.tasks


def _lasting_issues(preparer: Preparer) -> tuple[Issue, ...]:
    if preparer.template_issue is None:
        return ()
    return (Issue(code="chat_template", message=preparer.template_issue),)


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
