"""The door for HTTP programs that send events."""
