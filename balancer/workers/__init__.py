"""Several processes of one balancer on a host: they share both ports, a parent keeps them running.

May import: the store's news and peers, whose part the parent plays where the store has none.
Comes in: the program, and the daemon.
"""
