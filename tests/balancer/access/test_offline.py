"""The first key, made in the store of a balancer that does not run."""

from pathlib import Path

import pytest

from arriero.balancer.access.key_spec import KeySpec
from arriero.balancer.access.offline import bootstrap, keys_in
from arriero.shared.errors import Conflict, InvalidRequest, StoreUnavailable


async def test_the_first_admin_and_no_second_by_accident(tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    async with keys_in(state, may_be_new=True) as service:
        key, secret = await bootstrap(service, "root")
        assert (key.name, key.role) == ("root", "admin")
    async with keys_in(state) as service:
        assert [each.name for each in service.records()] == ["root"]
        with pytest.raises(Conflict, match="the admin key 'root' exists already"):
            await bootstrap(service, "other")
        await service.create(KeySpec(name="ci", role="inference"))
        with pytest.raises(Conflict, match="'root' is the last key of the role admin"):
            await service.revoke("root")
        await service.revoke("root", may_be_last=True)
        await bootstrap(service, "root")  # whoever has the store can come back in
    assert secret not in (tmp_path / "state.db").read_bytes().decode(errors="replace")


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        ("memory://", InvalidRequest, "--admin-key-file"),
        ("mysql://x", InvalidRequest, "--state: must be memory://, sqlite"),
        ("sqlite:////nowhere/state.db", StoreUnavailable, "--state: .*no folder"),
    ],
)
async def test_a_store_that_cannot_be_had(state: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        async with keys_in(state, may_be_new=True):
            pass


async def test_only_the_first_key_makes_a_store(tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/typo.db"
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"--state: there is no database .*/typo\.db"):
            async with keys_in(state):
                pass
