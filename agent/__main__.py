"""The `agent` program."""

import sys
from collections.abc import Sequence

from ..shared import lifecycle, log
from ..shared.settings.load import load_or_exit
from .settings import AgentSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Serve a model on this host."""
    settings = load_or_exit(AgentSettings, argv)
    log.setup(settings.log_format, settings.log_level)

    async def daemon(shutdown: lifecycle.Shutdown) -> int:
        from .supervision.supervisor import main  # late: --help and a wrong flag answer at once

        return await main(settings, shutdown)

    return lifecycle.run(settings.program, daemon)


if __name__ == "__main__":
    sys.exit(main())
