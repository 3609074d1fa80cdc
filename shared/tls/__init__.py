"""TLS for both daemons and the client: certificate dates, key pairs, contexts."""
