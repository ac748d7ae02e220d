"""One module an event format: bytes of a media type to an event and back."""
