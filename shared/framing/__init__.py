"""Messages as frames on the agent socket: cut into pieces, joined again, interleaved with others.

May import: nothing else of the house. Comes in: both ends of the socket.
"""
