"""The command line: `arriero status`, `chat`, `batch` and others.

May import: `client`, `shared`. Comes in: the `arriero` program, by the entry points in
`pyproject.toml`.
"""

if __name__ != "arriero.cli":
    raise ImportError(f"import this package as arriero.cli, not as {__name__}")
