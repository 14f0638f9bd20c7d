"""`rostok quickstart`: from nothing to two trained models, their table, a story and a picture of the losses.

    rostok quickstart                     minutes on two CPU cores; needs no network and no bash
    rostok quickstart tokens=200_000      the words go to both trainings

Each step is a command of its own, printed before it runs. Run it again: it goes on where it was.
"""

import subprocess
import sys
from collections.abc import Sequence

from rostok.errors import UserError

DATA, RUNS = "data/quickstart", ("checkpoints/quickstart-window", "checkpoints/quickstart")


def steps(words: Sequence[str]) -> list[list[str]]:
    """The commands, without `rostok` in front."""
    made = ["prepare", "--source", "stories", "--stories", "2500", "--vocab", "2048", "--out", DATA]
    sample = ["--prompt", "Once upon a time", "--tokens", "250", "--temperature", "0.3", "--top-p", "0.9"]
    return [
        made,
        ["train", "quickstart", *words],
        ["train", "quickstart-window", *words],
        ["compare", *RUNS, "--out", f"{RUNS[1]}/compare.md", "--force"],
        ["sample", RUNS[1], *sample, "--seed", "1"],
    ]


def quickstart(words: Sequence[str]) -> int:
    """Run the steps, one after the other. Raises UserError for a word that is not a setting."""
    if words and words[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    wrong = next((word for word in words if "=" not in word or word.startswith("-")), None)
    if wrong is not None:
        raise UserError(f"rostok quickstart takes settings such as tokens=200_000. Got {wrong!r}")
    for step in steps(words):
        print(f"\n$ rostok {subprocess.list2cmdline(step)}", flush=True)
        code = subprocess.run([sys.executable, "-m", "rostok", *step], check=False).returncode
        if code:
            return code
    print(f"\nlosses   {RUNS[1]}/loss.png\nnext     rostok sample quickstart --interactive")
    return 0
