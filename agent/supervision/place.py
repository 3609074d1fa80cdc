"""One place of a host: starts engine processes as balancers assign, and after crashes.

To balancers a place is an agent of its own. While no engine serves, the place itself connects to
the balancers (`standby`), without slots, and reports why. The assigner makes the decisions.
"""

import asyncio
import logging
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from ...shared import log
from ...shared.inference import AgentId
from ...shared.log import context
from ...shared.log_bell import LogBell
from ...shared.messages import FitRead, Issue, ReadFit
from ...shared.models.assignments import (
    Assign,
    Assignment,
    Download,
    HostFacts,
    Reload,
    Work,
)
from ...shared.reports.model_info import ModelInfo
from ...shared.reports.statistics import DeviceMemory
from ..host_facts import available_memory
from ..link.balancer_secrets import BalancerSecrets
from ..link.decisions import HostOrder
from ..models.model_file import AdapterOnHost, ModelFile
from ..models.port import Lease, ModelFiles
from ..settings import AgentSettings
from .assigned_settings import (
    adapter_flags,
    assigned_settings,
    share_of_threads,
    with_share_of_threads,
)
from .assigner import Assigner
from .decisions import (
    CancelFetch,
    ChangeEngine,
    Decision,
    DialBalancers,
    EndEngine,
    EngineId,
    Exit,
    FetchId,
    FetchModel,
    RecallEngine,
    RestartEngine,
    RetireEngine,
    StartEngine,
)
from .engine_run import EngineProcess, EngineRun
from .engines import LeftOut
from .fit_reader import FitReader
from .model_fetch import Brought, Unfit, bring_adapters, fetch_model
from .restarts import Quit, Restarts
from .room import Room
from .standby import Standby
from .supervisor_protocol import (
    Begin,
    Change,
    Dial,
    FitFound,
    Loaded,
    Logged,
    Refresh,
    ReportStatus,
    SecretGiven,
    ShareThreads,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Engine:
    """A run, the first order for its next process, and the last status sent to the process.

    The status is `None` before the engine may dial. `threads` are the process's threads: for
    single-token steps, and for other steps.
    """

    run: EngineRun
    begin: Begin
    threads: tuple[int, int] | None = None
    reported: tuple[tuple[Issue, ...], Work | None, bool] | None = None


class Host(Protocol):
    """The parts of its host that a place uses; see `supervisor.py`."""

    settings: AgentSettings
    facts: HostFacts
    id: AgentId
    files: ModelFiles
    fits: FitReader
    issues: tuple[Issue, ...]
    group: asyncio.TaskGroup
    room: Room
    engine_ids: Iterator[int]

    async def start_process(self) -> EngineProcess:
        """Start an engine process."""
        ...

    def make_restarts(self) -> Restarts:
        """Return the policy that decides when an engine restarts."""
        ...

    @property
    def num_in_use(self) -> int:
        """The number of places with engines, which share the threads."""
        ...

    def announce(self, *, slots: int, model: str) -> None:
        """Note that a balancer accepted a place."""
        ...

    def changed(self) -> None:
        """Note an event at a place that may matter to other places."""
        ...

    def exits(self, place: "Place", exit: Exit) -> None:
        """Note that a place has ended."""
        ...


class Place:
    """Passes events to its assigner, and carries out the assigner's decisions."""

    def __init__(self, host: Host, agent_id: AgentId) -> None:
        self._host = host
        self._settings = settings = host.settings
        self._facts = facts = host.facts
        self._files = host.files
        self._group = group = host.group
        self._agent_id = agent_id
        self._assigner = Assigner(
            slots=settings.slots,
            room=host.room,
            is_pinned=facts.is_pinned,
            jitter=random.random(),
            ids=host.engine_ids,
        )
        self._secrets = BalancerSecrets(self._pass_secret_on)
        self._standby = Standby(
            settings,
            agent_id,
            facts,
            group,
            host=host.id,
            secrets=self._secrets,
            on_connected=self._on_connected,
            on_order=self.on_ordered,
        )
        self._engines: dict[EngineId, _Engine] = {}
        self._fetches: dict[FetchId, asyncio.Task[None]] = {}
        self._leases: list[tuple[ModelFile | AdapterOnHost, Lease]] = []
        self._loaded: dict[EngineId, ModelInfo] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._last_passed_on = 0
        self._is_given_up = False
        self._bell = LogBell(self._pass_log_on)

    def start(self) -> None:
        """Connect to the balancers, or start the engine of a pinned agent."""
        self._carry_out(self._assigner.start())

    def stop(self) -> None:
        """End the place after its running requests have finished."""
        self._carry_out(self._assigner.stop())

    @property
    def is_spare(self) -> bool:
        """Return whether no model is served here, or will be."""
        return self._assigner.is_spare

    @property
    def has_engines(self) -> bool:
        """Return whether engine processes run here."""
        return self._assigner.has_engines

    @property
    def waits_for_room(self) -> bool:
        """Return whether a model waits here for memory."""
        return self._assigner.waits_for_room

    def host_changed(self, num_places: int) -> None:
        """Note the number of places of the host."""
        self._standby.host_changed(num_places)

    def room_changed(self) -> None:
        """Try to load a waiting model, because engines of other places have loaded or ended."""
        decisions = self._assigner.room_changed(self._available(), time.monotonic())
        if decisions:
            self._carry_out(decisions)

    def measured(self, devices: tuple[DeviceMemory, ...]) -> None:
        """Report the host's memory, measured while no engine runs; empty once an engine runs."""
        self._standby.measured(devices)

    def share_threads(self) -> None:
        """Give each engine its share of the threads after engines of other places started or
        ended.
        """
        for engine in self._engines.values():
            share = self._share_of_threads(engine.begin)
            if engine.threads not in (None, share):
                engine.threads = share
                engine.run.say(ShareThreads(threads=share[0], threads_batch=share[1]))

    def _share_of_threads(self, begin: Begin) -> tuple[int, int]:
        return share_of_threads(begin.settings, max(1, self._host.num_in_use))

    def give_up(self) -> None:
        """Give up the place, which is no longer needed and has no engines."""
        self._is_given_up = True
        self._assigner.leave()
        self.leave()

    def leave(self) -> None:
        """Disconnect, and stop everything that still runs."""
        self._bell.close()
        self._standby.leave()
        if self._timer is not None:
            self._timer.cancel()
        for lease in (lease for _, lease in self._leases):
            lease.release()

    def refresh(self) -> None:
        """Let the engine processes reopen the log, since they write to the supervisor's log."""
        for engine in self._engines.values():
            engine.run.say(Refresh())

    def _pass_log_on(self) -> None:
        """Forward new log lines to the engine processes, whose connections show the log.

        A process gets earlier lines with its first order.
        """
        if lines := log.recent(self._last_passed_on):
            self._last_passed_on = lines[-1].number
            for engine in self._engines.values():
                engine.run.say(Logged(lines=lines))

    # ---- events; see `engine_run.Watcher`

    def on_loaded(self, id: EngineId, loaded: Loaded) -> None:
        if loaded.model is not None:
            self._loaded[id] = loaded.model
        _log_left_out(loaded.issues)
        held = () if loaded.model is None else loaded.model.memory
        left_out = LeftOut(loaded.left_out, loaded.issues) if loaded.left_out else None
        self._carry_out(self._assigner.loaded(id, time.monotonic(), left_out, held))

    def on_joined(self, id: EngineId) -> None:
        self._carry_out(self._assigner.joined(id, time.monotonic()))
        begin, model = self._engines[id].begin, self._loaded.get(id)
        self._host.announce(slots=begin.settings.slots, model=model.name if model else "")

    def on_ordered(self, order: HostOrder) -> None:
        if self._is_given_up:
            return  # the balancer sees the link end, and orders this elsewhere
        if isinstance(order, ReadFit):
            self._host.fits.ask(order, self._fit_found)
            return
        if self._facts.is_pinned and isinstance(order, Assign):
            logger.warning("`assign` ignored: this agent serves the model of --model or --upstream")
            return
        logger.info("a balancer sent an order", extra=context(**_named(order)))
        self._carry_out(self._assigner.ordered(order))

    def _fit_found(self, read: FitRead) -> None:
        self._standby.fit_found(read)
        for engine in self._engines.values():
            engine.run.say(FitFound(read=read))

    def on_secret(self, balancer: str, secret: str) -> None:
        self._secrets.given(balancer, secret)

    def _pass_secret_on(self, balancer: str, secret: str) -> None:
        for engine in self._engines.values():
            engine.run.say(SecretGiven(balancer=balancer, secret=secret))

    def on_changed(self, id: EngineId, assignment: Assignment, issue: Issue | None) -> None:
        engine, begin = self._engines[id], self._engines[id].begin
        decisions = self._assigner.changed(id, assignment, issue, time.monotonic())
        if issue is None:
            # For the next process; but for adapters, what it loads stays the same.
            flags = adapter_flags(self._settings, assignment, self._assigner.adapters_of(id))
            settings = begin.settings.model_copy(update={"adapter": flags})
            engine.begin = replace(begin, assignment=assignment, settings=settings)
        else:
            logger.error("the engine refused a change of the model: %s", issue.message)
        self._carry_out(decisions)

    def on_issues(self) -> None:
        self._show()

    def on_crashed(self, id: EngineId, code: int, reason: str | None) -> None:
        self._engines[id].reported = None
        self._carry_out(self._assigner.crashed(id, code, reason, time.monotonic()))

    def on_ended(self, id: EngineId, quit: Quit, reason: str | None) -> None:
        del self._engines[id]
        self._loaded.pop(id, None)
        if quit.complaint is not None and not self._assigner.is_serving(id):
            logger.error("%s", quit.complaint)
        now = time.monotonic()
        self._carry_out(self._assigner.ended(id, quit, reason, self._available(), now))

    def _on_connected(self) -> None:
        if not self._facts.is_pinned:
            self._host.announce(slots=0, model="")

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._assigner.tick(time.monotonic()))

    # ---- decisions

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self._do(decision)
        self._show()
        self._arm()
        self._release()
        self._host.changed()

    def _do(self, decision: Decision) -> None:
        match decision:
            case FetchModel(id):
                self._fetches[id] = self._group.create_task(self._fetch(decision))
            case CancelFetch(id):
                self._fetches.pop(id).cancel()
            case StartEngine(id, assignment, file):
                self._start_engine(id, assignment, file)
            case DialBalancers(id, takes_over):
                for balancer, secret in self._secrets:
                    given = SecretGiven(balancer=balancer, secret=secret)
                    self._engines[id].run.say(given)
                self._engines[id].run.say(self._dial(id, takes_over=takes_over))
            case RecallEngine(id):
                self._engines[id].run.recall(self._dial(id, takes_over=True))
            case ChangeEngine(id, assignment, adapters):
                flags = adapter_flags(self._settings, assignment, adapters)
                self._engines[id].run.say(Change(assignment=assignment, adapter=flags))
            case RetireEngine(id, drain_timeout):
                most = self._settings.drain_timeout if drain_timeout is None else drain_timeout
                self._engines[id].reported = None
                self._engines[id].run.retire(drain_timeout, most)
            case RestartEngine(id, drain_timeout):
                self._engines[id].reported = None
                self._engines[id].run.restart(drain_timeout)
            case EndEngine(id):
                self._engines[id].run.end()
            case Exit():
                self._host.exits(self, decision)
            case _:
                assert_never(decision)

    def _dial(self, id: EngineId, *, takes_over: bool) -> Dial:
        issues, work, _ = self._engines[id].reported = self._status_of(id)
        return Dial(takes_over=takes_over, issues=issues, work=work)

    def _start_engine(
        self, id: EngineId, assignment: Assignment | None, file: ModelFile | None
    ) -> None:
        settings = self._settings
        if assignment is not None and file is not None:
            settings = assigned_settings(settings, assignment, file)
        begin = Begin(
            agent_id=self._agent_id,
            host=self._host.id,
            settings=settings,
            facts=self._facts,
            assignment=assignment,
        )
        run = EngineRun(
            id,
            lambda: self._begin(self._engines[id]),
            self,
            start=self._host.start_process,
            restarts=self._host.make_restarts(),
        )
        self._engines[id] = _Engine(run, begin)
        self._group.create_task(run.run())

    def _begin(self, engine: _Engine) -> Begin:
        """Return the first order for the next process: current share of threads, and the log."""
        begin = engine.begin
        engine.threads = self._share_of_threads(begin)
        share = with_share_of_threads(begin.settings, max(1, self._host.num_in_use))
        beside = self._assigner.beside(engine.run.id)
        return replace(begin, settings=share, beside=beside, log=log.recent())

    # ---- files

    def _available(self) -> int | None:
        """Return the free memory in bytes; `None` if a part of the memory is on GPUs."""
        return None if self._facts.devices else available_memory()

    async def _fetch(self, fetch: FetchModel) -> None:
        """Fetch, and report the outcome to the assigner, unless cancelled."""
        outcome = await self._brought(fetch)
        self._fetches.pop(fetch.id, None)
        now = time.monotonic()
        if not isinstance(outcome, Brought):
            unfit = outcome.file if isinstance(outcome, Unfit) else None
            issue = outcome.issue if isinstance(outcome, Unfit) else outcome
            logger.error("%s: %s", fetch.assignment.source, issue.message)
            self._carry_out(self._assigner.fetch_failed(fetch.id, issue, now, unfit=unfit))
            return
        self._leases.extend(outcome.leases)
        _log_left_out(outcome.issues)
        self._carry_out(
            self._assigner.fetched(
                fetch.id, outcome.file, self._available(), now, issues=outcome.issues
            )
        )

    async def _brought(self, fetch: FetchModel) -> Brought | Unfit | Issue:
        def on_progress(download: Download) -> None:
            self._progressed(fetch.id, download)

        if fetch.beside is not None:
            desired = fetch.assignment
            return await bring_adapters(self._files, desired, fetch.beside, on_progress=on_progress)
        return await fetch_model(
            self._files,
            self._settings,
            fetch.assignment,
            on_progress=on_progress,
            devices=self._facts.devices,
            host=self._facts.memory,
        )

    def _progressed(self, id: FetchId, download: Download) -> None:
        self._assigner.progressed(id, download)
        self._show()

    def _release(self) -> None:
        """Release the leases of files that will not be loaded again."""
        files = self._assigner.files
        kept = [(file, lease) for file, lease in self._leases if file in files]
        for file, lease in self._leases:
            if file not in files:
                lease.release()
        self._leases = kept

    # ---- reports to balancers

    def _status_of(self, id: EngineId | None) -> tuple[tuple[Issue, ...], Work | None, bool]:
        """Return the issues, the work, and whether the engine is stalled."""
        run = None if id is None or id not in self._engines else self._engines[id].run
        issues = () if run is None else run.issues
        is_stalled = run is not None and run.is_stalled
        return self._host.issues + self._assigner.issues + issues, self._assigner.work, is_stalled

    def _show(self) -> None:
        """Send changes of the status to balancers, over the existing connections."""
        for id, engine in self._engines.items():
            if engine.reported is not None and (status := self._status_of(id)) != engine.reported:
                issues, work, is_stalled = engine.reported = status
                engine.run.say(ReportStatus(issues=issues, work=work, is_stalled=is_stalled))
        if not self._assigner.is_standing_in:
            self._standby.leave()
            return
        serving = (id for id in self._engines if self._assigner.is_serving(id))
        issues, work, _ = self._status_of(next(serving, None))
        self._standby.show(
            issues, work, self._loading(), is_making_way=self._assigner.is_making_way
        )

    def _loading(self) -> ModelInfo | None:
        """Return the model that will be served next, if known."""
        serving = (id for id in self._loaded if self._assigner.is_serving(id))
        return self._assigner.loading or next((self._loaded[id] for id in serving), None)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline := self._assigner.next_deadline()) is not None:
            delay = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)


def _log_left_out(issues: Iterable[Issue]) -> None:
    for issue in issues:
        logger.error("the model is served without an adapter: %s", issue.message)


def _named(order: Assign | Reload) -> dict[str, object]:
    if isinstance(order, Reload):
        return {"order": order.type}
    model = None if order.assignment is None else order.assignment.name
    return {"order": order.type, "revision": order.revision, "model": model}
