"""Requests that outlive their balancer, and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """None is kept at first."""
    op.create_table(
        "kept_requests",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.Column("has_ended", sa.Boolean, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("fingerprint", sa.Text),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("lease_owner", sa.Text, nullable=False),
        sa.Column("lease_until", sa.Double, nullable=False),
    )
    op.create_index("kept_requests_by_name", "kept_requests", ["owner", "name"], unique=True)
    op.create_index("kept_requests_by_lease", "kept_requests", ["has_ended", "lease_until"])
    op.create_table(
        "kept_events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("start", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("document", sa.Text, nullable=False),
    )
