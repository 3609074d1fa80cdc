"""The only place that knows llama.cpp: its low-level calls, one idea a file.

Importing it settles how long llama.cpp's threads spin before they sleep when they wait for each
other, which happens at every layer. The OpenMP runtime's default is milliseconds: fine on a machine
of one's own, but where another process (a second agent, say) wants the same cores each step takes
twenty times longer. 1000 rounds is what that runtime itself takes when it knows that cores are
scarce. It has to stand in the environment before the library is loaded; a user's own value stays.
"""

import os

os.environ.setdefault("GOMP_SPINCOUNT", "1000")
