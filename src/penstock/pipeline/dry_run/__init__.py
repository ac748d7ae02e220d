"""A pipeline run on records that are there, with no effect: nothing is written and no progress is kept."""
