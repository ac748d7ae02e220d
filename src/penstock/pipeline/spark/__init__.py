"""What of Spark's own machinery the pipeline uses directly: streams that are planned in the driver."""
