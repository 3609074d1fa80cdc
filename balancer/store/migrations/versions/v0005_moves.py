"""How often each ended request moved to another agent."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Those that ended before did not move."""
    moves = sa.Column("moves", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("ended_requests", moves)
