"""Files, batches, and the chunks that batches run in."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """There are none at first."""
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
        sa.Column("runner", sa.Text),
        sa.Column("leased_until", sa.Double),
        sa.Column("key", sa.Text),
        sa.Column("num_output_bytes", sa.BigInteger),
        sa.Column("num_error_bytes", sa.BigInteger),
        sa.Column("num_completed", sa.BigInteger),
        sa.Column("num_failed", sa.BigInteger),
    )
