"""What an event is: CloudEvents in every binding, mode and format, and the Cloud-Native event API."""
