"""Opens the access of a balancer, with the store's keys and the key of `--admin-key-file`."""

from collections.abc import Sequence
from pathlib import Path

from ...shared.errors import InvalidRequest
from ...shared.lifecycle import StartupError
from ..store.port import StoreAway
from ..store.store import Store
from .access import Access
from .access_key import FILE_KEY, AccessKey, digest_of, is_key
from .key_service import load_keys


async def open_access(
    store: Store, admin_key_file: Path | None, *, without_keys: bool = False
) -> Access:
    """Return the access rules, with the store's current keys. Raises `StartupError`.

    With `without_keys`, a store that had keys and has none now does not shut callers out.
    """
    fixed = None if admin_key_file is None else file_key(admin_key_file)

    async def load() -> Sequence[AccessKey]:
        return await load_keys(store)

    try:
        found, had_keys = await load(), await store.had_keys()
        if bool(found) > had_keys or (not found and had_keys and without_keys):
            had_keys = bool(found)
            await store.note_keys(had_keys=had_keys)
        return Access(found, fixed=fixed, had_keys=had_keys, load=load)
    except StoreAway as error:
        raise StartupError(f"--state: cannot read the access keys: {error}") from error
    except InvalidRequest as error:
        raise StartupError(
            f"--state: this version cannot read the saved access keys: {error.message}"
        ) from error


def file_key(path: Path) -> AccessKey:
    """Return the admin key in a file. Raises `StartupError`, which never shows the
    file's content.
    """
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
