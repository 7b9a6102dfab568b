"""Every way in which a PyTorch model can break the guarantee, or be thought to: what must happen."""

import os
import signal
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dpsgd
import dpsgd.torch
from dpsgd import Mechanism, RoundFailed
from dpsgd.torch import Callback, Refused, Trainer
from torch import nn
from torch.nn import functional as F

N = 64


def data(seed=0, n=N):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=draw)
    return x, (x[:, 0] > 0).long()


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def trainer(model, directory, *, x=None, y=None, loss=F.cross_entropy, group_size=1, groups=8, **more):
    if x is None:
        x, y = data()
    # Eight epochs of eight rounds; shuffling is the sampler whose first few rounds are accounted for fastest.
    run = Mechanism.shuffle(samples=len(x), groups=groups, group_size=group_size, epochs=8, sigma=1.0)
    more.setdefault("progress", False)
    more.setdefault("seed", 7)
    return Trainer(model, loss, x, y, mechanism=run, clip=1.0, lr=0.1, directory=directory, **more)


def flat(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


class Failing(nn.Module):
    """Fails once, in a round that was charged."""

    def __init__(self, at):
        super().__init__()
        self.inside = mlp()
        self.armed = False
        self.at = at

    def forward(self, x):
        if self.armed:
            self.armed = False
            raise ZeroDivisionError("sample of Alice")
        return self.inside(x)


def test_an_exception_after_the_charge_spends_the_round_and_nothing_else(directory):
    model = Failing(at=2)

    class Arm(Callback):
        def on_round(self, trainer, done):
            if done == 2:
                weights.append(flat(model))
                model.armed = True

    weights = []
    run = trainer(model, directory, callbacks=[Arm()])
    with pytest.raises(RoundFailed, match="round 2 is spent without an update") as caught:
        run.fit()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    # The text may hold private data: it stays in the cause.
    assert "Alice" not in str(caught.value)
    saved = dpsgd.load_run(directory)
    assert saved.rounds_charged >= 3 and not saved.finished
    result = run.fit()
    assert result.finished
    saved = dpsgd.load_run(directory)
    assert saved.rounds_charged == 64 and saved.resumes == 1
    # Two updates before the failure; what was charged then, which is whole epochs, is skipped.
    updates = saved.metrics()[-1]["updates"]
    assert 2 <= updates <= 2 + 7 * 8 and updates % 8 == 2
    assert np.isfinite(flat(model)).all()


def test_a_nan_sample_counts_as_not_finite(directory):
    x, y = data()
    x[3] = float("nan")
    model = mlp()
    run = Mechanism.shuffle(samples=N, groups=8, epochs=2, sigma=1.0)
    result = Trainer(
        model, F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1, directory=directory, seed=1, progress=False
    ).fit()
    assert result.not_finite == 2
    assert np.isfinite(flat(model)).all()


def test_batch_norm_in_train_mode_is_refused_and_in_eval_mode_works(directory):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    with pytest.raises(Refused, match="BatchNorm1d.*running statistics mix samples"):
        trainer(model, directory)
    assert not directory.exists()
    model[1].eval()
    before = {name: value.clone() for name, value in model.named_buffers()}
    assert trainer(model, directory).fit().finished
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_only_float32_is_trained(directory, dtype):
    with pytest.raises(Refused, match="only float32 can be trained"):
        trainer(mlp().to(dtype), directory)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = mlp()
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        self.seen += x.detach().mean(dim=0)
        return self.inside(x)


class Reassigned(InPlace):
    def forward(self, x):
        self.seen = self.seen + 1
        return self.inside(x)


@pytest.mark.parametrize("mode", ["auto", "threads", "vmap", "loop"])
@pytest.mark.parametrize("layer", [InPlace, Reassigned])
def test_a_buffer_that_remembers_is_refused_before_the_first_charge(directory, mode, layer):
    with pytest.raises(Refused):
        trainer(layer(), directory, mode=mode).fit()
    assert not directory.exists()


def test_dropout_is_refused_unless_it_is_wanted(directory):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    with pytest.raises(Refused, match="Dropout.*draws at random"):
        trainer(model, directory)
    assert trainer(model, directory, randomness="different").fit().finished

    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = mlp()

        def forward(self, x):
            return self.inside(F.dropout(x, 0.5))

    for mode in ("auto", "vmap", "loop"):
        with pytest.raises(Refused):
            trainer(Functional(), directory.with_name("other"), mode=mode).fit()


class Augmented(torch.utils.data.Dataset):
    """Views of samples that draw from a generator."""

    def __init__(self, draw):
        self.x, self.y = data()
        self.draw = draw

    def __len__(self):
        return N

    def __getitem__(self, number):
        return self.x[number] + 0.1 * self.draw(), self.y[number]


def test_a_dataset_that_draws_at_random_is_refused_unless_it_is_wanted(directory):
    torchs, numpys = lambda: torch.randn(6), lambda: torch.from_numpy(np.random.standard_normal(6)).float()
    for draw, randomness in [(torchs, "error"), (numpys, "error"), (numpys, "different")]:
        with pytest.raises(Refused, match="gave other values for the same numbers"):
            trainer(mlp(), directory, x=Augmented(draw), y=None, randomness=randomness).fit()
    assert not directory.exists()
    # What PyTorch's generator gives follows the seeds of the run.
    found = []
    for number in range(2):
        model = mlp()
        torch.manual_seed(number)
        state = torch.get_rng_state()
        run = trainer(
            model, directory.with_name(str(number)), x=Augmented(torchs), y=None, randomness="different", mode="vmap", chunk=4
        )
        assert run.fit().finished and torch.equal(torch.get_rng_state(), state)
        found.append(flat(model))
    assert np.array_equal(*found)


def test_what_is_dropped_follows_the_run_and_not_the_generator_of_pytorch(directory):
    """Others may know the state of PyTorch's generator (torch.manual_seed(0)), and one sample more in a round changes what
    it draws for all samples after it, in the rounds that follow, too."""

    def run(name, state, sampling):
        model = mlp()
        model.insert(1, nn.Dropout(0.5))
        x, y = data()
        torch.manual_seed(state)
        made = Trainer(
            model, F.cross_entropy, x, y, mechanism=sampling, clip=1.0, lr=0.1, directory=directory.with_name(name),
            randomness="different", mode="loop", chunk=5, seed=7, progress=False,
        )
        made.rehearse()
        torch.manual_seed(state)
        before = torch.get_rng_state()
        made.fit()
        assert torch.equal(torch.get_rng_state(), before)
        return torch.cat([p.detach().ravel() for p in model.parameters()])

    poisson = Mechanism.poisson(rate=0.25, groups=16, rounds=6, sigma=1.0)
    for number, sampling in enumerate([Mechanism.shuffle(samples=N, groups=8, epochs=1, sigma=1.0), poisson]):
        one, other = (run(f"{number}-{state}", state, sampling) for state in (1, 2))
        assert torch.equal(one, other)


def test_one_sample_more_changes_no_other_row(directory):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    rows = trainer(model, directory, randomness="different", mode="loop")._rows
    alone = [rows.rows(np.array([3], dtype=np.uint32), 1, seed=11)[0] for _ in range(2)]
    # Another sample was looked at in between.
    rows.rows(np.array([5], dtype=np.uint32), 1, seed=12)
    alone.append(rows.rows(np.array([3], dtype=np.uint32), 1, seed=11)[0])
    for other in alone[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(alone[0], other))
    different, _ = rows.rows(np.array([3], dtype=np.uint32), 1, seed=13)
    assert not all(np.array_equal(a, b) for a, b in zip(alone[0], different))


class BatchMean(nn.Module):
    """Centres its inputs by the mean of the batch it sees."""

    def __init__(self):
        super().__init__()
        self.inside = mlp()

    def forward(self, x):
        return self.inside(x - x.mean(dim=0, keepdim=True) + 1.0)


def test_a_layer_with_the_batch_mean_sees_its_own_group_only(directory):
    x, y = data()
    run = trainer(BatchMean(), directory, group_size=2, groups=4)
    run.rehearse()
    rows = run._rows
    numbers = np.arange(16, dtype=np.uint32)
    for mode in ("vmap", "loop"):
        rows.mode = mode
        first, _ = rows.rows(numbers, 2)
        x[4:] += 100.0
        rows.samples.inputs[0][4:] += 100.0
        again, _ = rows.rows(numbers, 2)
        rows.samples.inputs[0][4:] -= 100.0
        for a, b in zip(first, again):
            # The first two groups are samples 0 to 3.
            assert np.allclose(a[:2], b[:2], rtol=1e-4, atol=1e-6)
    assert run.fit().finished


class Counting(nn.Module):
    """State in a Python attribute, which vmap does not see."""

    def __init__(self):
        super().__init__()
        self.inside = mlp()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inside(x) * (1 + 0.1 * self.calls)


class Remembering(nn.Module):
    """Keeps the last samples in a Python attribute."""

    def __init__(self):
        super().__init__()
        self.inside = mlp()
        self.last = None

    def forward(self, x):
        before = x if self.last is None else self.last
        self.last = x.detach()
        return self.inside(x + 0.5 * before)


@pytest.mark.parametrize("mode", ["auto", "threads", "vmap", "loop"])
@pytest.mark.parametrize("model", [Counting, Remembering])
def test_state_in_an_attribute_is_found_before_the_first_charge(directory, mode, model):
    with pytest.raises(Refused):
        trainer(model(), directory, mode=mode).fit()
    assert not directory.exists()


def test_a_forked_process_cannot_continue(directory):
    class Fork(Callback):
        child = None

        def on_round(self, trainer, done):
            if done == 2 and self.child is None:
                self.child = os.fork() or os.getpid()
                self.forked = self.child == os.getpid()

    fork = Fork()
    run = trainer(mlp(), directory, callbacks=[fork], threads=1)
    try:
        run.fit()
    except RuntimeError as why:
        if fork.forked:
            os._exit(42 if "copy of the one that began the run" in str(why) else 1)
        raise
    if fork.forked:
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(fork.child, 0)[1]) == 42


