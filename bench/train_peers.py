#!/usr/bin/env python3
"""Training throughput of the peers, samples/s, on the two networks of the paper, as JSON lines.

`bench/train` sets everything up and runs this beside `dpsgd bench`. Fixed random batches, no data loading; the step
is forward, backward, clip, noise, update. Repetitions of the methods are interleaved and the median
is printed, because the machine is shared: compare ratios taken in one run, never absolute figures of
different runs.
"""
import argparse, json, statistics, time, warnings
warnings.filterwarnings("ignore")
import torch, torch.nn as nn, torch.nn.functional as F

C, NOISE, LR = 1.0, 1.0, 0.05

def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (1, 28, 28)

def paper_cnn():
    conv = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*conv(3, 32), nn.AvgPool2d(2), *conv(32, 64), nn.AvgPool2d(2), *conv(64, 64), nn.AvgPool2d(2),
                         *conv(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), (3, 32, 32)

def plain(model, x, y, layout=None):
    if layout:
        model, x = model.to(memory_format=layout), x.to(memory_format=layout)
    opt = torch.optim.SGD(model.parameters(), lr=LR)
    def step():
        opt.zero_grad(); F.cross_entropy(model(x), y).backward(); opt.step()
    return step

def batch_clip(model, x, y):
    opt = torch.optim.SGD(model.parameters(), lr=LR)
    def step():
        opt.zero_grad(); F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), C)
        with torch.no_grad():
            for p in model.parameters(): p.grad += NOISE * C * torch.randn_like(p)
        opt.step()
    return step

def opacus_mode(mode):
    def make(model, x, y):
        from opacus.grad_sample.utils import wrap_model
        from opacus.optimizers import DPOptimizer
        g = wrap_model(model, grad_sample_mode=mode)
        opt = DPOptimizer(torch.optim.SGD(model.parameters(), lr=LR), noise_multiplier=NOISE, max_grad_norm=C,
                          expected_batch_size=len(y))
        def step():
            opt.zero_grad(); F.cross_entropy(g(x), y).backward(); opt.step()
        return step
    return make

def opacus_ghost(model, x, y):
    from opacus.grad_sample import GradSampleModuleFastGradientClipping as Ghost
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping as Opt
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping as Loss
    g = Ghost(model, max_grad_norm=C, use_ghost_clipping=True)
    opt = Opt(torch.optim.SGD(model.parameters(), lr=LR), noise_multiplier=NOISE, max_grad_norm=C, expected_batch_size=len(y))
    loss = Loss(g, opt, nn.CrossEntropyLoss())
    def step():
        opt.zero_grad(); loss(g(x), y).backward(); opt.step()
    return step

def vmap(model, x, y):
    from torch.func import functional_call, grad, vmap
    w = {k: v.detach().clone() for k, v in model.named_parameters()}
    per_sample = vmap(grad(lambda p, xi, yi: F.cross_entropy(functional_call(model, p, (xi[None],)), yi[None])), in_dims=(None, 0, 0))
    def step():
        g = per_sample(w, x, y)
        n = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
        f = (C / (n + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for k in w: w[k] = w[k] - LR / len(y) * (torch.einsum("b,b...->...", f, g[k]) + NOISE * C * torch.randn_like(w[k]))
    return step

METHODS = {"plain": plain, "plain_channels_last": lambda *a: plain(*a, layout=torch.channels_last), "batch_clip": batch_clip,
           "opacus_hooks": opacus_mode("hooks"), "opacus_ew": opacus_mode("ew"), "opacus_ghost": opacus_ghost, "vmap": vmap}
NETS = {"lenet5": lenet5, "paper_cnn": paper_cnn}

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--net", default=",".join(NETS)); a.add_argument("--batch", default="64,512")
    a.add_argument("--method", default=",".join(METHODS)); a.add_argument("--threads", type=int, default=2)
    a.add_argument("--reps", type=int, default=5); a.add_argument("--slice", type=float, default=0.5)
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    for net in a.net.split(","):
        for batch in map(int, a.batch.split(",")):
            steps, rates = {}, {}
            for m in a.method.split(","):
                torch.manual_seed(0); model, shape = NETS[net]()
                step = METHODS[m](model, torch.randn(batch, *shape), torch.randint(0, 10, (batch,)))
                step(); step(); steps[m], rates[m] = step, []
            for _ in range(a.reps):
                for m, step in steps.items():
                    n, t0 = 0, time.perf_counter()
                    while time.perf_counter() - t0 < a.slice or n < 2: step(); n += 1
                    rates[m].append(n * batch / (time.perf_counter() - t0))
            for m in steps:
                print(json.dumps({"net": net, "batch": batch, "threads": a.threads, "method": m,
                                  "samples_per_s": round(statistics.median(rates[m]), 1)}), flush=True)

if __name__ == "__main__":
    main()
