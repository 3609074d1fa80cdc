"""Two kinds of process on each host: a supervisor, and the engine processes that it starts.

Lives here: what balancers assign and what that means for the engines (`assigner`), the supervisor,
the engine process' entry, what the two say to each other, when a crash is followed by a restart,
and the stand-in that balancers see while no engine serves.
"""
