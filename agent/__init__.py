"""A host of the fleet: a daemon that runs llama.cpp and reports its slots."""

if __name__ != "arriero.agent":
    raise ImportError(f"import this package as arriero.agent, not as {__name__}")
