"""Float functions of programs, and the user's own code that they call."""
