"""A site: answers each message with the noised updates of some rounds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp as FlowerClientApp

from dpsgd import _dpsgd
from dpsgd.federated import Terms
from dpsgd.flower.record import ACKNOWLEDGED, CLIENT, ENDED, FAILED, MODEL, NAME, ROUNDS, TERMS, UPDATES

if TYPE_CHECKING:
    from dpsgd.torch import Trainer

_log = logging.getLogger("flwr")
# Beside the run: which federation it belongs to.
_TERMS = "terms.json"


class ClientApp(FlowerClientApp):
    """A site of a federation.

    What leaves the site: the noised updates of its rounds, their numbers, and whether it has rounds left or failed.
    The text of an exception stays in the site's own log, because it may quote private data. The ledger is charged
    before each round, so that a site that is killed has lost the round and not the count.
    """

    def __init__(
        self, trainer: Callable[[Context], Trainer], *, rounds: int | None = None, pace: float | None = None
    ) -> None:
        """Answers with rounds of the trainer that ``trainer(context)`` makes.

        Args:
            trainer: makes the :class:`dpsgd.torch.Trainer` of this site, with its own mechanism, noise and budget,
                and with a ``directory``; ``lr`` must be that of the terms. It is called for every message, in a new
                process, and must make the same trainer each time.
            rounds: perform at most this many rounds a message, whatever the server asks for.
            pace: let every round take exactly these seconds, and every answer a multiple of them: reading the
                samples takes longer the more there are. Required where the size of a batch is private (Poisson sampling,
                random allocation, filters), because the time of an answer would tell it.
        """
        super().__init__()
        self._trainer = trainer
        self._rounds = rounds
        self._pace = pace
        self.train()(self._answer)

    def _answer(self, message: Message, context: Context) -> Message:
        began = time.monotonic()
        try:
            said = self._called(message.content[NAME], context)
        except Exception:
            _log.exception("dpsgd: this site could not perform its rounds; the server is not told why")
            said = {FAILED: True}
        if self._pace:
            time.sleep(-(time.monotonic() - began) % self._pace)
        return Message(RecordDict({NAME: ConfigRecord(said)}), reply_to=message)

    def _called(self, asked: Mapping[str, Any], context: Context) -> dict[str, Any]:
        terms = Terms(str(asked[TERMS]))
        trainer = self._trainer(context)
        if trainer.directory is None:
            raise ValueError("directory: the trainer of a site needs one, where its ledger stays between messages")
        _belongs(trainer.directory, terms)
        visit = _dpsgd.Visit(terms._native, int(asked[CLIENT]), bytes(asked[MODEL]), trainer.directory)
        visit.acknowledged([int(round) for round in asked[ACKNOWLEDGED]])
        ended = visit.ended()
        rounds = min(int(asked[ROUNDS]), self._rounds or int(asked[ROUNDS]))
        if not ended and rounds > 0:
            result = trainer.called(visit, rounds, pace=self._pace)
            (trainer.directory / _TERMS).write_text(terms.json())
            ended = result.finished
            _log.info("dpsgd: ε ≤ %.6f at δ = %g so far, by the ledger in %s", result.epsilon, result.delta, result.directory)
        updates = visit.updates()
        return {
            ROUNDS: [round for round, _ in updates],
            UPDATES: [frame for _, frame in updates],
            ENDED: ended,
        }


def _belongs(directory: Path, terms: Terms) -> None:
    """A run is of one federation: its updates name it."""
    kept = directory / _TERMS
    if kept.is_file() and Terms(kept.read_text()) != terms:
        raise ValueError(
            f"{directory}: holds a run of another federation; its privacy is spent there. Begin a new run in another "
            "directory, and count both"
        )
