"""What a run leaks: values, errors, arrays, manners."""

import math
import pickle

import numpy as np
import pytest

import dpsgd
from dpsgd import Bound, Mechanism

POISSON = dict(rate=0.01, rounds=1000, noise_multiplier=1.0)


def test_the_value_is_the_guaranteed_end():
    run = Mechanism.poisson(**POISSON)
    epsilon = run.epsilon(1e-5)
    # 1.82823666651657680, a reference with 30 digits of crates/privacy/tests.
    assert epsilon.lower <= 1.8282366665165768 <= epsilon.upper == float(epsilon)
    assert epsilon.upper - epsilon.lower < 1e-8
    delta = run.delta(float(epsilon))
    assert delta == delta.upper and math.isclose(delta, 1e-5, rel_tol=1e-6)
    beta = run.beta(0.01)
    assert beta == beta.lower <= beta.upper
    mu = run.mu()
    assert mu == mu.upper >= mu.lower
    assert isinstance(epsilon + 1, float) and not isinstance(epsilon + 1, Bound)


def test_both_adversaries_of_the_paper():
    run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
    assert run.adversary == "A0" and abs(run.epsilon(1e-5) - 0.745) < 1e-3
    assert abs(run.epsilon(1e-5, adversary="A1") - 35.01) < 1e-2
    assert run.rounds == 93_700 and run.noise_multiplier == 4.0


def test_random_allocation_and_shuffling():
    allocated = Mechanism.random_allocation(rounds_per_epoch=234, epochs=100, noise_multiplier=1.0)
    assert abs(allocated.epsilon(1e-5) - 3.688) < 1e-3
    # In cells: a sample moves a cell by 2C where alone it would add C.
    cells = Mechanism.random_allocation(rounds_per_epoch=20, epochs=2, groups=8, group_size=4, sigma=1.0)
    alone = Mechanism.random_allocation(rounds_per_epoch=20, epochs=2, groups=8, sigma=1.0)
    assert cells.epsilon(1e-5) > alone.epsilon(1e-5) and cells.rounds == 40
    with pytest.raises(ValueError, match="group-size"):
        Mechanism.random_allocation(rounds_per_epoch=20, epochs=2, groups=8, group_size=0, sigma=1.0)
    shuffled = Mechanism.shuffle(samples=60_000, groups=1, group_size=64, epochs=50, sigma=4.0)
    assert shuffled.adversary == "A1" and shuffled.epsilon(1e-5) > 0
    with pytest.raises(ValueError, match="shuffl"):
        shuffled.epsilon(1e-5, adversary="A0")


def test_calibration_meets_its_target():
    run = Mechanism.subsample(samples=60_000, groups=1024, epochs=15)
    assert run.sigma is None
    with pytest.raises(ValueError, match="no noise is given"):
        run.epsilon(1e-5)
    found = run.calibrate(epsilon=3, delta=1e-5)
    assert found.sigma == 1.11079635 and 2.9999 < found.epsilon(1e-5) <= 3
    assert run.calibrate(mu=0.7).mu() <= 0.7
    longer = found.replace(sigma=1.5).calibrate(epsilon=3, solve="epochs")
    assert longer.settings["epochs"] > 15 and longer.epsilon(1e-5) <= 3
    larger = found.replace(sigma=1.5).calibrate(epsilon=3, solve="groups")
    assert larger.settings["groups"] > 1024 and larger.epsilon(1e-5) <= 3
    with pytest.raises(ValueError, match="solve = steps: must be sigma, epochs or groups"):
        found.calibrate(epsilon=3, solve="steps")


