"""The `balancer` program."""

import sys
from collections.abc import Sequence

from ..shared import lifecycle, log
from ..shared.settings.load import load_or_exit
from .settings import BalancerSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Take requests and spread them over the agents."""
    settings = load_or_exit(BalancerSettings, argv)
    log.setup(settings.log_format, settings.log_level)

    async def daemon(shutdown: lifecycle.Shutdown) -> None:
        with lifecycle.loading():
            from .daemon import main  # late: --help and a wrong flag answer at once

        await main(settings, shutdown)

    return lifecycle.run(settings.program, daemon)


if __name__ == "__main__":
    sys.exit(main())
