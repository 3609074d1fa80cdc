"""Model files: from the hub, the web or this host to a path that the engine can load.

A `Fetcher` starts a process for each fetch. In that process, `hub` and `located` resolve the
source, `downloader` downloads over HTTP, and `models_folder` stores files and evicts other files.
"""
