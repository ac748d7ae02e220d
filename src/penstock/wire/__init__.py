"""The bytes of the two protocols: what travels on the sockets, with no socket in sight."""
