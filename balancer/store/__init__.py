"""The store, which survives a restart of the balancer: memory, an SQLite file, or PostgreSQL."""
