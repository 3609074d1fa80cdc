"""Brings a database to this version's schema, under a lock, in one transaction.

Balancers that start together wait for each other. Schemas of newer versions and from before 0.1.0
are refused.
"""

import re
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from .port import StoreRefused

_FOLDER = Path(__file__).parent / "migrations"
_UNRELEASED = re.compile(r"00\d\d")
_LOCK = 0x6172_7269_6572_6F  # "arriero": the key of PostgreSQL's advisory lock


def migrate(connection: Connection) -> None:
    """Migrate within a transaction, which in SQLite holds the write lock.

    Raises `StoreRefused`.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    for head in MigrationContext.configure(connection).get_current_heads():
        if _UNRELEASED.fullmatch(head):
            raise StoreRefused(
                f"a version from before 0.1.0 wrote it (schema {head}), which this cannot read; "
                "delete it, or give another store"
            )
        if head not in known:
            raise StoreRefused(
                f"a newer version of Arriero wrote it (schema {head}); "
                "install that version, or give another store"
            )
    command.upgrade(config, "head")
