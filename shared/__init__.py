"""Code that both daemons share: messages, requests, events, errors, settings, logging."""

if __name__ != "arriero.shared":
    raise ImportError(f"import this package as arriero.shared, not as {__name__}")
