"""What both daemons share: messages, requests, events, errors, settings, logging, lifecycle."""

if __name__ != "arriero.shared":
    raise ImportError(f"import this package as arriero.shared, not as {__name__}")
