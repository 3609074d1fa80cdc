"""What survives a restart of the balancer: in memory, in an SQLite file, or in PostgreSQL."""
