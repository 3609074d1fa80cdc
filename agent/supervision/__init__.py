"""Two kinds of process on each host: a supervisor, and the engine processes that it starts.

`assigner` decides which engines a balancer's assignment needs. Other modules are the supervisor,
the engine process' entry, the protocol between the two, the restart policy after crashes, and the
stand-in that balancers see while no engine serves.
"""
