"""The coordinator: what it folds, what it rejects, what it keeps."""

import pickle

import numpy as np
import pytest

from dpsgd import Mechanism
from dpsgd.federated import Coordinator, Terms

D = 4000
# 2Cσ/m with C = 1, σ = 1, m = 20.
DEVIATION = 0.1
RUN = Mechanism.subsample(samples=600, groups=20, rounds=60, sigma=1.0)


def terms(**more):
    options = dict(dimension=D, clients=3, clip=1.0, lr=0.1) | more
    return Terms.of(RUN, **options)


def noised(seed):
    return np.random.default_rng(seed).normal(scale=DEVIATION, size=D).astype(np.float32)


def test_updates_are_folded_as_the_paper_has_it():
    agreed = terms()
    server = Coordinator(agreed, np.ones(D, dtype=np.float32))
    expected = np.ones(D, dtype=np.float32)
    for number in range(6):
        values = noised(number)
        found = server.apply(1 + number % 3, agreed.update(client=1 + number % 3, round=number, base=0, values=values))
        assert found.accepted and found.round == number and found.staleness == number and found.stepped
        expected = expected - np.float32(0.1) * values
    assert server.version == 6 and np.allclose(server.weights(), expected, atol=1e-6)
    version, weights = agreed.model(server.model())
    assert version == 6 and np.array_equal(weights, server.weights())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda t, v: b"", "format"),
        (lambda t, v: b"nonsense" * 100, "format"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=v)[:-1] + b"\0", "checksum"),
        (lambda t, v: terms().update(client=1, round=1, base=0, values=v), "run"),
        (lambda t, v: t.update(client=2, round=1, base=0, values=v), "sender"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=v[:-1]), "dimension"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=np.where(np.arange(D) == 7, np.nan, v)), "not-finite"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=np.where(np.arange(D) == 7, np.inf, v)), "not-finite"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=0.2 * v), "norm"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=5 * v), "norm"),
        (lambda t, v: t.update(client=1, round=1, base=0, values=v + 100 * (np.arange(D) == 7)), "coordinate"),
        (lambda t, v: t.update(client=1, round=0, base=0, values=v), "replayed"),
        (lambda t, v: t.update(client=1, round=60, base=0, values=v), "beyond-plan"),
        (lambda t, v: t.update(client=1, round=1, base=2, values=v), "from-future"),
    ],
)
def test_what_is_not_an_honest_update_changes_nothing_and_is_counted(make, reason):
    agreed = terms()
    server = Coordinator(agreed, np.zeros(D, dtype=np.float32))
    assert server.apply(1, agreed.update(client=1, round=0, base=0, values=noised(0))).accepted
    before = server.weights()
    found = server.apply(1, make(agreed, noised(1)))
    assert (found.accepted, found.reason) == (False, reason)
    assert np.array_equal(server.weights(), before) and server.version == 1
    assert server.summary()["updates_rejected"] == {reason: 1}
    assert server.summary()["clients"]["1"] == {"accepted": 1, "rejected": {reason: 1}}
    # It goes on.
    assert server.apply(2, agreed.update(client=2, round=0, base=1, values=noised(2))).accepted


def test_stale_updates_and_buffers():
    agreed = terms(max_staleness=1, rule="buffer:2", outer="momentum", staleness_power=0.5)
    server = Coordinator(agreed, np.zeros(D, dtype=np.float32))
    for number in range(4):
        found = server.apply(1, agreed.update(client=1, round=number, base=server.version, values=noised(number)))
        assert found.accepted and found.stepped == (number % 2 == 1)
    assert server.version == 2
    assert server.apply(2, agreed.update(client=2, round=0, base=0, values=noised(9))).reason == "stale"


def test_a_restored_coordinator_goes_on_bit_for_bit():
    agreed = terms(rule="buffer:3", outer="adam")
    whole = Coordinator(agreed, np.zeros(D, dtype=np.float32))
    frames = [agreed.update(client=1, round=number, base=0, values=noised(number)) for number in range(8)]
    for frame in frames:
        whole.apply(1, frame)
    other = Coordinator(agreed, np.zeros(D, dtype=np.float32))
    for frame in frames:
        other = Coordinator.restore(pickle.loads(pickle.dumps(agreed)), other.snapshot())
        other.apply(1, frame)
    assert other.snapshot() == whole.snapshot()
    with pytest.raises(ValueError, match="damaged"):
        Coordinator.restore(agreed, whole.snapshot()[:-1])
    with pytest.raises(ValueError, match="another run"):
        Coordinator.restore(terms(), whole.snapshot())


def test_terms_are_checked_and_compared():
    one = terms()
    assert Terms(one.json()) == one and hash(Terms(one.json())) == hash(one) and eval(repr(one)) == one
    other = terms()
    assert one != other and one.same_but_for_the_name(other) and not one.same_but_for_the_name(terms(lr=0.2))
    assert (one.dimension, one.clients, one.rounds, len(one.run)) == (D, 3, 60, 32)
    for wrong, text in (
        (dict(rule="mean"), "rule = mean: each, buffer:K"),
        (dict(rule="trimmed:4:2"), "trim = 2"),
        (dict(clients=0), "clients = 0"),
        (dict(noise_range=0.5), "noise_range = 0.5"),
        (dict(lr_rule="step:0.5:1"), "constant or inverse-root"),
        (dict(outer="lion"), "outer = lion"),
        (dict(staleness_power=-1.0), "a power above 0"),
    ):
        with pytest.raises(ValueError, match=text):
            terms(**wrong)
    with pytest.raises(ValueError):
        Terms("{}")
    with pytest.raises(ValueError, match="3999 parameters"):
        Coordinator(one, np.zeros(D - 1, dtype=np.float32))


def test_the_bounds_of_a_random_batch_size_leave_room():
    import json

    poisson = Mechanism.poisson(rate=0.1, rounds=10, groups=20, sigma=1.0)
    bounds = json.loads(Terms.of(poisson, dimension=D, clients=1, clip=1.0, lr=0.1, noise_range=1.0).json())["bounds"]
    assert bounds["signal"] == 4.0 and bounds["smallest-deviation"] == bounds["largest-deviation"] == DEVIATION
