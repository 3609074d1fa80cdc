"""The agent socket below its messages: frames cut, joined and interleaved, and heartbeats.

May import: no other module of Arriero. Comes in: both ends of the socket.
"""
