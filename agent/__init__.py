"""One host of the fleet: a daemon that drives llama.cpp and reports its slots."""

if __name__ != "arriero.agent":
    raise ImportError(f"import this package as arriero.agent, not as {__name__}")
