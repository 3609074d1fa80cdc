"""Conversations that later requests continue, in SQL, where several balancers have the same store.

May import: the tables and records of `balancer.store`. Comes in: `balancer.conversations`, the
daemon.
"""
