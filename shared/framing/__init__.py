"""The agent socket below its messages: frames cut, joined and interleaved, and heartbeats."""
