"""Kept requests that outlive their balancer: written as they grow, taken up after its end.

May import: `balancer.fleet`, the store's records of kept requests, `balancer.access`. Comes in: the
daemon's wiring.
"""
