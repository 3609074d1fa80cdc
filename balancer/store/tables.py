"""The tables of the store, as left by the newest migration."""

from collections.abc import Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    false,
)

METADATA = MetaData()

DESIRED_STATE = Table(
    "desired_state",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""One row. Revision 0 means that nothing was ever saved."""

HISTORY_STEPS = Table(
    "history_steps",
    METADATA,
    Column("width", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),
    Column("document", Text, nullable=False),
)
"""`source` is the run of the balancer that counted the step."""

ENDED_REQUESTS = Table(
    "ended_requests",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("ended_at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("caller", Text, nullable=False),
    Column("model", Text),
    Column("agent", Text),
    Column("error", Text),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("queue_ms", Double, nullable=False),
    Column("first_token_ms", Double),
    Column("total_ms", Double, nullable=False),
    Column("prefill_tokens_per_second", Double),
    Column("decode_tokens_per_second", Double),
    Column("moves", BigInteger, nullable=False),
    Column("balancer", Text),
    Index("ended_requests_by_time", "ended_at"),
)

ACCESS_KEYS = Table(
    "access_keys",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("limits", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("rotated_at", Double),
)
"""Access keys. `digest` is the SHA-256 of a key, which is stored nowhere."""

ACCESS_STATE = Table(
    "access_state",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("had_keys", Boolean, nullable=False),
    CheckConstraint("id = 1", name="one_access_state"),
)
"""One row: whether an access key ever existed.

If the store had keys and has none now, the balancer refuses all requests.
"""

SESSIONS = Table(
    "dashboard_sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("expires_at", Double, nullable=False),
)
"""Sessions of the dashboard. `id` is the digest of a token, which is stored nowhere."""

CORDONS = Table(
    "cordons",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("deadline", Double),
)

USAGE = Table(
    "usage",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, primary_key=True),
    Column("caller", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
)

FILES = Table(
    "files",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text),
    Column("name", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Index("files_by_owner", "owner", "created_at"),
)

BATCHES = Table(
    "batches",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text),
    Column("created_at", Double, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("document", Text, nullable=False),
    Column("runner", Text),
    Column("leased_until", Double),
    Index("batches_by_owner", "owner", "created_at"),
)

CHUNKS = Table(
    "batch_chunks",
    METADATA,
    Column("batch", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("offset", BigInteger, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("first_line", BigInteger, nullable=False),
    Column("num_lines", BigInteger, nullable=False),
    Column("key", Text),
    Column("num_output_bytes", BigInteger),
    Column("num_error_bytes", BigInteger),
    Column("num_completed", BigInteger),
    Column("num_failed", BigInteger),
)
"""Chunks of batches. A chunk has results exactly if it has a `key`."""

RETAINED_REQUESTS = Table(
    "kept_requests",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("used_at", Double, nullable=False),
    Column("has_ended", Boolean, nullable=False),
    Column("model", Text),
    Column("fingerprint", Text),
    Column("num_bytes", BigInteger, nullable=False),
    Column("lease_owner", Text, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("is_cancelled", Boolean, nullable=False, server_default=false()),
    Index("kept_requests_by_name", "owner", "name", unique=True),
    Index("kept_requests_by_lease", "has_ended", "lease_until"),
)
"""Requests that outlive their balancer. A request runs at the balancer with its lease."""

KEPT_EVENTS = Table(
    "kept_events",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("start", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)
"""Events of retained requests, in chunks. `start` is the number of a chunk's first event."""

CONVERSATIONS = Table(
    "conversations",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("used_at", Double, nullable=False),
    Index("conversations_by_use", "used_at"),
)
"""Conversations that several balancers may continue."""

DIARY = Table(
    "diary",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("by", Text),
)

HOSTS = Table(
    "hosts",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("first_seen", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("document", Text, nullable=False),
)
"""Hosts on which agents ran, by the agents' names."""

BALANCERS = Table(
    "balancers",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("is_leading", Boolean, nullable=False),
    Column("waiting", Text, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("started_at", Double),
    Column("url", Text),
)
"""Balancers that share the store. Each live balancer renews its row."""

MAIL = Table(
    "mail",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("run", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("sent_at", Double, nullable=False),
)
"""Messages to balancers that share a PostgreSQL.

A balancer deletes its messages as it reads them.
"""

LEADERSHIP = Table(
    "leadership",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
)
"""One row: the epoch of the last leading balancer."""

FIRST_ROWS: tuple[tuple[Table, Mapping[str, object]], ...] = (
    (DESIRED_STATE, {"id": 1, "revision": 0, "document": ""}),
    (ACCESS_STATE, {"id": 1, "had_keys": False}),
    (LEADERSHIP, {"id": 1, "epoch": 0}),
)
"""Rows that tables contain from the beginning."""
