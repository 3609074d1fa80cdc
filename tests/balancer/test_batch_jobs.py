"""Where files lie by default, and who runs the lines of a batch."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.access_key import AccessKey
from arriero.balancer.batch_jobs import callers, place_of
from arriero.balancer.jobs.blobs.place import FilesPlace
from arriero.balancer.jobs.core.batch import BatchCaller
from arriero.balancer.settings import BalancerSettings


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"state": "sqlite:////srv/a.db"}, FilesPlace(Path("/srv/a.db-files"))),
        ({"state": "postgresql://h/d"}, None),
        ({"state": "postgresql://h/d", "files": "/srv/f"}, FilesPlace(Path("/srv/f"))),
        ({"files": "s3://b/f"}, FilesPlace(url="s3://b/f")),
    ],
)
async def test_places(settings: dict[str, str], place: FilesPlace | None) -> None:
    async with AsyncExitStack() as stack:
        assert place_of(BalancerSettings.model_validate(settings), stack) == place


async def test_in_memory_they_are_gone_at_the_end() -> None:
    async with AsyncExitStack() as stack:
        place = place_of(BalancerSettings(), stack)
        assert place is not None and place.folder is not None
        assert place.folder.is_dir()
    assert not place.folder.exists()


async def test_a_host_that_can_write_nowhere_still_has_a_balancer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(**_: object) -> None:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    async with AsyncExitStack() as stack:
        assert place_of(BalancerSettings(), stack) is None


def key(name: str, created_at: float, expires_at: float | None = None) -> AccessKey:
    return AccessKey(
        name=name, digest=name * 64, role="inference", created_at=created_at, expires_at=expires_at
    )


def test_a_batch_runs_as_whoever_made_it() -> None:
    ann = key("a", 1.0, expires_at=50.0)
    now = 10.0
    caller_of = callers(Access([ann]), lambda: now)
    owner = ann.identity.owner
    caller = caller_of(BatchCaller(name="a", owner=owner))
    assert caller is not None
    assert (caller.name, caller.owner) == ("a", owner)
    assert caller_of(BatchCaller(name="a", owner="a@of another time")) is None
    assert caller_of(BatchCaller(name="b", owner="b@1")) is None
    nobody = caller_of(BatchCaller(name="anonymous", address="127.0.0.1"))
    assert nobody is not None and nobody.is_anonymous and nobody.address == "127.0.0.1"
    now = 51.0
    assert caller_of(BatchCaller(name="a", owner=owner)) is None
