"""Which of several balancers had each ended request."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Of those that ended before nobody knows."""
    op.add_column("ended_requests", sa.Column("balancer", sa.Text))
