"""Everybody's batches, for operators: how far they are, and to cancel them.

May import: `balancer.jobs`, `balancer.store`, `transport`, `openapi`, `native`. Comes in:
`management/routes`.
"""