def test_another_thread_may_train(directory):
    results = []
    thread = threading.Thread(target=lambda: results.append(trainer(mlp(), directory).fit()))
    thread.start()
    thread.join()
    assert results[0].finished


def test_re_entry_is_refused_with_a_clear_error(directory):
    class Again(Callback):
        def on_round(self, trainer, done):
            trainer.fit()

    with pytest.raises(RuntimeError, match="already running"):
        trainer(mlp(), directory, callbacks=[Again()]).fit()


def test_two_trainers_cannot_share_a_directory(directory):
    inner = []

    class Other(Callback):
        def on_round(self, _, done):
            if done == 1:
                with pytest.raises((ValueError, OSError)):
                    trainer(mlp(), directory).fit()
                with pytest.raises((ValueError, OSError)):
                    trainer(mlp(), directory).fit(resume=True)
                inner.append(done)

    assert trainer(mlp(), directory, callbacks=[Other()]).fit().finished and inner == [1]


@pytest.mark.parametrize("where", ["model", "callback"])
def test_ctrl_c_is_a_keyboard_interrupt_and_the_run_resumes(directory, where):
    class Press(Callback):
        def on_round(self, trainer, done):
            if done == 3 and not pressed:
                pressed.append(done)
                if where == "callback":
                    signal.raise_signal(signal.SIGINT)
                else:
                    model.interrupt = True

    class Interrupted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = mlp()
            self.interrupt = False

        def forward(self, x):
            if self.interrupt:
                self.interrupt = False
                signal.raise_signal(signal.SIGINT)
            return self.inside(x)

    pressed = []
    model = Interrupted()
    run = trainer(model, directory, callbacks=[Press()])
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert 3 <= dpsgd.load_run(directory).rounds_charged
    assert run.fit().finished
    assert dpsgd.load_run(directory).resumes == 1


