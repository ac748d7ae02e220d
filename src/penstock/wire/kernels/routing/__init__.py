"""An interpreter that routes CloudEvents from record bytes to record bytes: one kernel for all programs."""
