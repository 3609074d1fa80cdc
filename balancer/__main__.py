"""The `balancer` program."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..shared import lifecycle, log
from ..shared.settings.load import load_or_exit
from .settings import BalancerSettings

if TYPE_CHECKING:
    from .cluster.worker import Place


def main(argv: Sequence[str] | None = None) -> int:
    """Run the balancer, which spreads requests over the agents."""
    settings = load_or_exit(BalancerSettings, argv)
    from .cluster.worker import open_pipes, place_in  # late: --help and a wrong flag answer at once

    place = place_in(os.environ)
    log.setup(settings.log_format, settings.log_level, keeps_lines=False)
    if place is not None:
        log.mark(worker=place.number)

    async def daemon(shutdown: lifecycle.Shutdown) -> int | None:
        if settings.workers > 1 and place is None:
            from .cluster.supervisor import main as supervise

            return await supervise(settings, sys.argv[1:] if argv is None else argv, shutdown)
        with lifecycle.loading():
            from .daemon import main

        if place is None:
            await main(settings, shutdown)
        else:
            await main(as_worker(settings, place), shutdown, await open_pipes(place))
        return None

    return lifecycle.run(settings.program, daemon)


def as_worker(settings: BalancerSettings, place: "Place") -> BalancerSettings:
    """Return the settings of one worker: its own name, and the ports of its parent."""
    return settings.model_copy(
        update={
            "balancer_name": place.named(settings.balancer_name),
            "inference_addr": place.inference,
            "management_addr": place.management,
        }
    )


if __name__ == "__main__":
    sys.exit(main())
