"""The fleet's past over REST: charts of the last day, and ended requests."""
