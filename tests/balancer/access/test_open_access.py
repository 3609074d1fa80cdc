"""A balancer's access from its store's keys, and from the one in a file."""

from pathlib import Path

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.access.key_service import KeyService
from arriero.balancer.access.key_spec import KeySpec
from arriero.balancer.access.open_access import file_key, open_access
from arriero.balancer.persistence import Persistence
from arriero.balancer.store.url import parse_store_url
from arriero.shared.lifecycle import StartupError
from tests.balancer.access.builders import secret


async def test_keys_survive_a_restart(tmp_path: Path) -> None:
    url = parse_store_url(f"sqlite:///{tmp_path}/state.db")
    first = await Persistence.open(url)
    access = await open_access(first.store, None)
    assert access.is_open
    _, root = await KeyService(access, first.store).create(KeySpec(name="root", role="admin"))
    await first.close()
    second = await Persistence.open(url)
    again = await open_access(second.store, None)
    holder = await again.admitted([root])
    assert holder is not None and holder.name == "root"
    await second.close()


async def test_a_store_without_the_keys_it_had_is_opened_only_if_it_is_said(tmp_path: Path) -> None:
    persistence = await Persistence.open(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    store = persistence.store
    assert (await open_access(persistence.store, None, without_keys=True)).is_open
    key, _ = await KeyService(Access(), store).create(KeySpec(name="root", role="admin"))
    assert not (await open_access(persistence.store, None, without_keys=True)).is_open, (
        "it has some"
    )
    await store.forget_key(key.name, key.revision)
    assert not (await open_access(persistence.store, None)).is_open
    assert (await open_access(persistence.store, None, without_keys=True)).is_open
    assert (await open_access(persistence.store, None)).is_open, "it was said once"
    await persistence.close()


async def test_the_file_gives_an_admin_to_any_store(tmp_path: Path) -> None:
    file = tmp_path / "admin.key"
    file.write_text(secret(1) + "\n")
    persistence = await Persistence.open(parse_store_url("memory://"))
    access = await open_access(persistence.store, file)
    holder = await access.admitted([secret(1)])
    assert holder is not None and (holder.name, holder.role) == ("admin-key-file", "admin")
    await KeyService(access, persistence.store).create(KeySpec(name="ci", role="inference"))
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
