"""Several balancers over one store, or several workers of one balancer.

This package decides which balancer leads, and shows the fleets of all.
"""
