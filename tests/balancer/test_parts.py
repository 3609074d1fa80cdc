"""A balancer's parts, made from its settings."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from arriero.balancer.fleet.limits import Limits
from arriero.balancer.parts import assemble, limits_of
from arriero.balancer.settings import BalancerSettings
from arriero.balancer.store.records import Persist, StoreStatus
from arriero.shared.lifecycle import StartupError


def test_every_limit_has_its_setting() -> None:
    settings = BalancerSettings(
        max_buffered_requests=1,
        buffered_request_timeout=2,
        first_token_timeout=3,
        token_timeout=4,
        request_timeout=5,
        heartbeat_interval=6,
        heartbeat_timeout=7,
    )
    assert limits_of(settings) == Limits(
        max_buffered_requests=1,
        buffered_request_timeout=2,
        first_token_timeout=3,
        token_timeout=4,
        request_timeout=5,
        heartbeat_interval=6,
        heartbeat_timeout=7,
    )


async def test_what_has_no_use_is_not_made() -> None:
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(BalancerSettings(), until_the_end)
        assert (parts.peers, parts.kept_keeper, parts.pipes) == (None, None, None)
        assert parts.certificates is None
        assert parts.jobs is not None  # in a temporary folder
        work = parts.work(BalancerSettings())
        for each in work:
            each.close()
    assert len(work) == 4  # the fleet, events, the store's writer, jobs


async def test_with_a_store_answers_outlive_the_balancer(tmp_path: Path) -> None:
    settings = BalancerSettings.model_validate({"state": f"sqlite:///{tmp_path}/state.db"})
    async with AsyncExitStack() as until_the_end:
        parts = await assemble(settings, until_the_end)
        assert parts.kept_keeper is not None
        assert parts.store_statuses() == {"history": StoreStatus(), "requests": StoreStatus()}
        assert parts.issues() == ()
        parts.persistence.writer.persist(Persist(7, "{}"))
        parts.persistence.writer._health.went_away("gone")
        status = parts.store_status()
        assert status == StoreStatus(status.away_since, "gone", num_pending=1)
        assert [issue.code for issue in parts.issues()] == ["store_away"]


async def test_a_part_that_cannot_be_made_closes_those_before_it(tmp_path: Path) -> None:
    settings = BalancerSettings(admin_key_file=tmp_path / "none")
    with pytest.raises(StartupError, match="--admin-key-file: cannot read"):
        async with AsyncExitStack() as until_the_end:
            await assemble(settings, until_the_end)
