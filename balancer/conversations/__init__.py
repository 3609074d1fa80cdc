"""Conversations that a request at any of several balancers over one store may continue.

`pending` decides what is written to the store and when (pure), `keeper` writes and reads it, and
asks the other balancers for what is not there yet.
May import: the store's records of conversations, what balancers ask one another. Comes in: the
daemon, which gives it to the APIs.
"""
