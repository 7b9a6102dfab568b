"""Sites that train one model together, each with a guarantee of its own."""
