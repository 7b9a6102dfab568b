"""The names in the messages between server and sites. Everything is in one ``ConfigRecord``."""

NAME = "dpsgd"

# Of both.
ROUNDS = "rounds"
"""Asked: the most rounds to perform. Answered: the rounds of the updates."""

# Asked.
TERMS = "terms"
"""The terms in JSON."""
CLIENT = "client"
"""The number under which the server knows the site."""
MODEL = "model"
"""The frame of the global model."""
ACKNOWLEDGED = "acknowledged"
"""The rounds whose updates the server has read and saved."""

# Answered.
UPDATES = "updates"
"""The frames of all updates that are not acknowledged."""
ENDED = "ended"
"""Whether the site has no round left."""
FAILED = "failed"
"""The site could not perform its rounds."""
