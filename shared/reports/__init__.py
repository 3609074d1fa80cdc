"""What an agent reports of itself: its model, what its engine did, the last lines of its log.

Parts of `shared.messages`, which every reader of reports can import without the protocol.
"""
