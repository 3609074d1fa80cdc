"""Permissions of callers: what routes may need, the keys in a request, and the middleware."""
