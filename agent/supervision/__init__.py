"""Two processes on each host: a supervisor, and the engine process that it starts and restarts.

Lives here: the supervisor, the engine process' entry, what the two say to each other, when a crash
is followed by a restart, and the stand-in that balancers see meanwhile.
May import: the daemon, `link`, and whatever the daemon may.
Comes in: `agent/__main__`.
"""
