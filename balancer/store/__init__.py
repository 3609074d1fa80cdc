"""What survives a restart of the balancer: in memory, in an SQLite file, or in PostgreSQL.

May import: nothing but `shared`. Comes in: the daemon; the fleet and the history know its records.
"""
