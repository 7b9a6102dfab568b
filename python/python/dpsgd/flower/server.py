"""The server: asks each site again as soon as it has answered, and folds what comes."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import ServerApp as FlowerServerApp
from numpy.typing import ArrayLike, NDArray

from dpsgd.federated import Coordinator, Terms
from dpsgd.flower.record import ACKNOWLEDGED, CLIENT, ENDED, FAILED, MODEL, NAME, ROUNDS, TERMS, UPDATES

_log = logging.getLogger("flwr")
# Answers in a row without an accepted update after which a site is not asked any more: its budget would be wasted.
_PATIENCE = 8
# Seconds between two looks at what has arrived, and the wait after an answer without an accepted update.
_LOOK, _AGAIN = 0.1, 2.0
# Seconds between two looks at who is there.
_CALL = 1.0


@dataclass
class Federation:
    """What a server app runs."""

    terms: Terms
    """What everybody agrees on."""
    model: Any
    """The initial model: a ``torch.nn.Module``, or an array with its trained parameters, one after the other."""
    directory: str | os.PathLike[str] = "federation"
    """State, terms and results; a server that is started again goes on from here."""
    sites: int | None = None
    """How many sites take part; all ``terms.clients`` unless given. Give the terms more: a site whose node comes back with
    a new identity, as nodes without authentication keys do, counts as a new client."""
    rounds: int = 10
    """Rounds asked for in a message. A message costs seconds in a deployment, so ask for many. Sites that shuffle or allocate
    go on to the end of their epoch."""
    ttl: float = 3600.0
    """Seconds after which a message counts as lost; more than the longest work of a site."""
    evaluate: Callable[[NDArray[np.float32]], Mapping[str, float]] | None = None
    """Measures the global model on **public** samples."""
    every: int = 100
    """Updates between two measurements."""
    updates: int | None = None
    """End after so many accepted updates; when all sites have done their rounds unless given."""
    seconds: float | None = None
    """End after this time."""


class ServerApp(FlowerServerApp):
    """An asynchronous server: no site waits for another, and a model goes out with every message.

    It ends when all sites have done their rounds, or at the limits of the federation, and leaves
    ``summary.json``, ``global.model`` and, for a module, ``model.safetensors`` in its directory.
    """

    def __init__(self, federation: Callable[[Context], Federation]) -> None:
        """Runs the federation that ``federation(context)`` makes."""
        super().__init__()
        self._federation = federation
        self.main()(self._serve)

    def _serve(self, grid: Grid, context: Context) -> None:
        _Server(self._federation(context)).run(grid)


@dataclass
class _Site:
    """What the server remembers of a site while it runs."""

    number: int
    acknowledged: list[int] = field(default_factory=list)
    ended: bool = False
    fruitless: int = 0
    failed: int = 0
    not_before: float = 0.0

    @property
    def done(self) -> bool:
        return self.ended or self.fruitless >= _PATIENCE


class _Server:
    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.directory = Path(federation.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.terms = self._agreed()
        self.fold = self._restored()
        self.sites = {node: _Site(number) for node, number in self._numbers().items()}
        self.present: set[int] = set()
        self.began = time.monotonic()
        self.called = -_CALL
        self.measured = 0

    # What stays

    def _agreed(self) -> Terms:
        kept, given = self.directory / "terms.json", self.federation.terms
        if not kept.is_file():
            _write(kept, given.json().encode())
            return given
        before = Terms(kept.read_text())
        if not before.same_but_for_the_name(given):
            raise ValueError(f"{kept}: the federation was begun with other terms; go on with them, or in another directory")
        return before

    def _restored(self) -> Coordinator:
        saved = self.directory / "state"
        if saved.is_file():
            return Coordinator.restore(self.terms, saved.read_bytes())
        return Coordinator(self.terms, flat(self.federation.model))

    def _numbers(self) -> dict[int, int]:
        kept = self.directory / "nodes.json"
        found = json.loads(kept.read_text()) if kept.is_file() else {}
        return {int(node): int(number) for node, number in found.items()}

    # Work

    def run(self, grid: Grid) -> None:
        """Asks and folds until the end."""
        asked: dict[str, int] = {}
        while True:
            self._welcome(grid)
            busy = set(asked.values())
            if not self._is_over():
                for node in self.present - busy:
                    site = self.sites[node]
                    if not site.done and time.monotonic() >= site.not_before:
                        for sent in grid.push_messages([self._message(node, site)]):
                            if sent:
                                asked[sent] = node
            elif not asked or self._is_late():
                break
            answered = False
            for reply in grid.pull_messages(list(asked)) if asked else []:
                message_id = reply.metadata.reply_to_message_id
                if message_id in asked:
                    self._read(self.sites[asked.pop(message_id)], reply)
                    answered = True
            if answered:
                # Before anything is acknowledged.
                _write(self.directory / "state", self.fold.snapshot())
                self._measure()
            else:
                time.sleep(_LOOK)
        self._finish()

    def _welcome(self, grid: Grid) -> None:
        """Numbers the nodes that are new; who comes after the last number of the terms is not asked."""
        if time.monotonic() < self.called + _CALL:
            return
        self.called = time.monotonic()
        nodes = list(grid.get_node_ids())
        for node in nodes:
            if node not in self.sites and len(self.sites) < self.terms.clients:
                self.sites[node] = _Site(1 + max((site.number for site in self.sites.values()), default=0))
                numbers = {str(node): site.number for node, site in self.sites.items()}
                _write(self.directory / "nodes.json", json.dumps(numbers).encode())
                _log.info("dpsgd: node %d is client %d", node, self.sites[node].number)
        if len(self.sites) == self.terms.clients and any(node not in self.sites for node in nodes):
            _log.warning("dpsgd: a node is not asked: the terms have %d clients, and all are known", self.terms.clients)
        self.present = {node for node in nodes if node in self.sites}

    def _message(self, node: int, site: _Site) -> Message:
        asked = ConfigRecord(
            {
                TERMS: self.terms.json(),
                CLIENT: site.number,
                MODEL: self.fold.model(),
                ROUNDS: self.federation.rounds,
                ACKNOWLEDGED: site.acknowledged,
            }
        )
        ttl = self.federation.ttl
        return Message(RecordDict({NAME: asked}), node, MessageType.TRAIN, ttl=ttl)

    def _read(self, site: _Site, reply: Message) -> None:
        """Folds an answer, whatever it holds."""
        said = _said(reply)
        site.acknowledged = []
        accepted = 0
        if said is None or said.get(FAILED):
            site.failed += 1
            _log.warning("dpsgd: client %d failed; its own log says why", site.number)
        else:
            frames = said.get(UPDATES, [])
            well_formed = isinstance(frames, list) and all(isinstance(frame, bytes) for frame in frames)
            # No honest site has more updates than rounds.
            for frame in frames[: self.terms.rounds] if well_formed else [b""]:
                outcome = self.fold.apply(site.number, frame)
                accepted += outcome.accepted
                if not outcome.accepted:
                    _log.warning("dpsgd: an update of client %d was rejected: %s", site.number, outcome.reason)
            rounds = said.get(ROUNDS, [])
            if isinstance(rounds, list) and all(isinstance(round, int) and round >= 0 for round in rounds):
                site.acknowledged = rounds
            site.ended = said.get(ENDED) is True
        site.fruitless = 0 if accepted else site.fruitless + 1
        site.not_before = 0.0 if accepted else time.monotonic() + _AGAIN
        if accepted:
            _log.info("dpsgd: version %d of the model, %d updates of client %d", self.fold.version, accepted, site.number)
        if site.fruitless == _PATIENCE and not site.ended:
            _log.warning("dpsgd: client %d is not asked any more: %d answers without an update", site.number, _PATIENCE)

    def _is_over(self) -> bool:
        limit = self.federation.updates
        if limit is not None and self.fold.summary()["updates_applied"] >= limit:
            return True
        if self.federation.seconds is not None and time.monotonic() - self.began >= self.federation.seconds:
            return True
        done = sum(site.done for site in self.sites.values())
        expected = self.federation.sites or self.terms.clients
        return done >= expected and all(self.sites[node].done for node in self.present)

    def _is_late(self) -> bool:
        """Answers that are still under way are waited for, because their sites have paid for them; not for ever."""
        limit = self.federation.seconds
        return limit is not None and time.monotonic() - self.began >= limit + self.federation.ttl

    def _measure(self, last: bool = False) -> None:
        evaluate, updates = self.federation.evaluate, self.fold.summary()["updates_applied"]
        if evaluate is None or not (last or updates >= self.measured + self.federation.every):
            return
        self.measured = updates
        found = {"version": self.fold.version, "updates": updates, **evaluate(self.fold.weights())}
        with (self.directory / "metrics.jsonl").open("a") as lines:
            lines.write(json.dumps(found) + "\n")
        _log.info("dpsgd: %s", ", ".join(f"{name} {value:g}" for name, value in found.items()))

    def _finish(self) -> None:
        self._measure(last=True)
        summary = self.fold.summary()
        for site in self.sites.values():
            known = summary["clients"].setdefault(str(site.number), {"accepted": 0, "rejected": {}})
            known.update(ended=site.ended, failed=site.failed)
        summary["seconds"] = time.monotonic() - self.began
        _write(self.directory / "global.model", self.fold.model())
        _write(self.directory / "summary.json", json.dumps(summary, indent=2).encode())
        model = self.federation.model
        if hasattr(model, "state_dict"):
            from safetensors.torch import save_model

            load_into(model, self.fold.weights())
            save_model(model, str(self.directory / "model.safetensors"))
        rejected = ", ".join(f"{count} {reason}" for reason, count in summary["updates_rejected"].items()) or "none"
        _log.info("dpsgd: %d updates folded, rejected: %s; %s", summary["updates_applied"], rejected, self.directory)


def _said(reply: Message) -> Mapping[str, Any] | None:
    """The record of an answer; nothing if there is none."""
    if not reply.has_content():
        return None
    found = reply.content.get(NAME)
    return found if isinstance(found, Mapping) else {UPDATES: None}


def flat(model: Any) -> NDArray[np.float32]:
    """The trained parameters of a module, one after the other, in the order in which a trainer has them."""
    if not hasattr(model, "named_parameters"):
        return np.ascontiguousarray(model, dtype=np.float32)
    parts = [p.detach().cpu().numpy().ravel() for _, p in model.named_parameters() if p.requires_grad]
    return np.concatenate(parts).astype(np.float32)


def load_into(model: Any, weights: ArrayLike) -> None:
    """Gives a module weights in the order of :func:`flat`."""
    import torch

    rest = torch.from_numpy(np.array(weights, dtype=np.float32))
    with torch.no_grad():
        for _, parameter in model.named_parameters():
            if parameter.requires_grad:
                mine, rest = rest[: parameter.numel()], rest[parameter.numel() :]
                parameter.copy_(mine.view(parameter.shape))


def _write(path: Path, content: bytes) -> None:
    """Replaces a file whole, or not at all."""
    fresh = path.with_name(path.name + ".writing")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
