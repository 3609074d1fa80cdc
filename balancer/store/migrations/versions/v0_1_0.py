"""The tables of 0.1.0: one state that was never saved, and no leader."""

import sqlalchemy as sa
from alembic import op

revision = "0.1.0"
down_revision = None


def upgrade() -> None:
    """Make the tables in an empty database. The first epoch of a leader is 1."""
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
        sa.Column("source", sa.Text, primary_key=True),
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
        sa.Column("moves", sa.BigInteger, nullable=False),
        sa.Column("balancer", sa.Text),
    )
    op.create_index("ended_requests_by_time", "ended_requests", ["ended_at"])
    op.create_table(
        "access_keys",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.Column("rotated_at", sa.Double),
    )
    access = op.create_table(
        "access_state",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("had_keys", sa.Boolean, nullable=False),
        sa.CheckConstraint("id = 1", name="one_access_state"),
    )
    op.bulk_insert(access, [{"id": 1, "had_keys": False}])
    op.create_table(
        "dashboard_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
    )
    op.create_table(
        "cordons",
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double),
    )
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
    op.create_table(
        "files",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
    )
    op.create_index("files_by_owner", "files", ["owner", "created_at"])
    op.create_table(
        "batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("runner", sa.Text),
        sa.Column("leased_until", sa.Double),
    )
    op.create_index("batches_by_owner", "batches", ["owner", "created_at"])
    op.create_table(
        "batch_chunks",
        sa.Column("batch", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("first_line", sa.BigInteger, nullable=False),
        sa.Column("num_lines", sa.BigInteger, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("num_output_bytes", sa.BigInteger),
        sa.Column("num_error_bytes", sa.BigInteger),
        sa.Column("num_completed", sa.BigInteger),
        sa.Column("num_failed", sa.BigInteger),
    )
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
        sa.Column("is_cancelled", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_index("kept_requests_by_name", "kept_requests", ["owner", "name"], unique=True)
    op.create_index("kept_requests_by_lease", "kept_requests", ["has_ended", "lease_until"])
    op.create_table(
        "kept_events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("start", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
    )
    op.create_index("conversations_by_use", "conversations", ["used_at"])
    op.create_table(
        "diary",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("by", sa.Text),
    )
    op.create_table(
        "hosts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("first_seen", sa.Double, nullable=False),
        sa.Column("last_seen", sa.Double, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "balancers",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("is_leading", sa.Boolean, nullable=False),
        sa.Column("waiting", sa.Text, nullable=False),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("url", sa.Text),
    )
    op.create_table(
        "mail",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("sent_at", sa.Double, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE mail SET UNLOGGED")  # nobody waits for a letter after a crash
    leadership = op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_leader"),
    )
    op.bulk_insert(leadership, [{"id": 1, "epoch": 0}])
