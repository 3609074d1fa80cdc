"""Messages as frames on the agent socket: cut into pieces, joined again, interleaved with others.

May import: no other module of Arriero. Comes in: both ends of the socket.
"""
