"""What both daemons say and mean: messages, requests, events, errors, settings, lifecycle."""

if __name__ != "arriero.shared":
    raise ImportError(f"import this package as arriero.shared, not as {__name__}")
