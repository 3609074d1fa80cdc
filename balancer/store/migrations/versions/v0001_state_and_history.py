"""The desired state, the steps of the history, and ended requests."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """From an empty database; the one row of the desired state says that nothing was saved."""
    state = op.create_table(
        "desired_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    op.bulk_insert(state, [{"id": 1, "revision": 0, "document": ""}])
    op.create_table(
        "history_steps",
        sa.Column("width", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "ended_requests",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("ended_at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("agent", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("queue_ms", sa.Double, nullable=False),
        sa.Column("first_token_ms", sa.Double),
        sa.Column("total_ms", sa.Double, nullable=False),
        sa.Column("prefill_tokens_per_second", sa.Double),
        sa.Column("decode_tokens_per_second", sa.Double),
    )
    op.create_index("ended_requests_by_time", "ended_requests", ["ended_at"])
