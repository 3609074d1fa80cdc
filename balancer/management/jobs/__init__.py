"""Everybody's batches, for operators: how far they are, and to cancel them.

May import: `balancer.jobs`, `balancer.store`, `route`, `transport`, `openapi`. Comes in:
`management/routes`.
"""
