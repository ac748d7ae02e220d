"""The verbs of the command line; talks to people."""
