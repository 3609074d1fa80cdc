"""Agents that operators want to get no new work."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """No agent is cordoned at first."""
    op.create_table(
        "cordons",
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
    )
