"""``mode="threads"``: pieces of a batch on several threads give the bits of one thread, whatever model computes them."""

import signal
import threading
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dpsgd
import dpsgd.torch
from dpsgd import Mechanism, RoundFailed
from dpsgd.torch import Callback, Refused, Trainer
from dpsgd.torch.data import samples
from dpsgd.torch.rehearsal import may_meet, rehearse
from dpsgd.torch.rows import Rows
from dpsgd.torch.team import pieces
from torch import nn
from torch.nn import functional as F

N = 96


def data(n=N, shape=(6,)):
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, *shape, generator=draw)
    return x, (x.flatten(1)[:, 0] > 0).long()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def rows(model, mode, x=None, y=None, loss=F.cross_entropy, **options):
    if x is None:
        x, y = data()
    options = dict(chunk=8, randomness="error", threads=2) | options
    return Rows(model, loss, samples(x, y), mode=mode, **options)


def trainer(model, directory, *, loss=F.cross_entropy, groups=24, epochs=4, x=None, y=None, **more):
    if x is None:
        x, y = data()
    run = Mechanism.shuffle(samples=len(x), groups=groups, epochs=epochs, sigma=1.0)
    more = dict(mode="threads", chunk=4, threads=2, seed=7, progress=False) | more
    return Trainer(model, loss, x, y, mechanism=run, clip=1.0, lr=0.1, directory=directory, **more)


