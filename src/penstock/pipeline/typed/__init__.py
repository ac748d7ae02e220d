"""Data by the contract: which message an event is, its payload read and written by that message's schema."""
