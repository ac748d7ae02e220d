"""Routes of events on Spark."""
