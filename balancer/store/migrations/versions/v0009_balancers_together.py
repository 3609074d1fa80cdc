"""What balancers need of one another: a cancelled request, a drain's deadline, who they are."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Balancers of the version before write rows without these columns."""
    is_cancelled = sa.Column("is_cancelled", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("kept_requests", is_cancelled)
    op.add_column("cordons", sa.Column("deadline", sa.Double))
    op.add_column("balancers", sa.Column("started_at", sa.Double))
    op.add_column("balancers", sa.Column("url", sa.Text))
