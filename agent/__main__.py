"""The `agent` program."""

import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..shared import lifecycle, log
from ..shared.lifecycle import StartupError
from ..shared.settings.load import load_or_exit
from ..shared.tls.contexts import client_context
from ..shared.tls.key_pair import TlsFileError
from .engine.load_options import servers_of
from .settings import AgentSettings

if TYPE_CHECKING:
    from .supervision.engine_run import EngineProcess

_ENGINE = ("llama_cpp", "llguidance")
"""Packages of the extra `agent`: a balancer needs neither, nor does an agent with --upstream."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a model on this host, or forward to a server that does."""
    settings = load_or_exit(AgentSettings, argv)
    log.setup(settings.log_format, settings.log_level)

    async def daemon(shutdown: lifecycle.Shutdown) -> int:
        if settings.upstream is None:
            _require_engine()
        _require_certificates(settings)
        async with AsyncExitStack() as until_the_end:
            return await _supervise(settings, shutdown, until_the_end)

    return lifecycle.run(settings.program, daemon)


async def _supervise(
    settings: AgentSettings, shutdown: lifecycle.Shutdown, until_the_end: AsyncExitStack
) -> int:
    """Look at the host, and keep its engine processes running. Returns the exit code."""
    # Late: --help and a wrong flag answer at once.
    with lifecycle.loading():
        from .supervision.engine_run import COMMAND, start_engine
        from .supervision.supervisor_protocol import AHEAD

    started = []
    if settings.model is not None:  # the engine's libraries load while this process goes on
        with suppress(OSError):  # the next try reports it
            started.append(await start_engine((*COMMAND, AHEAD)))
            until_the_end.callback(started[0].kill)
    with lifecycle.loading():
        from .gpus import Gpus, gpus, idle_memory
        from .host_facts import host_facts
        from .models.fetcher import Fetcher
        from .supervision.supervisor import main

    files = Fetcher(settings.models_dir, settings.models_limit)
    is_pinned = settings.is_pinned
    servers = servers_of(settings.rpc)
    found = Gpus()
    if settings.upstream is None:
        found = await gpus(servers=servers, are_wanted=settings.wants_gpus)
    facts = host_facts(
        is_pinned=is_pinned,
        disk_free=None if is_pinned else await files.room(),
        devices=found.devices,
        answers_fit=settings.upstream is None,
    )

    async def start() -> "EngineProcess":
        return started.pop() if started else await start_engine()

    return await main(
        settings,
        shutdown,
        facts=facts,
        files=files,
        issues=found.issues,
        start=start,
        measure=partial(idle_memory, facts.devices, servers=servers),
    )


def _require_engine() -> None:
    """Raise `StartupError` if only the balancer's part was installed."""
    missing = [name for name in _ENGINE if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        raise StartupError(
            f"{names} {verb} not installed: in Arriero's checkout, pip install '.[agent]'"
        )


def _require_certificates(settings: AgentSettings) -> None:
    """Raise `StartupError` if the files that `wss://` needs cannot be used."""
    if any(url.startswith("wss:") for url in settings.balancer):
        try:
            client_context(settings.tls, time.time())
        except TlsFileError as error:
            raise StartupError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
