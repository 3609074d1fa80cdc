"""The agent's first process: starts engine processes as balancers assign, and after crashes.

All native code that can crash runs in engine processes. While none serves, the supervisor connects
to the balancers itself (`standby`), without slots, and says why. The assigner decides what to do.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never
from uuid import uuid4

from ...shared import lifecycle, log
from ...shared.inference import AgentId
from ...shared.lifecycle import Shutdown
from ...shared.log import context
from ...shared.log_bell import LogBell
from ...shared.messages import Issue
from ...shared.models.assignments import (
    Assign,
    Assignment,
    Download,
    HostFacts,
    Reload,
    Work,
)
from ...shared.reports.model_info import ModelInfo
from ..host_facts import available_memory
from ..link.balancer_secrets import BalancerSecrets
from ..models.model_file import AdapterOnHost, ModelFile
from ..models.port import Lease, ModelFiles
from ..settings import AgentSettings
from .assigned_settings import adapter_flags, assigned_settings
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
    RetireEngine,
    StartEngine,
)
from .engine_run import Child, EngineRun, StartProcess
from .engines import LeftOut
from .model_fetch import Brought, bring_adapters, fetch_model
from .restarts import Quit, Restarts
from .standby import Standby
from .supervisor_protocol import Begin, Change, Dial, Loaded, Logged, ReportStatus, SecretGiven

logger = logging.getLogger(__name__)


async def main(
    settings: AgentSettings,
    shutdown: Shutdown,
    *,
    facts: HostFacts,
    files: ModelFiles,
    issues: tuple[Issue, ...] = (),
    start: StartProcess = Child.start,
    make_restarts: Callable[[], Restarts] = Restarts,
) -> int:
    """Keep engine processes running until `shutdown` is requested. Returns the exit code.

    `issues` are the host's, which stay.
    Raises `StartupError` when a balancer refuses this agent for good.
    """
    async with asyncio.TaskGroup() as group:
        supervisor = _Supervisor(
            settings, facts, files, group, issues=issues, start=start, make_restarts=make_restarts
        )
        try:
            return await supervisor.run(shutdown)
        finally:
            supervisor.leave()


@dataclass(slots=True)
class _Engine:
    """A run, what its next process begins with, and the status that it was sent.

    The status is `None` before it may dial.
    """

    run: EngineRun
    begin: Begin
    reported: tuple[tuple[Issue, ...], Work | None, bool] | None = None


class _Supervisor:
    """Feeds the assigner what happens, and carries out its decisions."""

    def __init__(
        self,
        settings: AgentSettings,
        facts: HostFacts,
        files: ModelFiles,
        group: asyncio.TaskGroup,
        *,
        issues: tuple[Issue, ...],
        start: StartProcess,
        make_restarts: Callable[[], Restarts],
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._host_issues = issues
        self._files = files
        self._group = group
        self._start = start
        self._make_restarts = make_restarts
        self._agent_id = AgentId(uuid4().hex)
        self._assigner = Assigner(
            slots=settings.slots,
            memory=facts.memory + sum(each.memory for each in facts.devices),
            is_pinned=facts.is_pinned,
            jitter=random.random(),
        )
        self._secrets = BalancerSecrets(self._pass_secret_on)
        self._standby = Standby(
            settings,
            self._agent_id,
            facts,
            group,
            secrets=self._secrets,
            on_connected=self._on_connected,
            on_order=self.on_ordered,
        )
        self._engines: dict[EngineId, _Engine] = {}
        self._fetches: dict[FetchId, asyncio.Task[None]] = {}
        self._leases: list[tuple[ModelFile | AdapterOnHost, Lease]] = []
        self._loaded: dict[EngineId, ModelInfo] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._is_announced = False
        self._last_passed_on = 0
        self._bell = LogBell(self._pass_log_on)

    async def run(self, shutdown: Shutdown) -> int:
        """Run until the agent ends. Returns the exit code."""
        stopper = self._group.create_task(self._stop_when_asked(shutdown))
        self._carry_out(self._assigner.start())
        verdict = await self._exit
        stopper.cancel()
        if verdict.complaint is not None:
            logger.error("%s", verdict.complaint)
        return verdict.code

    def leave(self) -> None:
        """Disconnect, and stop whatever still runs."""
        self._bell.close()
        self._standby.leave()
        if self._timer is not None:
            self._timer.cancel()
        for lease in (lease for _, lease in self._leases):
            lease.release()

    def _pass_log_on(self) -> None:
        """The engine processes' links show it; what a process began with it has already."""
        if lines := log.recent(self._last_passed_on):
            self._last_passed_on = lines[-1].number
            for engine in self._engines.values():
                engine.run.say(Logged(lines=lines))

    async def _stop_when_asked(self, shutdown: Shutdown) -> None:
        await shutdown.requested.wait()
        self._carry_out(self._assigner.stop())

    # ---- what happens; see `engine_run.Watcher`

    def on_loaded(self, id: EngineId, loaded: Loaded) -> None:
        if loaded.model is not None:
            self._loaded[id] = loaded.model
        _log_left_out(loaded.issues)
        left_out = LeftOut(loaded.left_out, loaded.issues) if loaded.left_out else None
        self._carry_out(self._assigner.loaded(id, time.monotonic(), left_out))

    def on_joined(self, id: EngineId) -> None:
        self._carry_out(self._assigner.joined(id, time.monotonic()))
        begin, model = self._engines[id].begin, self._loaded.get(id)
        self._announce(slots=begin.settings.slots, model=model.name if model else "")

    def on_ordered(self, order: Assign | Reload) -> None:
        if self._facts.is_pinned:
            logger.warning(
                "`%s` ignored: this agent serves the model of --model or --upstream", order.type
            )
            return
        logger.info("a balancer orders", extra=context(**_named(order)))
        self._carry_out(self._assigner.ordered(order))

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
            logger.error("a change of the model is refused: %s", issue.message)
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
            self._announce(slots=0, model="")

    def _announce(self, *, slots: int, model: str) -> None:
        if not self._is_announced:
            self._is_announced = True
            settings = self._settings
            lifecycle.ready(settings.program, name=settings.name, slots=slots, model=model)

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

    def _do(self, decision: Decision) -> None:
        match decision:
            case FetchModel(id):
                self._fetches[id] = self._group.create_task(self._fetch(decision))
            case CancelFetch(id):
                self._fetches.pop(id).cancel()
            case StartEngine(id, assignment, file):
                self._start_engine(id, assignment, file)
            case DialBalancers(id, takes_over):
                issues, work, _ = reported = self._status_of(id)
                self._engines[id].reported = reported
                for balancer, secret in self._secrets:
                    given = SecretGiven(balancer=balancer, secret=secret)
                    self._engines[id].run.say(given)
                dial = Dial(takes_over=takes_over, issues=issues, work=work)
                self._engines[id].run.say(dial)
            case ChangeEngine(id, assignment, adapters):
                flags = adapter_flags(self._settings, assignment, adapters)
                self._engines[id].run.say(Change(assignment=assignment, adapter=flags))
            case RetireEngine(id, drain_timeout):
                most = self._settings.drain_timeout if drain_timeout is None else drain_timeout
                self._engines[id].reported = None
                self._engines[id].run.retire(drain_timeout, most)
            case EndEngine(id):
                self._engines[id].run.end()
            case Exit():
                if not self._exit.done():
                    self._exit.set_result(decision)
            case _:
                assert_never(decision)

    def _start_engine(
        self, id: EngineId, assignment: Assignment | None, file: ModelFile | None
    ) -> None:
        settings = self._settings
        if assignment is not None and file is not None:
            settings = assigned_settings(settings, assignment, file)
        begin = Begin(
            agent_id=self._agent_id, settings=settings, facts=self._facts, assignment=assignment
        )
        run = EngineRun(
            id,
            lambda: replace(self._engines[id].begin, log=log.recent()),
            self,
            start=self._start,
            restarts=self._make_restarts(),
        )
        self._engines[id] = _Engine(run, begin)
        self._group.create_task(run.run())

    # ---- files

    def _available(self) -> int | None:
        """The memory in bytes that is free; unknown where a part of it is on GPUs."""
        return None if self._facts.devices else available_memory()

    async def _fetch(self, fetch: FetchModel) -> None:
        """Reports to the assigner, unless it is cancelled."""
        outcome = await self._brought(fetch)
        self._fetches.pop(fetch.id, None)
        now = time.monotonic()
        if isinstance(outcome, Issue):
            logger.error("%s: %s", fetch.assignment.source, outcome.message)
            self._carry_out(self._assigner.fetch_failed(fetch.id, outcome, now))
            return
        self._leases.extend(outcome.leases)
        _log_left_out(outcome.issues)
        self._carry_out(
            self._assigner.fetched(
                fetch.id, outcome.file, self._available(), now, issues=outcome.issues
            )
        )

    async def _brought(self, fetch: FetchModel) -> Brought | Issue:
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
        )

    def _progressed(self, id: FetchId, download: Download) -> None:
        self._assigner.progressed(id, download)
        self._show()

    def _release(self) -> None:
        """Files that are not loaded again may be evicted."""
        files = self._assigner.files
        kept = [(file, lease) for file, lease in self._leases if file in files]
        for file, lease in self._leases:
            if file not in files:
                lease.release()
        self._leases = kept

    # ---- what balancers hear

    def _status_of(self, id: EngineId | None) -> tuple[tuple[Issue, ...], Work | None, bool]:
        """The issues, the work, and whether the engine is stalled."""
        run = None if id is None or id not in self._engines else self._engines[id].run
        issues = () if run is None else run.issues
        is_stalled = run is not None and run.is_stalled
        return self._host_issues + self._assigner.issues + issues, self._assigner.work, is_stalled

    def _show(self) -> None:
        """Send balancers what is new, over whichever links there are."""
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
        """The model that will be served next, if that is known."""
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
        logger.error("an adapter is left out: %s", issue.message)


def _named(order: Assign | Reload) -> dict[str, object]:
    if isinstance(order, Reload):
        return {"order": order.type}
    model = None if order.assignment is None else order.assignment.name
    return {"order": order.type, "revision": order.revision, "model": model}
