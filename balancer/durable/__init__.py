"""Requests that outlive their connection or their balancer, and shared conversations.

Both are written to the store in the background (`store.write_behind`). The last event of an answer
waits until its conversation is written. `request_journal` and `conversation_backlog` decide what
to write (pure). `request_service` and `conversation_service` write it, and find the records of
other balancers.
"""
