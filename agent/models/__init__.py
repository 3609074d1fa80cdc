"""Model files: from the hub, the web or this host to a path that the engine can load.

A `Fetcher` starts a process for each fetch. There `hub` and `located` say what a source means,
`downloader` brings it over HTTP, and `models_folder` keeps it and evicts other files.
"""
