"""Requests that outlive their connection or their balancer, and shared conversations.

Both are written to the store in the background (`store.write_behind`), and the last event of an
answer waits for its conversation. `request_journal` and `conversation_backlog` say what is to be
written (pure), `request_service` and `conversation_service` write it, and find what others wrote.
"""
