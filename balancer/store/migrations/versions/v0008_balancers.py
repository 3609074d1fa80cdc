"""Balancers over one store: who lives, and the epoch of whoever leads."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Nobody leads at first; the first epoch is 1."""
    op.create_table(
        "balancers",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("is_leading", sa.Boolean, nullable=False),
        sa.Column("waiting", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
    )
    leadership = op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_leader"),
    )
    op.bulk_insert(leadership, [{"id": 1, "epoch": 0}])
