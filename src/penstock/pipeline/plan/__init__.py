"""The route plan: typed, frozen, with no engine in it; front ends write it, engines read it."""
