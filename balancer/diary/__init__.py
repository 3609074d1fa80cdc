"""What happened in the fleet, and which hosts it has had: the diary, kept in the store."""
