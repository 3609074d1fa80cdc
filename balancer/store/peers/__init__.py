"""Balancers over one PostgreSQL: who lives, who leads, and a session that hears news."""
