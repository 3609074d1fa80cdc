"""Access: keys, roles, and the limits of a caller.

`identity` has what the rest of the balancer may know of a key's holder. `access_key` and `keyring`
are the pure core; `access` admits callers and ends what they have open, `key_service` makes and
revokes keys, `session_service` logs people in to the dashboard.
"""
