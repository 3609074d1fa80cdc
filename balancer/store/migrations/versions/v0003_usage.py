"""What each caller used, by day and model."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """One row for each day, run of a balancer, caller and model."""
    op.create_table(
        "usage",
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("caller", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("errors", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    )
