"""Changes access keys directly in the store, without a balancer (`arriero keys --state`).

Use it to create the first key, and for repairs. A running balancer reads the store when a client
sends a key that it does not know, so it accepts a new key from the first use on. It notices a
revoked or rotated key within `key_service.RECONCILE_INTERVAL` seconds. Changes through the
management port take effect at once.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ...shared.errors import Conflict, InvalidRequest, StoreUnavailable
from ..store.port import StoreAway, StoreRefused
from ..store.store import open_store
from ..store.url import StoreUrl, parse_store_url
from .access import Access
from .access_key import AccessKey
from .key_service import KeyService, load_keys
from .key_spec import KeySpec


@asynccontextmanager
async def keys_in(state: str, *, may_be_new: bool = False) -> AsyncIterator[KeyService]:
    """Open the keys in the store at the URL `state`. Raises `RequestError`.

    `may_be_new`: make the SQLite store if it is missing.
    """
    url = _lasting(state)
    if not may_be_new:
        _check_there(url)
    try:
        store = await open_store(url)
    except StoreRefused as error:
        raise StoreUnavailable(f"--state: {error}") from error
    access = Access()
    try:
        access.replace(await load_keys(store))
        yield KeyService(access, store)
    except StoreAway as error:
        raise StoreUnavailable(f"--state: {error}") from error
    finally:
        access.stop()
        await store.close()


async def bootstrap(service: KeyService, name: str) -> tuple[AccessKey, str]:
    """Create the first admin's key. Raises `Conflict` if an admin key exists already."""
    now = service.now()
    admins = [key for key in service.records() if key.role == "admin" and key.problem(now) is None]
    if admins:
        raise Conflict(
            f"the admin key {admins[0].name!r} exists already; make further keys with "
            "`arriero keys create`, with this admin key or with --state"
        )
    return await service.create(KeySpec(name=name, role="admin"))


def _check_there(url: StoreUrl) -> None:
    if url.kind == "sqlite" and not Path(url.location).exists():
        raise InvalidRequest(f"--state: there is no database {url.location}", field="state")


def _lasting(state: str) -> StoreUrl:
    try:
        url = parse_store_url(state)
    except ValueError as error:
        raise InvalidRequest(f"--state: {error}", field="state") from error
    if url.kind == "memory":
        raise InvalidRequest(
            "--state: memory:// stores no keys; start the balancer with --admin-key-file FILE",
            field="state",
        )
    return url
