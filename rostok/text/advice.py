"""What fits a text: the training that suits its size, and a prompt in its own words. For `next` lines and --check.

    training_for(data)        # ["quickstart", "name=tales", "data.path=data/tales", "tokens=400_000"]
    hint_for(data)            # a sentence where trained weights would be the better beginning, or ""
    prompt_for(data)          # "Once upon a time"

Rules of thumb, each from a measurement: docs/tutorial.md and docs/training.md.
"""

import itertools
import re
import shlex
from pathlib import Path

from rostok.errors import UserError
from rostok.front import find_run
from rostok.text.shards import Data
from rostok.text.tokenizer import Tokenizer, load_tokenizer

SHIPPED = "rostok-mini"
# The smallest number of training tokens for a config, and how many tokens it trains on by itself.
CONFIGS = {
    "quickstart": (0, 1_500_000),
    "rostok-mini": (3_000_000, 10_000_000),
    "rostok": (100_000_000, 6_000_000),
}
EPOCHS = 4  # more passes over a text bring little and are learned by heart
READS_WELL = (
    2.2  # bytes per token of the shipped tokenizer: English has 2.4 to 4, program text 1.7, Russian 1.0
)


def training_for(data: Data) -> list[str]:
    """The words behind train.py that suit this data: trained weights where its tokenizer is theirs."""
    tokens = data.split("train").tokens
    where = [f"name={data.folder.resolve().name}", f"data.path={data.folder}"]
    shipped = shipped_tokenizer()
    if shipped and shipped.sha256 == data.tokenizer_sha256:
        rates = ["optim.lr=1.5e-3", "optim.muon_lr=5e-3", "eval_every=25", "early_stop=4"]
        return [
            SHIPPED,
            f"init_from={SHIPPED}",
            *where,
            f"tokens={rounded(min(2 * tokens, 2_000_000))}",
            *rates,
        ]
    config, most = [(name, most) for name, (least, most) in CONFIGS.items() if tokens >= least][-1]
    few = [] if EPOCHS * tokens >= most else [f"tokens={rounded(EPOCHS * tokens)}", "early_stop=4"]
    return [config, *where, *few]


def rounded(tokens: int) -> str:
    """Two digits of a number of tokens, at least 50,000.

    >>> rounded(1_234_567), rounded(3000)
    ('1_200_000', '50_000')
    """
    unit = 10 ** max(0, len(str(tokens)) - 2)
    return f"{max(50_000, tokens // unit * unit):_}"


def hint_for(data: Data) -> str:
    """Where the shipped model reads a small text well, its weights are the better beginning: the words that say so."""
    shipped = shipped_tokenizer()
    if not shipped or shipped.sha256 == data.tokenizer_sha256 or data.split("train").tokens > 10_000_000:
        return ""
    text = sample(data, 20_000)
    each = len(text.encode()) / max(1, len(shipped.encode(text)))
    if each < READS_WELL:
        return ""
    return (
        f"--tokenizer {SHIPPED} reads this text too ({each:.1f} bytes per token); then begin with its weights"
    )


def prompt_for(data: Data) -> str:
    """The first words of a held-out text, the first that are plain enough to be typed between quotes; or nothing."""
    tokenizer, valid = load_tokenizer(data.folder), data.split("valid")
    for i in range(min(len(valid), 20)):
        words = tokenizer.decode(valid.text(i)[1:60].tolist()).split()[:4]
        if len(words) == 4 and re.fullmatch(r"[\w ,.:;’'—-]{8,60}", " ".join(words)):
            return " ".join(words)
    return ""


def quoted(prompt: str) -> str:
    """`--prompt "..."` in double quotes, which cmd.exe knows too; nothing for an empty prompt."""
    return f' --prompt "{prompt}"' if prompt else ""


def typed_out(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def shipped_tokenizer() -> Tokenizer | None:
    try:
        return load_tokenizer(find_run(Path(SHIPPED)))
    except UserError:
        return None


def sample(data: Data, tokens: int) -> str:
    """The beginning of the training text, decoded."""
    split, tokenizer = data.split("train"), load_tokenizer(data.folder)
    texts = (split.text(i)[1:tokens].tolist() for i in range(min(len(split), 1000)))
    ids = list(itertools.islice(itertools.chain.from_iterable(texts), tokens))
    return tokenizer.decode(ids)
