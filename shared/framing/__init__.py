"""Messages as frames on the agent socket: cut into pieces, joined again, others between them.

May import: nothing else of the house. Comes in: both ends of the socket.
"""
