"""A process that saves and says so, until it is killed: `python -m … URL`."""

import asyncio
import sys

from arriero.balancer.store.records import EndedRequest, Persist, SavedStep
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import parse_store_url

BATCH = 20


def document(revision: int) -> str:
    """Long enough to span many pages."""
    return f"{revision} " * 20_000


def batch(number: int) -> tuple[list[SavedStep], list[EndedRequest]]:
    steps = [SavedStep(1, number * BATCH + at, str(number)) for at in range(BATCH)]
    endings = [
        EndedRequest(
            id=f"{number}-{at}", ended_at=number, kind="generate", code="stop", caller="anonymous"
        )
        for at in range(BATCH)
    ]
    return steps, endings


async def main(url: str) -> None:
    store = Store(parse_store_url(url))
    await store.open()
    saved = await store.load_desired_state()
    revision = 0 if saved is None else saved.revision
    while True:
        await store.save_desired_state(Persist(revision, document(revision + 1)))
        revision += 1
        await store.history.append_history(*batch(revision))
        print(revision, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
