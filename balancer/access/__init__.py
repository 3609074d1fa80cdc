"""Access: keys, roles, and the limits of a caller.

`identity` has the parts of a key that the rest of the balancer may know. `access_key` and
`keyring` are the pure core. `access` admits callers and ends their connections, `key_service`
makes and revokes keys, and `session_service` logs people in to the dashboard.
"""
