"""Balancers that share the store each keep their own steps of the history."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Balancers of the version before write rows without a source.

    The table is made anew: SQLite cannot change a primary key.
    """
    op.create_table(
        "history_steps_by_source",
        sa.Column("width", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("source", sa.Text, primary_key=True, server_default=""),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.execute(
        "INSERT INTO history_steps_by_source (width, at, document) "
        "SELECT width, at, document FROM history_steps"
    )
    op.drop_table("history_steps")
    op.rename_table("history_steps_by_source", "history_steps")
