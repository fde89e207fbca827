"""Draws test loss against training seconds from the JSON that `time_to_loss --json` wrote.

    scripts/bench loss_curves results/time_to_loss.json out.svg

The figure has one panel per data set with the median seed's curve of hogbatch and of each peer.
"""

import json
from pathlib import Path

from benchmarks.common import arguments
from benchmarks.common.figures import draw_loss_curves


def main() -> None:
    """Read the results and draw."""
    parser = arguments.parser("loss_curves", __doc__)
    parser.add_argument("results", type=Path, help="JSON file of time_to_loss")
    parser.add_argument("figure", type=Path, help="output file, .svg or .png")
    given = parser.parse_args()
    draw_loss_curves(json.loads(given.results.read_text(encoding="utf-8")), given.figure)


if __name__ == "__main__":
    main()
