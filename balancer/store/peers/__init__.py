"""Balancers over one PostgreSQL: who lives, who leads, and a session that hears news.

May import: the store and its news. Comes in: the daemon's persistence, and `balancer.peers`.
"""
