"""Model files: from the hub, the web or this host to a path that the engine can load.

Lives here: the port that the supervisor uses, the process that fetches, and how long to wait after
a failure. Below: `sources` (hub, web, local paths), `download` (HTTP), `folder` (what is stored).
"""
