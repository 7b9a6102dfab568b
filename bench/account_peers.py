#!/usr/bin/env python3
"""What other accountants answer and the CPU seconds they take, as JSON lines (Poisson sampling, add/remove).

Every peer is called once per setting before the clock starts, so that imports and caches are not in
the time; the median of three calls is printed.
"""
import json
import statistics
import time
import warnings

import dp_accounting
from prv_accountant.dpsgd import DPSGDAccountant

warnings.filterwarnings("ignore")

DELTA = 1e-5
REPETITIONS = 3

# The golden settings of account.rs: rate, noise multiplier, rounds.
SETTINGS = {
    "A": (256 / 60000, 1.0, 23437),
    "C": (1e-3, 1.0, 100000),
    "E": (0.01, 1.0, 1000),
    "G": (0.05, 2.0, 500),
    "K": (0.02, 0.7, 300),
}


def composed(accountant, rate, multiplier, rounds):
    round_event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return accountant.compose(round_event, rounds).get_epsilon(DELTA)


def dp_accounting_pld(*setting):
    """An upper bound, from a pessimistic grid of its default width."""
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    return {"upper": composed(accountant, *setting)}


def dp_accounting_rdp(*setting):
    """An upper bound, not tight."""
    return {"upper": composed(dp_accounting.rdp.RdpAccountant(), *setting)}


def prv_accountant(rate, multiplier, rounds):
    """Lower and upper bound; the error of 0.1 in ε is the one its own documentation uses."""
    accountant = DPSGDAccountant(
        noise_multiplier=multiplier,
        sampling_probability=rate,
        max_steps=rounds,
        eps_error=0.1,
        delta_error=DELTA / 1000,
    )
    lower, _, upper = accountant.compute_epsilon(delta=DELTA, num_steps=rounds)
    return {"lower": float(lower), "upper": float(upper)}


def main():
    for peer in (dp_accounting_pld, dp_accounting_rdp, prv_accountant):
        for name, setting in SETTINGS.items():
            epsilon = peer(*setting)
            times = []
            for _ in range(REPETITIONS):
                start = time.process_time()
                peer(*setting)
                times.append(time.process_time() - start)
            line = {"part": "peer", "peer": peer.__name__, "setting": name, "delta": DELTA}
            line |= {"epsilon": epsilon, "cpu_s": statistics.median(times)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
