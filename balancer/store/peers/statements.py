"""Statements of a session, for PostgreSQL. Times are those of the database."""

LEADER_LOCK = 0x6172_7269_6572_70
"""The key of the advisory lock of whoever leads."""

LIVE = 6.0
"""Seconds after its last beat in which a balancer counts as living."""

FORGOTTEN = 3600.0
"""Seconds after its last beat in which a balancer's row is deleted."""

BEAT = """
INSERT INTO balancers (run, name, version, is_leading, waiting, url, seen_at, started_at)
VALUES ($1, $2, $3, $4, $5, $6,
  extract(epoch FROM clock_timestamp()), extract(epoch FROM clock_timestamp()))
ON CONFLICT (run) DO UPDATE SET
  name = excluded.name, version = excluded.version, is_leading = excluded.is_leading,
  waiting = excluded.waiting, url = excluded.url, seen_at = excluded.seen_at
"""

LIVING = """
SELECT run, name, version, is_leading, waiting, url, started_at,
  greatest(extract(epoch FROM clock_timestamp())::double precision - seen_at, 0) AS age
FROM balancers
WHERE seen_at > extract(epoch FROM clock_timestamp()) - $1
ORDER BY name, run
"""

FORGET_OLD = """
DELETE FROM balancers WHERE seen_at < extract(epoch FROM clock_timestamp()) - $1
"""

FORGET = "DELETE FROM balancers WHERE run = $1"

TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
UNLOCK = "SELECT pg_advisory_unlock_all()"
NEXT_EPOCH = "UPDATE leadership SET epoch = greatest(epoch, $1) + 1 RETURNING epoch"
