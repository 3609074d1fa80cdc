"""What outlives its connection or its balancer: requests, and conversations that several share.

Both are written to the store behind the answers (`store.write_behind`): `request_journal` and
`conversation_backlog` say what is to be written (pure), `request_service` and
`conversation_service` write it, and find what other balancers had.
"""
