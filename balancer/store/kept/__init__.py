"""Requests that outlive their balancer, in SQL: what was asked, and its events in chunks.

May import: the tables and records of `balancer.store`. Comes in: `balancer.kept`, the daemon.
"""
