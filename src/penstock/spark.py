"""The DataFrame API for notebooks: events in, events out."""
