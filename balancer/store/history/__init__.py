"""The history in SQL: statements about its steps and about ended requests.

May import: the tables and records of `balancer.store`. Comes in: `balancer.store`.
"""
