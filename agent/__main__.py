"""The `agent` program."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

from ..shared import lifecycle, log
from ..shared.lifecycle import StartupError
from ..shared.settings.load import load_or_exit
from ..shared.tls.contexts import client_context
from ..shared.tls.key_pair import TlsFileError
from .engine.load_options import servers_of
from .settings import AgentSettings

_ENGINE = ("llama_cpp", "llguidance")
"""The packages of the extra `agent`. The balancer and an agent with --upstream do not need them.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a model on this host, or forward to a server that does."""
    settings = load_or_exit(AgentSettings, argv)
    log.setup(settings.log_format, settings.log_level)

    async def daemon(shutdown: lifecycle.Shutdown) -> int:
        # Late: --help and a wrong flag answer at once.
        with lifecycle.loading():
            from .gpus import Gpus, gpus, idle_memory
            from .host_facts import host_facts
            from .models.fetcher import Fetcher
            from .supervision.supervisor import main

        if settings.upstream is None:
            _require_engine()
        _require_certificates(settings)
        files = Fetcher(settings.models_dir, settings.models_limit)
        is_pinned = settings.is_pinned
        found = Gpus()
        if settings.upstream is None:
            found = await gpus(servers=servers_of(settings.rpc), are_wanted=settings.wants_gpus)
        facts = host_facts(
            is_pinned=is_pinned,
            disk_free=None if is_pinned else await files.room(),
            devices=found.devices,
            answers_fit=settings.upstream is None,
        )
        servers = servers_of(settings.rpc)
        return await main(
            settings,
            shutdown,
            facts=facts,
            files=files,
            issues=found.issues,
            measure=partial(idle_memory, facts.devices, servers=servers),
        )

    return lifecycle.run(settings.program, daemon)


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
