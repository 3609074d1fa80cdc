"""The wiring of the engine process: the worker, generation, and a connection per balancer.

The worker's thread hands over each step's outputs with one call. They are detokenised and sent on
the event loop's thread while the next step is computed.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, assert_never

from ..shared.errors import EngineFailed
from ..shared.lifecycle import Shutdown, StartupError, reasons
from ..shared.log import context
from ..shared.messages import MAX_EVICTED, Evicted, Issue, Status
from ..shared.reports.statistics import Statistics
from ..shared.strict import build_schemas
from ..shared.tls.key_pair import TlsFileError
from ..shared.tracing.open_telemetry import open_tracer
from .adapter_table import AdapterFile, AdapterTable
from .balancer_links import BalancerLinks
from .change_refusals import (
    adapter_left_out,
    adapter_refused,
    drafts_off,
    engine_stopped,
    template_refused,
)
from .device_memory import INTERVAL, DeviceMeter
from .engine.adapter import AdapterError
from .engine.embedding.embedder import Embedder
from .engine.fair_lock import FairLock
from .engine.load_options import LoadOptions
from .engine.loaded_model import LoadedModel
from .engine.model_error import ModelError
from .engine.prompt import Prompt
from .engine.prompt_store.disk_cache import DiskCache
from .engine.prompt_store.stored_prompt import StoredPrompt
from .engine.sequence import SequenceOutput
from .engine.statistics import Gone
from .engine.step_loop import Disk
from .engine.worker import Worker
from .generation.local_generation import LocalGeneration, PromptSaver, SequenceRunner
from .generation.preparation import Preparation
from .generation.preparer import Preparer
from .generation.query_executor import QueryExecutor, TextQueries
from .generation.request_spans import RequestSpans
from .link.reporter import Reporter
from .peers.kv_transfer import KvTransfer, open_kv_transfer
from .served_model import AdapterUnusableError, ServedModel, adapters_with_digests
from .settings import AgentSettings, adapter_file
from .supervision.supervisor_protocol import (
    Change,
    Changed,
    Dial,
    Loaded,
    ReportStatus,
    ShareThreads,
    SupervisorChannel,
)

logger = logging.getLogger(__name__)

LAST_WRITES = 10.0
"""Maximum seconds for which a stopping agent writes prefixes to disk: about as many gigabytes."""


class EngineWorker(SequenceRunner, Protocol):
    """The methods of `engine.worker.Worker` that the daemon uses; tests have their own."""

    lock: FairLock

    def start(self) -> LoadedModel: ...
    def stop(self) -> None: ...
    def use_disk(self, disk: Disk) -> None: ...
    def hand_out(
        self,
        prompt: Prompt,
        reply: Callable[[StoredPrompt | None], None],
        *,
        start: int = 0,
        most_checkpoints: int = 1,
        can_wait: bool = False,
    ) -> Callable[[], None]: ...
    def use_adapters(self, files: Mapping[str, Path]) -> None: ...
    def use_threads(self, threads: int, threads_batch: int) -> None: ...
    def statistics(self) -> Statistics: ...
    def current_step(self) -> int | None: ...
    def has_room(self) -> bool: ...
    def draft_failure(self) -> str | None: ...
    def take_evicted(self, most: int) -> Gone: ...
    def has_prefix(self, key: int) -> bool: ...


class MakeWorker(Protocol):
    """Makes a worker without starting it; see `engine.worker.Worker`."""

    def __call__(
        self,
        model_path: Path,
        options: LoadOptions,
        *,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        on_change: Callable[[], None],
        beside: Mapping[str, int],
    ) -> EngineWorker: ...


async def main(
    settings: AgentSettings,
    shutdown: Shutdown,
    channel: SupervisorChannel,
    *,
    make_worker: MakeWorker = Worker,
) -> None:
    """Serve until `shutdown` is requested. Raises `StartupError` if the agent cannot continue."""
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
        self._links = BalancerLinks(
            settings,
            channel,
            self._status,
            self._slots_changed,
            self._allow_transfer,
            lambda: self._worker.has_room(),
        )
        self._kv_transfer: KvTransfer | None = None
        self._disk: DiskCache | None = None
        self._served: ServedModel | None = None
        self._embedder: Embedder | None = None
        self._worker = make_worker(
            settings.model,
            settings.load_options,
            on_step=self._on_step,
            on_crash=self._on_crash,
            on_change=self._on_change,
            beside={part.device: part.bytes for part in channel.begin.beside},
        )
        channel.step = self._worker.current_step
        self._meter = DeviceMeter(
            lambda measure: self._loop.run_in_executor(None, measure),
            lambda: self._reporter.stir(),
        )
        self._reporter = Reporter(
            read=self._statistics,
            send=self._report,
            call_later=self._loop.call_later,
        )

    async def run(self) -> None:
        logger.info("loading the model", extra=context(model=self._settings.model))
        loading = self._loop.run_in_executor(None, self._worker.start)
        build_schemas()  # meanwhile: the first messages need them
        try:
            model = await loading
        except ModelError as error:
            raise StartupError(str(error)) from error
        try:
            assignment = self._channel.begin.assignment
            adapters, unusable = await self._loop.run_in_executor(None, self._first_adapters)
            prepare = partial(ServedModel, self._settings, model, assignment, adapters)
            served = await self._loop.run_in_executor(None, prepare)
            self._channel.report(
                Loaded(
                    model=served.named_info,
                    left_out=tuple(error.name for error in unusable),
                    issues=tuple(adapter_left_out(error.name, error.reason) for error in unusable),
                )
            )
            dial = await self._dial_order()
            if dial is not None:
                await self._serve(served, dial)
        finally:
            await self._loop.run_in_executor(None, self._worker.stop)

    def _first_adapters(self) -> tuple[list[AdapterFile], list[AdapterUnusableError]]:
        """Return the loaded adapters, and the errors of the others. Blocks.

        Raises `AdapterUnusableError` for an adapter of the command line, which the operator can fix
        at once.
        """
        usable: list[AdapterFile] = []
        unusable: list[AdapterUnusableError] = []
        for one in self._settings.adapters:
            try:
                known = [*usable, *adapters_with_digests([one])]
                self._use_adapters(AdapterTable(adapters=known))
            except AdapterUnusableError as error:
                if self._channel.begin.assignment is None:
                    raise
                unusable.append(error)
            else:
                usable = known
        return usable, unusable

    def _use_adapters(self, adapters: AdapterTable) -> None:
        """Load adapters. Blocks.

        Raises `AdapterUnusableError`; then the previous adapters stay loaded.
        """
        try:
            self._worker.use_adapters(adapters.files)
        except AdapterError as error:
            raise AdapterUnusableError(adapters.name_of(error.digest), str(error)) from error

    # ---- on the worker's thread

    def _on_step(self, outputs: tuple[SequenceOutput, ...]) -> None:
        self._loop.call_soon_threadsafe(self._steps.put_nowait, outputs)

    def _on_crash(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._crash.set_result, error)

    def _on_change(self) -> None:
        self._loop.call_soon_threadsafe(self._worker_changed)

    # ---- on the embedder's thread

    def _stir(self) -> None:
        self._loop.call_soon_threadsafe(self._reporter.stir)

    # ---- on the event loop's thread

    async def _dial_order(self) -> Dial | None:
        """Return the order to dial balancers; `None` if the agent stops before it arrives."""
        async with asyncio.TaskGroup() as group:
            dial = group.create_task(self._channel.dials.get())
            stop = group.create_task(self._shutdown.requested.wait())
            await asyncio.wait({dial, stop}, return_when=asyncio.FIRST_COMPLETED)
            is_stopping = stop.done()
            dial.cancel()
            stop.cancel()
        return None if is_stopping else dial.result()

    async def _serve(self, served: ServedModel, dial: Dial) -> None:
        self._served = served
        model = served.model
        self._disk = await self._loop.run_in_executor(None, self._open_disk, served)
        self._kv_transfer = await self._loop.run_in_executor(None, self._open_peers, served, dial)
        preparation = Preparation(served.preparer)
        queries = TextQueries(model.vocab, served.preparer)
        tracer = await self._loop.run_in_executor(
            None, open_tracer, "arriero-agent", version("arriero")
        )
        spans = RequestSpans(tracer, self._settings.name)
        generation = LocalGeneration(
            preparation,
            self._worker,
            PromptSaver(served.store),
            model.vocab.piece,
            spans,
            self._kv_transfer.receiver if self._kv_transfer else None,
            parts_scopes=self._settings.cache_scope == "key",
        )
        self._embedder = self._make_embedder(model)
        executor = QueryExecutor(queries, self._embedder)
        try:
            async with asyncio.TaskGroup() as group:
                self._links.dial(group, dial, generation, executor)
                self._reporter.check()
                helpers = [
                    group.create_task(each)
                    for each in (
                        self._hand_out_steps(generation),
                        self._measure(),
                        self._obey(served, (preparation, queries)),
                        self._drain(
                            lambda dial: self._links.dial(group, dial, generation, executor)
                        ),
                        self._fail(),
                    )
                ]
                await self._links.ended()
                for helper in helpers:
                    helper.cancel()
        finally:
            self._reporter.stop()
            if self._kv_transfer is not None:
                await self._loop.run_in_executor(None, self._kv_transfer.close)
            if self._disk is not None:
                await self._loop.run_in_executor(None, self._close_disk, self._disk)
            # They use the model, which is freed after this.
            await self._loop.run_in_executor(None, generation.close)
            await self._loop.run_in_executor(None, executor.close)
            await self._loop.run_in_executor(None, tracer.close)
        if self._crash.done():
            raise StartupError(self._why_stopped)

    def _open_peers(self, served: ServedModel, dial: Dial) -> KvTransfer | None:
        """Listen for peers, if the settings say so. Blocks. Raises `StartupError`."""
        address, model = self._settings.peer_addr, served.model
        if address is None:
            return None
        if served.origin is None or model.cell_bytes is None or not served.num_slots:
            logger.warning("--peer-addr has no effect: prefixes of this model cannot be exported")
            return None
        try:
            return open_kv_transfer(
                address,
                self._worker.hand_out,
                self._disk,
                origin=served.origin,
                cell_bytes=model.cell_bytes,
                state_bytes=model.state_bytes,
                context_size=served.model.info.context_size,
                most_bytes=self._settings.host_cache,
                tls=self._settings.tls,
                takes_over=dial.takes_over,
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StartupError(f"--peer-addr: cannot listen on {address}: {reason}") from error
        except TlsFileError as error:
            raise StartupError(str(error)) from error

    def _open_disk(self, served: ServedModel) -> DiskCache | None:
        """Open the disk tier of the prefix cache, if configured. Blocks. Raises `StartupError`."""
        folder, origin, model = served.cache_folder, served.origin, served.model
        if folder is None or origin is None or not model.cell_bytes or not served.num_slots:
            return None
        try:
            disk = DiskCache(
                folder,
                origin=origin,
                cell_bytes=model.cell_bytes,
                state_bytes=model.state_bytes,
                hand_out=self._worker.hand_out,
            )
        except OSError as error:
            raise StartupError(f"--cache-dir {folder.path} cannot be used: {error}") from error
        if model.state_bytes and not self._settings.host_cache:
            logger.warning(
                "--cache-dir: checkpoints of this model cannot be written without --host-cache"
            )
        self._worker.use_disk(disk)
        return disk

    def _close_disk(self, disk: DiskCache) -> None:
        """Write the last prefixes, unless the engine has stopped. Blocks."""
        if not self._crash.done():
            disk.finish(LAST_WRITES)
        disk.close()

    def _allow_transfer(self, ticket: str, seconds: float) -> None:
        if self._kv_transfer is not None:
            self._kv_transfer.sender.allow(ticket, seconds)

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

    async def _hand_out_steps(self, generation: LocalGeneration) -> None:
        while True:
            generation.stepped(await self._steps.get())
            self._reporter.stir()

    async def _measure(self) -> None:
        """Measure the host at intervals, since other programs use the host too."""
        while True:
            self._meter.ask()
            await asyncio.sleep(INTERVAL)

    async def _obey(self, served: ServedModel, readers: tuple[Preparation, TextQueries]) -> None:
        """Carry out the supervisor's orders one after the other."""
        while True:
            order = await self._channel.orders.get()
            match order:
                case ReportStatus():
                    self._links.supervisor_status = order
                case Change(assignment=assignment):
                    issue = await self._change(served, order)
                    for reader in readers:
                        reader.preparer = served.preparer
                    self._channel.report(Changed(assignment=assignment, issue=issue))
                case ShareThreads(threads=threads, threads_batch=threads_batch):
                    self._worker.use_threads(threads, threads_batch)
                case _:
                    assert_never(order)
            self._links.status_changed()

    async def _change(self, served: ServedModel, order: Change) -> Issue | None:
        """Serve as `order` says, with the loaded model. Returns the issue if that is impossible."""
        try:
            preparer = await self._loop.run_in_executor(None, self._prepare, served, order)
        except AdapterUnusableError as error:
            return adapter_refused(error.name, error.reason)
        except StartupError as error:
            return template_refused(str(error))
        except EngineFailed as error:
            return engine_stopped(error.message)
        served.use(order.assignment, preparer)
        return None

    def _prepare(self, served: ServedModel, order: Change) -> Preparer:
        """Prepare a change up to its last step. Loads new adapters. Blocks."""
        adapters = adapters_with_digests(map(adapter_file, order.adapter))
        preparer = served.make_preparer(order.assignment, adapters)
        if preparer.adapters.files != served.preparer.adapters.files:
            self._use_adapters(preparer.adapters)
        return preparer

    def _status(self) -> Status:
        """Return the status for balancers, once a model is served. Also updates the slots."""
        served, links = self._served, self._links
        if served is None:
            raise RuntimeError("there is no model yet")
        links.slots.resize(0 if links.supervisor_status.is_stalled else served.num_slots)
        return Status(
            slots=links.slots.total,
            accepting=True,
            model=served.info,
            issues=served.issues + self._own_issues + links.supervisor_status.issues,
            work=links.supervisor_status.work,
            peer=self._kv_transfer.peer if self._kv_transfer else None,
            disk=self._disk.home if self._disk else None,
        )

    @property
    def _own_issues(self) -> tuple[Issue, ...]:
        failure = self._worker.draft_failure()
        return () if failure is None else (drafts_off(failure),)

    async def _drain(self, dial_again: Callable[[Dial], None]) -> None:
        """Drain, and later dial again, each time the supervisor says so."""
        while True:
            await self._shutdown.requested.wait()
            self._links.drain()
            dial = await self._channel.dials.get()
            self._shutdown.withdraw()
            dial_again(dial)

    async def _fail(self) -> None:
        await asyncio.wait({self._crash})
        self._links.engine_stopped(self._why_stopped)

    @property
    def _why_stopped(self) -> str:
        return f"the engine stopped: {'; '.join(reasons(self._crash.result()))}"

    def _worker_changed(self) -> None:
        if self._served is not None:
            self._links.status_changed()
            self._links.slots_changed()

    def _slots_changed(self) -> None:
        if self._links.slots.num_busy:
            self._reporter.stir()

    def _statistics(self) -> Statistics:
        media = self._served.model.media if self._served else None
        return replace(
            self._worker.statistics(),
            num_grammars=self._served.preparer.num_grammars if self._served else 0,
            num_embedding_cells=self._embedder.num_cells if self._embedder else 0,
            num_draft_cells=self._served.model.num_draft_cells if self._served else None,
            num_media_bytes=media.num_cached_bytes if media else None,
            fetches=self._kv_transfer.counts.total if self._kv_transfer else None,
            disk=self._disk.use if self._disk else None,
            devices=self._meter.present,
        )

    def _report(self, statistics: Statistics) -> None:
        self._links.report(statistics)
        known = self._disk.known if self._disk else None
        while gone := self._worker.take_evicted(MAX_EVICTED):
            keys = gone.keys if known is None else known.without(gone.keys)
            if keys or gone.everything:
                self._links.evicted(Evicted(keys=keys, everything=gone.everything))
        if known is not None:
            keys = known.take_gone(self._worker.has_prefix)
            for start in range(0, len(keys), MAX_EVICTED):
                self._links.evicted(Evicted(keys=keys[start : start + MAX_EVICTED]))
