"""Inside Opacus and dp_accounting, with their own numbers beside ours."""

import math

import pytest

from dpsgd import Mechanism


def test_opacus_accountant_beside_its_own():
    pytest.importorskip("opacus")
    import dpsgd.opacus
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    found = {}
    for name in ("dpsgd", "prv", "rdp"):
        accountant = create_accountant(name)
        for _ in range(30):
            accountant.step(noise_multiplier=1.0, sample_rate=0.01)
        for _ in range(20):
            accountant.step(noise_multiplier=0.8, sample_rate=0.02)
        if name == "dpsgd":
            assert len(accountant) == 50
        found[name] = accountant.get_epsilon(delta=1e-5)
    assert found["dpsgd"] < found["prv"] < found["dpsgd"] + 0.03 and found["dpsgd"] < found["rdp"]
    noise = {
        name: get_noise_multiplier(
            target_epsilon=3, target_delta=1e-5, sample_rate=0.01, steps=5000, accountant=name, epsilon_tolerance=1e-3
        )
        for name in ("dpsgd", "rdp")
    }
    exact = Mechanism.poisson(rate=0.01, rounds=5000).calibrate(epsilon=3, delta=1e-5).noise_multiplier
    assert exact <= noise["dpsgd"] < exact + 1e-3 and noise["dpsgd"] < noise["rdp"]


def test_opacus_accountant_manners():
    pytest.importorskip("opacus")
    from dpsgd.opacus import DPSGDAccountant

    accountant = DPSGDAccountant()
    assert accountant.get_epsilon(1e-5) == 0 and len(accountant) == 0
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    again = DPSGDAccountant()
    again.load_state_dict(accountant.state_dict())
    assert again.get_epsilon(1e-5) == accountant.get_epsilon(1e-5) > 0
    assert accountant.history == [(1.0, 0.01, 2)]
    # Rounds with the same noise and rate are one phase, whatever came between them.
    accountant.history = [(1.0, 0.01, 5), (0.9, 0.01, 1), (1.0, 0.01, 5)]
    assert accountant.mechanism_of_history().rounds == 11 and len(accountant.mechanism_of_history().sigmas) == 2
    with pytest.raises(TypeError, match="unknown arguments"):
        accountant.get_epsilon(1e-5, eps_error=0.1)
    accountant.step(noise_multiplier=0.0, sample_rate=0.01)
    assert accountant.get_epsilon(1e-5) == math.inf


def test_opacus_engine_trains_with_it():
    pytest.importorskip("opacus")
    import torch
    import dpsgd.opacus
    from opacus import PrivacyEngine

    torch.manual_seed(0)
    x = torch.randn(200, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size=20)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine(accountant="dpsgd")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, target_epsilon=2, target_delta=1e-5, epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for batch, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), target).backward()
            optimizer.step()
    assert 0 < engine.get_epsilon(1e-5) <= 2


def test_opacus_cannot_notice_a_loader_that_is_not_poisson():
    """A limit of its interface, which the documentation states: ε is that of Poisson sampling, whatever was drawn."""
    pytest.importorskip("opacus")
    import torch
    import dpsgd.opacus
    from opacus import PrivacyEngine

    found = []
    for poisson in (True, False):
        torch.manual_seed(0)
        x = torch.randn(100, 4)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size=20)
        model = torch.nn.Linear(4, 2)
        engine = PrivacyEngine(accountant="dpsgd")
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=loader, noise_multiplier=1.0,
            max_grad_norm=1.0, poisson_sampling=poisson,
        )
        for batch, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), target).backward()
            optimizer.step()
        found.append(engine.get_epsilon(1e-5))
    assert found[0] == found[1] == Mechanism.poisson(rate=0.2, rounds=5, noise_multiplier=1.0).epsilon(1e-5)
    assert "no accountant can notice" in dpsgd.opacus.__doc__


def test_dp_accounting_beside_its_own():
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    from dpsgd.dp_accounting import DPSGDAccountant

    add, replace = dp.NeighboringRelation.ADD_OR_REMOVE_ONE, dp.NeighboringRelation.REPLACE_ONE
    events = [
        dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 900),
        dp.GaussianDpEvent(10.0),
        dp.ComposedDpEvent([dp.NoOpDpEvent(), dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(2.0))]),
    ]
    for relation in (add, replace):
        for chosen in (events[:1], events[1:2], events):
            ours, theirs = DPSGDAccountant(relation), PLDAccountant(relation)
            for event in chosen:
                assert ours.supports(event)
                ours.compose(event)
                theirs.compose(event)
            # PLD is an upper bound with a discretisation of 1e-4.
            assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5) + 1e-9 < ours.get_epsilon(1e-5) + 2e-3
            assert math.isclose(ours.get_delta(1.0), theirs.get_delta(1.0), rel_tol=2e-2, abs_tol=1e-12)


def test_dp_accounting_refuses_what_it_cannot_prove():
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.privacy_accountant import UnsupportedEventError

    from dpsgd.dp_accounting import DPSGDAccountant

    accountant = DPSGDAccountant()
    gaussian = dp.GaussianDpEvent(1.0)
    for event in (
        dp.LaplaceDpEvent(1.0),
        dp.SampledWithoutReplacementDpEvent(100, 10, gaussian),
        dp.SampledWithReplacementDpEvent(100, 10, gaussian),
        dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)),
        dp.UnsupportedDpEvent(),
        dp.ComposedDpEvent([gaussian, dp.ZCDpEvent(1.0)]),
    ):
        assert not accountant.supports(event)
        with pytest.raises(UnsupportedEventError):
            accountant.compose(event)
    assert accountant.get_epsilon(1e-5) == 0 and accountant.mechanism is None
    assert accountant.compose(gaussian, 3).mechanism.rounds == 3
    assert accountant.compose(dp.NonPrivateDpEvent()).get_epsilon(1e-5) == math.inf
    assert accountant.get_delta(1.0) == 1
    with pytest.raises(ValueError, match="neighboring_relation"):
        DPSGDAccountant(dp.NeighboringRelation.REPLACE_SPECIAL)


def test_dp_accounting_calibrates_with_it():
    dp = pytest.importorskip("dp_accounting")
    from dpsgd.dp_accounting import DPSGDAccountant

    def event(noise):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(noise)), 1000)

    found = dp.calibrate_dp_mechanism(DPSGDAccountant, event, 1.0, 1e-5, dp.LowerEndpointAndGuess(0.2, 1.0))
    exact = Mechanism.poisson(rate=0.01, rounds=1000).calibrate(epsilon=1, delta=1e-5).noise_multiplier
    assert abs(found - exact) < 1e-4
