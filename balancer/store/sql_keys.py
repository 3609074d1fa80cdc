"""Access keys in SQL: each function is one statement or two within a transaction."""

from dataclasses import asdict

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from .port import KeyConflict
from .records import SavedKey
from .tables import ACCESS_KEYS


async def load_keys(connection: AsyncConnection) -> list[SavedKey]:
    """See `port.KeyStore`, as for the others."""
    rows = (await connection.execute(select(ACCESS_KEYS))).mappings().all()
    # Sorted here, since databases have orders of their own.
    return sorted((SavedKey(**row) for row in rows), key=lambda key: key.name)


async def save_key(connection: AsyncConnection, key: SavedKey) -> None:
    """Raises `KeyConflict`."""
    if key.revision == 1:
        is_saved = await _is_inserted(connection, key)
    else:
        replaced = (ACCESS_KEYS.c.name == key.name) & (ACCESS_KEYS.c.revision == key.revision - 1)
        result = await connection.execute(update(ACCESS_KEYS).where(replaced).values(**asdict(key)))
        is_saved = result.rowcount == 1
    if not is_saved and (current := await _current(connection, key.name)) != key:
        raise KeyConflict(current)


async def _is_inserted(connection: AsyncConnection, key: SavedKey) -> bool:
    """Of two that insert one name at once the second waits, and then gets the error."""
    try:
        async with connection.begin_nested():
            await connection.execute(insert(ACCESS_KEYS).values(**asdict(key)))
    except IntegrityError:
        return False
    return True


async def forget_key(connection: AsyncConnection, name: str, revision: int) -> None:
    """Raises `KeyConflict`."""
    chosen = (ACCESS_KEYS.c.name == name) & (ACCESS_KEYS.c.revision == revision)
    result = await connection.execute(delete(ACCESS_KEYS).where(chosen))
    if result.rowcount == 0 and (current := await _current(connection, name)) is not None:
        raise KeyConflict(current)


async def _current(connection: AsyncConnection, name: str) -> SavedKey | None:
    query = select(ACCESS_KEYS).where(ACCESS_KEYS.c.name == name)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else SavedKey(**row)