def test_phases_groups_and_releases():
    one = Mechanism.subsample(samples=60_000, groups=64, epochs=10, sigma=2.0)
    two = one.replace(groups=256, epochs=5, sigma=1.5)
    both = one.then(two)
    assert both.rounds == one.rounds + two.rounds and both.sigmas == [2.0, 1.5]
    assert both.epsilon(1e-5) > max(one.epsilon(1e-5), two.epsilon(1e-5))
    # Two halves of a run are the run.
    half = one.replace(epochs=5)
    assert math.isclose(half.then(half).epsilon(1e-5), one.epsilon(1e-5), rel_tol=1e-7)
    with_release = one.replace(releases=[0.1])
    assert with_release.epsilon(1e-5) > one.epsilon(1e-5)
    assert one.then(with_release).epsilon(1e-5) > one.then(one).epsilon(1e-5)
    assert one.replace(differing=4).epsilon(1e-5) > one.epsilon(1e-5)
    calibrated = Mechanism.phases([one, two]).calibrate(epsilon=1, delta=1e-5)
    assert len(set(calibrated.sigmas)) == 1 and 0.999 < calibrated.epsilon(1e-5) <= 1
    with pytest.raises(ValueError, match="differing"):
        one.then(two.replace(differing=2))


def test_arrays_of_beta_enclose_the_single_values():
    for run in (
        Mechanism.poisson(**POISSON),
        Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0),
        Mechanism.shuffle(samples=6_000, groups=1, group_size=64, epochs=3, sigma=1.0),
        Mechanism.subsample(samples=60_000, groups=2048, epochs=100, sigma=0.3),
    ):
        for adversary in ("A0", "A1"):
            if adversary == "A0" and run.adversary == "A1":
                continue
            alphas = np.concatenate([np.linspace(0, 1, 31), np.geomspace(1e-6, 1e-2, 9)])
            lower, upper = run.beta_interval(alphas, adversary=adversary)
            for alpha, low, high in zip(alphas, lower, upper):
                single = run.beta(float(alpha), adversary=adversary)
                # Two certified intervals of the same number overlap; the lines may lose a little, never gain.
                assert low <= single.upper and high >= single.lower, (run, adversary, alpha)
                assert single.lower - low < 1e-4, (run, adversary, alpha, single.lower - low)  # 6e-5 was seen
            assert np.all(np.diff(lower[:31]) <= 1e-12)
    assert Mechanism.poisson(**POISSON).beta(np.full((2, 3), 0.5)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Mechanism.poisson(rate=1.5, rounds=10, sigma=1), "rate = 1.5"),
        (lambda: Mechanism.poisson(rate=0.1, rounds=10, sigma=float("nan")), "sigma = NaN: between 0.05 and 100000"),
        (lambda: Mechanism.poisson(rate=0.1, rounds=10, epochs=1, sigma=1), "epochs and rounds are both given"),
        (lambda: Mechanism.poisson(rate=0.1, rounds=10, sigma=1, noise_multiplier=1), "sigma and noise-multiplier"),
        (lambda: Mechanism.subsample(samples=10, groups=20, epochs=1, sigma=1), "groups"),
        (lambda: Mechanism.subsample(samples=60_000, groups=64, epochs=0, sigma=1), "epochs = 0: at least 1"),
        (lambda: Mechanism.subsample(samples=100, groups=2, epochs=1, sigma=1, differing=70_000), "differing = 70000"),
        (lambda: Mechanism.poisson(**POISSON).epsilon(0), "delta = 0"),
        (lambda: Mechanism.poisson(**POISSON).delta(-1), "epsilon"),
        (lambda: Mechanism.poisson(**POISSON).beta(2.0), "alpha = 2: must be between 0 and 1"),
        (lambda: Mechanism.poisson(**POISSON).beta([0.5, 2.0]), "alpha = 2: must be between 0 and 1"),
        (lambda: Mechanism.poisson(**POISSON).epsilon(1e-5, adversary="A2"), "adversary = A2"),
        (lambda: Mechanism.poisson(rate=0.1, rounds=1.5, sigma=1), "rounds|integer|u64"),
    ],
)
def test_errors_are_value_errors_with_the_text_of_the_command(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_unknown_names_are_refused():
    with pytest.raises(TypeError, match="unknown settings colour"):
        Mechanism(colour=1)
    with pytest.raises(TypeError):
        Mechanism.poisson(rate=object(), rounds=1)


def cells(run):
    """The rows of the table that a notebook shows."""
    import html
    import re

    found = re.findall("<tr><th[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td></tr>", run._repr_html_())
    return {html.unescape(name): html.unescape(text) for name, text in found}


def test_statement_account_and_pages():
    run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
    text = run.statement(1e-5)
    assert "WHAT IT LEAKS" in text and "0.744682" in text
    account = run.account(1e-5)
    assert {one["adversary"] for one in account["guarantees"]} == {"A0", "A1"}
    rows = cells(run)
    assert list(rows) == ["Data", "Sampling", "Length", "Noise", "Neighbours", "A₁ knows every batch", "A₀ sees the updates only"]
    assert rows["Data"].startswith("60000 samples; each round uses 64 groups") and rows["Noise"].startswith("σ = 2 (")
    assert rows["A₀ sees the updates only"] == "ε ≤ 0.744682 at δ = 1e-5"
    # A text of two lines is one cell.
    assert cells(Mechanism.shuffle(samples=60_000, groups=16, group_size=4, epochs=3, sigma=2.0))["Length"].endswith("at random")
    both = cells(run.then(run.replace(sigma=1.0)))
    assert [name for name in both if "Phase" in name] == ["Phase 1 of 2", "Phase 2 of 2"]
    # No noise is not σ = 1.
    assert cells(Mechanism.subsample(samples=60_000, groups=64, epochs=100))["Noise"].startswith("not chosen yet")
    assert "1 sample is" in run.statement(epsilon=1.0)


def test_a_bound_in_html_is_never_rounded_down():
    from dpsgd.bound import rounded_up

    for value in (0.74468249, 1.0000004, 123456.7, 3e-9, 0.99999951):
        assert float(rounded_up(value)) >= value > float(rounded_up(value)) * (1 - 1.1e-5)


def test_pickling_equality_and_copies():
    run = Mechanism.poisson(**POISSON, releases=[0.1])
    again = pickle.loads(pickle.dumps(run))
    assert again == run and hash(again) == hash(run) and again.epsilon(1e-5) == run.epsilon(1e-5)
    assert run != run.replace(rounds=1001)
    epsilon = run.epsilon(1e-5)
    copy = pickle.loads(pickle.dumps(epsilon))
    assert (copy, copy.lower, copy.upper) == (epsilon, epsilon.lower, epsilon.upper)
    beta = pickle.loads(pickle.dumps(run.beta(0.1)))
    assert beta == beta.lower
    assert eval(repr(run), {"Mechanism": Mechanism}) == run


def test_numbers_of_numpy_are_numbers():
    run = Mechanism.poisson(rate=np.float32(0.5), rounds=np.int32(10), sigma=np.float64(1))
    assert run.epsilon(np.float64(1e-5)) > 0


def test_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    run = Mechanism.subsample(samples=60_000, groups=64, epochs=100, sigma=2.0)
    for log in (False, True):
        axes = run.plot(log=log, points=50)
        assert len(axes.lines) == 3
    shuffled = Mechanism.shuffle(samples=6_000, groups=64, epochs=3, sigma=1.0)
    assert len(shuffled.plot(points=20).lines) == 2


def test_threads_may_share_a_mechanism():
    from concurrent.futures import ThreadPoolExecutor

    run = Mechanism.poisson(**POISSON)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: run.epsilon(1e-5), range(16)))) == 1


def test_the_audit_does_not_contradict():
    found = Mechanism.subsample(samples=1000, groups=10, epochs=1, sigma=1.0).audit(trials=200)
    assert found and found.contradictions == [] and "<html" in found.html.lower()


def test_phases_are_audited_one_by_one():
    import json

    run = Mechanism.shuffle(samples=400, groups=10, epochs=1, sigma=1.0)
    found = run.then(run.replace(groups=20, sigma=2.0)).audit(trials=100)
    assert found and "PHASE 1" in str(found) and "PHASE 2" in str(found) and len(json.loads(found.json)["phases"]) == 2
    assert found._repr_html_().startswith("<pre>") and "html=" not in repr(found)


def test_version_and_names():
    assert dpsgd.__version__ == "0.1.0"
    for name in dpsgd.__all__:
        if name not in ("DPClassifier", "DPRegressor"):
            assert getattr(dpsgd, name) is not None
