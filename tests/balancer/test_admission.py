"""The keys that a balancer starts with."""

from pathlib import Path

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.key_spec import KeySpec
from arriero.balancer.admission import caller_now, file_key, keeper_of, open_access
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.url import parse_store_url
from arriero.shared.lifecycle import StartupError
from tests.balancer.access.builders import record, secret


async def test_keys_survive_a_restart(tmp_path: Path) -> None:
    url = parse_store_url(f"sqlite:///{tmp_path}/state.db")
    first = await Persistence.open(url)
    access = await open_access(first, None)
    assert access.is_open
    _, root = await keeper_of(access, first).create(KeySpec(name="root", role="admin"))
    await first.close()
    second = await Persistence.open(url)
    again = await open_access(second, None)
    holder = await again.admitted([root])
    assert holder is not None and holder.name == "root"
    await second.close()


async def test_the_file_gives_an_admin_to_any_store(tmp_path: Path) -> None:
    file = tmp_path / "admin.key"
    file.write_text(secret(1) + "\n")
    persistence = await Persistence.open(parse_store_url("memory://"))
    access = await open_access(persistence, file)
    holder = await access.admitted([secret(1)])
    assert holder is not None and (holder.name, holder.role) == ("admin-key-file", "admin")
    await keeper_of(access, persistence).create(KeySpec(name="ci", role="inference"))
    await persistence.close()


@pytest.mark.parametrize("text", ["", "ark_short", "two keys"])
def test_a_file_with_something_else_is_refused_and_never_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "admin.key"
    file.write_text(text)
    with pytest.raises(StartupError, match="--admin-key-file") as refusal:
        file_key(file)
    assert not text or text not in str(refusal.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot read .*: No such file"):
        file_key(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(StartupError, match="it is not text"):
        file_key(tmp_path / "binary")


def test_the_caller_of_a_request_that_was_accepted_before() -> None:
    anonymous, key = Caller(address="::1"), record("ana", 1)
    owner = key.identity.owner
    assert caller_now(Access(), anonymous) == anonymous
    access = Access([key])
    assert caller_now(access, anonymous) is None, "nobody could ask for its answer any more"
    assert caller_now(access, Caller("was", owner=owner)) == Caller("ana", owner=owner)
    assert caller_now(access, Caller("ana", owner="ana@0")) is None