def test_double_after_the_start_is_noticed(directory):
    class Double(Callback):
        def on_epoch(self, trainer, measured):
            trainer.model.double()

    model = mlp()
    run = trainer(model, directory, callbacks=[Double()])
    with pytest.raises(Refused, match="was changed after training began"):
        run.fit()
    model.float()
    run.callbacks.clear()
    assert run.fit().finished


class Tied(nn.Module):
    """Frozen, tied and buffered."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.out = nn.Linear(6, 2)
        self.out.bias.requires_grad_(False)
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x * self.scale)))))


def test_frozen_and_tied_parameters_and_buffers_keep_their_places(directory):
    model = Tied()
    bias, weight = model.out.bias.clone(), model.first.weight.clone()
    result = trainer(model, directory).fit()
    assert torch.equal(model.out.bias, bias) and not torch.equal(model.first.weight, weight)
    assert model.second.weight is model.first.weight
    saved = dpsgd.load_run(result.directory).state_dict()
    assert set(saved) == set(model.state_dict())
    other = Tied()
    other.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


def test_loss_must_be_a_mean(directory):
    with pytest.raises(Refused, match="must give the mean"):
        trainer(mlp(), directory, loss=lambda out, y: F.cross_entropy(out, y, reduction="none")).fit()


def test_a_model_of_another_size_than_the_mechanism_is_refused(directory):
    x, y = data()
    run = Mechanism.subsample(samples=N + 1, groups=8, rounds=60, sigma=1.0)
    with pytest.raises(ValueError, match="the data has 64 samples, the mechanism says 65"):
        Trainer(mlp(), F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1, directory=directory, progress=False).fit()
    assert not directory.exists()
    with pytest.raises(ValueError, match="has no noise yet"):
        Trainer(mlp(), F.cross_entropy, x, y, mechanism=Mechanism.subsample(samples=N, groups=8, rounds=60), clip=1, lr=1)


def test_the_training_set_is_no_test_set(directory):
    x, y = data()
    with pytest.raises(ValueError, match="same samples as the training set"):
        trainer(mlp(), directory, test=(x.clone(), y))
    dataset = torch.utils.data.TensorDataset(x, y)
    with pytest.raises(ValueError, match="same samples as the training set"):
        trainer(mlp(), directory, x=dataset, test=(dataset, None))


def test_test_samples_that_were_trained_on(directory):
    x, y = data()
    other, labels = data(seed=1)
    mixed = lambda share: (torch.cat([x[:share], other[share:]]), torch.cat([y[:share], labels[share:]]))
    for test in [(x.roll(5, 0), y.roll(5)), (torch.cat([x, other[:1]]), torch.cat([y, labels[:1]])), mixed(N // 3)]:
        with pytest.raises(ValueError, match="same samples as the training set"):
            trainer(mlp(), directory, test=test)
    dataset = torch.utils.data.TensorDataset
    with pytest.raises(ValueError, match="same samples as the training set"):
        trainer(mlp(), directory, x=dataset(x, y), test=(dataset(x.roll(5, 0), y.roll(5)), None))
    with pytest.warns(UserWarning, match="1 of 64 test samples also occur"):
        trainer(mlp(), directory, test=mixed(1))
    # Rows that repeat themselves everywhere are no copy.
    few = x[:4].repeat(16, 1), y[:4].repeat(16)
    with pytest.warns(UserWarning, match="also occur"):
        trainer(mlp(), directory, x=few[0], y=few[1], test=(few[0][:31], few[1][:31]))
    assert not directory.exists()


@pytest.mark.parametrize("sampler", ["shuffle", "poisson"])
def test_a_run_is_not_resumed_on_other_samples(directory, sampler):
    shuffle = Mechanism.shuffle(samples=N, groups=8, epochs=2, sigma=1.0)
    run = shuffle if sampler == "shuffle" else Mechanism.poisson(rate=0.25, groups=16, rounds=12, sigma=1.0)

    def make(x, y, **more):
        return Trainer(
            mlp(), F.cross_entropy, x, y, mechanism=run, clip=1.0, lr=0.1, directory=directory, seed=7, progress=False, **more
        )

    class Stop(Callback):
        def on_round(self, trainer, done):
            trainer.stop()

    x, y = data()
    assert not make(x, y, callbacks=[Stop()]).fit().finished
    charged = dpsgd.load_run(directory).rounds_charged
    changed = x.clone()
    changed[5, 2] += 1e-3
    swapped = y.clone()
    swapped[0] = 1 - swapped[0]
    for samples in [(changed, y), (x, swapped), (x.roll(1, 0), y.roll(1))]:
        with pytest.raises(ValueError, match="the data are not those the run was begun with"):
            make(*samples).fit(resume=True)
    assert dpsgd.load_run(directory).rounds_charged == charged
    assert make(x.clone(), y).fit(resume=True).finished


def test_an_exception_of_a_callback_stops_the_run_and_is_raised(directory):
    class Broken(Callback):
        def on_epoch(self, trainer, measured):
            raise LookupError("mine")

    run = trainer(mlp(), directory, callbacks=[Broken()])
    with pytest.raises(LookupError, match="mine"):
        run.fit()
    run.callbacks.clear()
    assert run.fit().finished
