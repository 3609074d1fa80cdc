"""The only place that knows llama.cpp: its low-level calls, one idea a file.

May import: the engine's vocabulary and its sampler. Comes in: the worker, the daemon.

Importing it settles how long llama.cpp's threads spin before they sleep when they wait for each
other, which happens at every layer. The OpenMP runtime's default is milliseconds: fine on a machine
of one's own, but where another process (a second agent, say) wants the same cores each step takes
twenty times longer. 1000 rounds, which that runtime takes by itself when it knows that cores are
scarce, are over too soon: a step of 8 streams of 600 million weights takes 126 ms so, 117 with 3000
and 115 with any more, while a second agent's steps take as much longer as there are more rounds. It
has to stand in the environment before the library is loaded; a user's own value stays.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "3000")
