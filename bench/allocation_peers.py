"""CPU seconds of ε(δ) by PLD_accounting, the other accountant of random allocation, as JSON lines.

Asks for upper and lower bounds of ε that are 1 % apart (ours are 1e-8 apart). A setting that takes longer
than the limit is ended and printed with the limit as a lower bound of its time.
"""

import json
import resource
import subprocess
import sys

DELTA = 1e-5
# CPU seconds.
LIMIT = 600

# B, E, z and about ε, of which the width is 1 %.
SETTINGS = [
    (16, 1, 1.0, 1.9),
    (234, 1, 1.0, 0.3475),
    (234, 10, 1.0, 1.0475),
    (234, 100, 1.0, 3.688),
    (1000, 1, 2.0, 0.05),
]

ONE = """
import json, resource, sys
from PLD_accounting import gaussian_allocation_epsilon_range
rounds, epochs, z, delta, width = json.loads(sys.argv[1])
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_utime
begin = used()
answer = gaussian_allocation_epsilon_range(
    delta=delta, sigma=z, num_steps=rounds, num_epochs=epochs, epsilon_accuracy=width
)
print(json.dumps([used() - begin, repr(answer)]))
"""


def limited():
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))


for rounds, epochs, z, epsilon in SETTINGS:
    line = {"part": "allocation-peer", "tool": "PLD_accounting", "B": rounds, "E": epochs, "z": z}
    asked = json.dumps([rounds, epochs, z, DELTA, 0.01 * epsilon])
    command = [sys.executable, "-c", ONE, asked]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    if done.returncode == 0:
        line["cpu_s"], line["answer"] = json.loads(done.stdout.splitlines()[-1])
    else:
        line["above_s"], line["error"] = LIMIT, done.stderr.strip().splitlines()[-1:]
    print(json.dumps(line), flush=True)
