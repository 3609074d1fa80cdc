"""The page that the management port serves: plain ES modules without a build step."""

if __name__ != "arriero.dashboard":
    raise ImportError(f"import this package as arriero.dashboard, not as {__name__}")
