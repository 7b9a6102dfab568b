"""A site that computes nothing: noise of the right length, in frames of updates."""

import numpy as np
from dpsgd.federated import Terms
from dpsgd.flower.record import CLIENT, ENDED, MODEL, NAME, ROUNDS, TERMS, UPDATES
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from speed import DEVIATION

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    asked = message.content[NAME]
    terms = Terms(asked[TERMS])
    version, _ = terms.model(asked[MODEL])
    first = int(context.state["speed"]["next"]) if "speed" in context.state else 0
    rounds = list(range(first, first + int(asked[ROUNDS])))
    context.state["speed"] = ConfigRecord({"next": rounds[-1] + 1})
    draw = np.random.default_rng(first)
    frames = [
        terms.update(
            client=int(asked[CLIENT]), round=round, base=version,
            values=draw.standard_normal(terms.dimension, dtype=np.float32) * np.float32(DEVIATION),
        )
        for round in rounds
    ]
    return Message(RecordDict({NAME: ConfigRecord({ROUNDS: rounds, UPDATES: frames, ENDED: False})}), reply_to=message)