class Shared(nn.Module):
    """A layer that is used twice, tied, frozen and buffered parameters, and a parameter that is not used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.twice = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.twice.weight
        self.out = nn.Linear(6, 2)
        self.out.bias.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.full((6,), 0.5))

    def forward(self, x):
        return self.out(self.tied(torch.tanh(self.twice(torch.tanh(self.twice(x * self.scale))))))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        a = F.avg_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.out((a + self.second(a)).mean(dim=(2, 3)))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(10, 6)
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.norm(self.layer(self.embed(x))).mean(dim=1))


def words():
    return torch.randint(10, (N, 5), generator=torch.Generator().manual_seed(0)), data()[1]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("model", "given"), [(mlp, data), (Shared, data), (Images, lambda: data(shape=(1, 8, 8))), (Words, words)]
)
def test_rows_are_those_of_a_backward_pass_for_each_group(model, given, size):
    x, y = given()
    numbers = np.random.default_rng(0).permutation(N)[: 31 * size].astype(np.uint32)
    loop = rows(model(), "loop", x, y)
    expected, losses = loop.rows(numbers, size)
    found = {}
    for threads in (1, 2, 3):
        ours = rows(model(), "threads", x, y, threads=threads)
        rehearse(ours, size, None)
        assert ours.mode == "threads"
        found[threads] = ours.rows(numbers, size)
        for stretch, reference in zip(found[threads][0], expected, strict=True):
            assert stretch.shape == reference.shape and stretch.dtype == np.float32
            assert np.allclose(stretch, reference, rtol=1e-4, atol=1e-6)
        assert np.allclose(found[threads][1], losses, rtol=1e-5)
    for threads in (2, 3):
        assert all(np.array_equal(a, b) for a, b in zip(found[1][0], found[threads][0]))
        assert np.array_equal(found[1][1], found[threads][1])


def test_the_samples_of_other_groups_change_nothing():
    class BatchMean(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = mlp()

        def forward(self, x):
            return self.inside(x - x.mean(dim=0, keepdim=True) + 1.0)

    x, y = data()
    ours = rows(BatchMean(), "threads", x, y)
    rehearse(ours, 2, None)
    numbers = np.arange(64, dtype=np.uint32)
    first, _ = ours.rows(numbers, 2)
    x[4:] *= 5.0
    again, _ = ours.rows(numbers, 2)
    for a, b in zip(first, again):
        assert np.allclose(a[:2], b[:2], rtol=1e-4, atol=1e-6) and not np.allclose(a[2:], b[2:])


def test_pieces_are_cut_by_the_groups_alone():
    assert [len(part) for part in pieces(512, 1, 32)] == [32] * 16
    assert [len(part) for part in pieces(100, 1, 32)] == [25] * 4
    # A small batch is halved if that is worth it.
    assert [len(part) for part in pieces(20, 1, 32)] == [10, 10]
    assert [len(part) for part in pieces(9, 1, 32)] == [9]
    assert [len(part) for part in pieces(3, 40, 1)] == [1, 1, 1]
    for groups in range(1, 200):
        for most in (1, 7, 32):
            parts = pieces(groups, 1, most)
            assert [number for part in parts for number in part] == list(range(groups))
            assert 0 < min(map(len, parts)) and max(map(len, parts)) <= most


def test_a_round_with_work_for_all_threads_is_shared_among_them(directory):
    torch.manual_seed(0)
    x, y = data(1200, (1, 8, 8))
    auto = dict(mode="auto", chunk=None, seed=None)
    large = trainer(Images(), directory, x=x, y=y, groups=400, epochs=1, **auto)
    assert large.fit().finished and large.mode in ("threads", "loop") and large.chunk <= 128
    small = trainer(Images(), None, x=x, y=y, groups=4, **auto)
    small.rehearse()
    assert small.mode in ("vmap", "loop")


def test_threads_of_pytorch_are_what_they_were():
    before = torch.get_num_threads()
    ours = rows(mlp(), "threads")
    for numbers in (np.arange(40, dtype=np.uint32), np.arange(3, dtype=np.uint32)):
        ours.rows(numbers, 1)
        assert torch.get_num_threads() == before
    # Also when nobody takes the rest.
    blocks = ours.blocks(np.arange(N, dtype=np.uint32), 1)
    next(blocks)
    blocks.close()
    assert torch.get_num_threads() == before


def test_no_operation_of_a_piece_is_split():
    asked = set()

    def loss(out, target):
        asked.add((threading.get_ident(), torch.get_num_threads()))
        return F.cross_entropy(out, target)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        ours = rows(Images(), "threads", *data(shape=(1, 8, 8)), loss=loss)
        rehearse(ours, 1, None)
        for _ in range(3):
            asked.clear()
            ours.rows(np.arange(N, dtype=np.uint32), 1)
            assert {count for _, count in asked} == {1}
        assert threading.get_ident() not in {thread for thread, _ in asked}
    finally:
        torch.set_num_threads(before)


class Uncopyable(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = mlp()
        self.lock = threading.Lock()

    def forward(self, x):
        return self.inside(x)


class Closure(nn.Module):
    """Its copy computes with the layers of the original, whose weights nobody sets."""

    def __init__(self):
        super().__init__()
        self.inside = mlp()
        inside = self.inside
        self.act = lambda x: inside(x)

    def forward(self, x):
        return self.act(x)


@pytest.mark.parametrize("model", [Uncopyable, Closure])
def test_a_module_that_cannot_be_copied_is_trained_without_threads(directory, model):
    with pytest.raises(Refused, match="copy|copied|cannot be differentiated"):
        trainer(model(), directory).fit()
    assert not directory.exists()
    auto = trainer(model(), directory, mode="auto", chunk=None)
    assert auto.fit().finished and auto.mode in ("vmap", "loop")


def test_what_a_hook_keeps_for_the_loss_is_not_shared_by_threads(directory):
    kept = {}

    def keep(layer, inputs, output):
        kept["hidden"] = output

    def loss(out, target):
        return F.cross_entropy(out, target) + 0.01 * kept["hidden"].square().mean()

    model = mlp()
    model[0].register_forward_hook(keep)
    run = trainer(model, directory, loss=loss, mode="auto", chunk=None, groups=96)
    assert run.fit().finished and run.mode in ("vmap", "loop")


def test_what_a_loss_may_change_is_found_by_what_it_refers_to():
    weights, settings, module = torch.tensor([1.0, 2.0]), {"smoothing": 0.1}, nn.CrossEntropyLoss()

    class Remembers(nn.CrossEntropyLoss):
        pass

    def helper(out, target):
        return module(out, target) * settings["smoothing"]

    harmless = [
        F.cross_entropy,
        module,
        partial(F.cross_entropy, weight=weights, label_smoothing=0.1),
        lambda out, target: F.cross_entropy(out, target, weight=weights),
        lambda out, target: module(out, target),
    ]
    for loss in harmless:
        assert not may_meet(mlp(), loss)
    for loss in (Remembers(), helper, lambda out, target: helper(out, target), partial(helper), [].append):
        assert may_meet(mlp(), loss)
    # A layer of the module with a hook of its own is copied, and the hook's object with it.
    hooked = mlp()
    hooked[0].register_forward_hook(lambda layer, inputs, output: settings.update(last=output))
    assert may_meet(hooked, F.cross_entropy)


def test_layers_that_draw_at_random_are_not_for_threads(directory):
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    with pytest.raises(Refused, match="do not draw at random"):
        trainer(model, directory, randomness="different").fit()
    auto = trainer(model, directory, randomness="different", mode="auto")
    assert auto.fit().finished and auto.mode in ("vmap", "loop")


def test_an_exception_in_a_thread_spends_the_round(directory):
    armed = []

    def loss(out, target):
        if armed:
            raise ZeroDivisionError("sample of Alice")
        return F.cross_entropy(out, target)

    class Arm(Callback):
        def on_round(self, trainer, done):
            if done == 2:
                armed.append(done)

    run = trainer(mlp(), directory, loss=loss, callbacks=[Arm()])
    before = torch.get_num_threads()
    with pytest.raises(RoundFailed, match="round 2 is spent without an update") as caught:
        run.fit()
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and torch.get_num_threads() == before
    armed.clear()
    run.callbacks.clear()
    assert run.fit().finished


def test_ctrl_c_while_threads_compute(directory):
    armed = {}

    def loss(out, target):
        if armed.pop("now", False):
            signal.raise_signal(signal.SIGINT)
        return F.cross_entropy(out, target)

    class Press(Callback):
        def on_round(self, trainer, done):
            if done == 3:
                armed.setdefault("now", "begun" not in armed)
                armed["begun"] = True

    run = trainer(mlp(), directory, loss=loss, callbacks=[Press()])
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert 3 <= dpsgd.load_run(directory).rounds_charged
    assert run.fit().finished and dpsgd.load_run(directory).resumes == 1


def test_what_a_callback_changes_in_the_module_reaches_the_threads(directory):
    """Copies are made again for every round."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = mlp()
            self.factor = 1.0

        def forward(self, x):
            return self.factor * self.inside(x)

    class Change(Callback):
        def on_round(self, trainer, done):
            trainer.model.factor = 0.5 if done >= 4 else 1.0

    found = []
    for number, mode in enumerate(("vmap", "threads")):
        model = Scaled()
        trainer(model, directory.with_name(str(number)), mode=mode, callbacks=[Change()]).fit()
        found.append(torch.cat([p.detach().ravel() for p in model.parameters()]))
    assert torch.allclose(*found, atol=2e-6)


def test_parameters_are_not_copied():
    model = Shared()
    ours = rows(model, "threads")
    for replica in ours.team.replicas():
        for (name, mine), (other, theirs) in zip(model.named_parameters(), replica.named_parameters(), strict=True):
            assert name == other and mine is theirs
        assert replica.scale is model.scale and replica.twice is not model.twice
