"""Draw the README's picture: who ran when, under static and under continuous batching."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

import servesim as ss
from servesim import plots

OUT = Path(__file__).parent.parent / "_static" / "readme.png"


def main() -> None:
    """Write the picture to `OUT`."""
    requests = ss.workload.poisson(n=12, rate=1.5, prompt=[128, 512], output=(20, 300), seed=5)
    policies = {
        "Static batching, groups of 4": ss.policies.Static(4),
        "Continuous batching, 4 places": ss.policies.Continuous(max_running=4),
    }
    _, axes = plt.subplots(2, figsize=(9, 7.2), sharex=True, layout="constrained")
    for ax, (title, policy) in zip(axes, policies.items(), strict=True):
        result = ss.simulate(requests, policy, record_steps=True)
        plots.timeline(result, ax)
        mean = result.ttft_ms.mean or 0.0
        ax.set_title(f"{title}: mean wait for the first token {mean / 1000:.1f} s", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.get_legend().set_visible(ax is axes[-1])
    axes[0].set_xlabel("")
    plt.savefig(OUT, dpi=100)


if __name__ == "__main__":
    main()
