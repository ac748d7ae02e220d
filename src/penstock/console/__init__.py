"""The web pages for people who look at events, lag and dead letters."""
