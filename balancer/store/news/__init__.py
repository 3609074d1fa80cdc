"""What balancers over one store tell one another, and how a transaction tells it.

May import: nothing but `shared`. Comes in: the store, its room of peers, and `balancer.peers`.
"""
