"""Access as the daemon wires it up: the store's keys, and the one of `--admin-key-file`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..shared.errors import InvalidRequest
from ..shared.lifecycle import StartupError
from .access.access import Access
from .access.access_key import FILE_KEY, AccessKey, digest_of, is_key
from .access.key_keeper import KeyKeeper, load_keys
from .fleet.caller import Caller
from .persistence import Persistence
from .store.port import StoreAway


async def open_access(persistence: Persistence, admin_key_file: Path | None) -> Access:
    """Who may come in, by what the store has now. Raises `StartupError`."""
    keys = persistence.store
    fixed = None if admin_key_file is None else file_key(admin_key_file)

    async def load() -> Sequence[AccessKey]:
        return await load_keys(keys)

    try:
        return Access(await load(), fixed=fixed, load=load)
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the access keys: {error}") from error
    except InvalidRequest as error:
        raise StartupError(
            f"--state: this version cannot read the saved access keys: {error.message}"
        ) from error


def keeper_of(access: Access, persistence: Persistence) -> KeyKeeper:
    """What makes and revokes keys."""
    return KeyKeeper(access, persistence.store)


def caller_now(access: Access, caller: Caller) -> Caller | None:
    """The caller of a request that was accepted before; `None` if it may no longer be here."""
    if caller.owner is None:
        return caller if access.is_open else None
    holder = access.holder_of(caller.owner)
    return None if holder is None else replace(caller, name=holder.name, limits=holder.limits)


def file_key(path: Path) -> AccessKey:
    """The admin key that stands in a file. Raises `StartupError`, which never shows what it has."""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartupError(f"--admin-key-file: cannot read {path}: {reason}") from error
    if not is_key(text):
        raise StartupError(
            f"--admin-key-file: {path} must hold one key, `ark_` and 43 characters; "
            f"`arriero keys bootstrap --state memory:// > {path}` makes one"
        )
    return AccessKey(name=FILE_KEY, digest=digest_of(text), role="admin", created_at=0.0)
