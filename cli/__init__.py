"""The command line: `arriero status`, `chat`, `batch` and others."""

if __name__ != "arriero.cli":
    raise ImportError(f"import this package as arriero.cli, not as {__name__}")
