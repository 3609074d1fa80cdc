"""TLS for both daemons and the client: certificates' dates, key pairs, contexts."""
