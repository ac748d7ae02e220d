"""The columns engine: a plan as Spark columns, with the same verdict as the reference on every row."""
