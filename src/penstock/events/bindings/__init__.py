"""One module a transport binding: a record or request to an event and back."""
