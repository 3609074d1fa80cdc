"""What an agent reports of itself: its model, and what its engine did.

Parts of `shared.messages`, which every reader of reports can import without the protocol.
"""
