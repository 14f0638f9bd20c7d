"""The attention of one run on one text: maps as arrays, losses, single heads, pictures, and the viewer in a cell.

    view = rostok.load("rostok-mini").attention("Tom had a red ball. One day he")
    view.maps                    # (layers, heads, T, T): row t is how token t shares its attention
    view.head(6, 4)              # counted from 1, as in all pictures and on the page
    view.find("he", "Tom")       # the heads, by how much "he" looks at "Tom"
    view                         # last in a cell: the page of `attend.py page`, without any request to anywhere

Every map was verified when it was made (capture.py).
"""

import html
from dataclasses import dataclass

import numpy as np

from rostok.attention.heads import maps
from rostok.attention.heads.capture import View
from rostok.attention.page import explorer
from rostok.errors import UserError
from rostok.notebook.show import Picture

HEIGHT = 900  # of the viewer in a cell, pixels


@dataclass(frozen=True)
class Head:
    """One head on one text. `layer` and `number` count from 1; `find` adds the weight that it looked for."""

    view: "Attention"
    layer: int
    number: int
    weight: float | None = None

    @property
    def map(self) -> np.ndarray:
        """(T, T) row t: how token t shares its attention among tokens 0 to t."""
        return self.view.maps[self.layer - 1, self.number - 1]

    def looks(self, query: str, key: str) -> float:
        """How much the last mention of the word `query` looks at the word `key` before it, 0 to 1."""
        at, keys = self.view._view.aim(query, key)
        return float(self.map[at, keys].sum())

    def plot(self, lang: str = "en") -> Picture:
        figure = maps.one_head(self.view._view, self.layer - 1, self.number - 1, lang)
        return Picture(figure, f"head {self.layer}.{self.number}")

    def __repr__(self) -> str:
        found = "" if self.weight is None else f", weight {self.weight:.3f}"
        return f"<head {self.layer}.{self.number} of {self.view._view.subject.name}{found}>"


class Attention:
    """All heads of a run on a text; `rostok.load(...).attention(text)` makes one."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def tokens(self) -> list[str]:
        """What each token spells; the first is ◆."""
        return self._view.pieces

    @property
    def maps(self) -> np.ndarray:
        """(layers, heads, T, T) in NumPy's order: head 6.4 is maps[5, 3]."""
        return self._view.maps

    @property
    def nats(self) -> np.ndarray:
        """(T,) the loss of each token given those before it; NaN for ◆, which is given."""
        return self._view.nats

    @property
    def logits(self) -> np.ndarray:
        """(T, V)."""
        return self._view.logits

    def head(self, layer: int, head: int) -> Head:
        """A head by its layer and number, both from 1. Raises UserError where there is none."""
        if type(layer) is not int or type(head) is not int:
            raise UserError(f"a head is two whole numbers, as head(6, 4). Got {layer!r}, {head!r}")
        self._view.subject.check_head(layer, head)
        return Head(self, layer, head)

    def find(self, query: str, key: str, top: int = 5) -> list[Head]:
        """The heads whose last mention of the word `query` looks most at the word `key` before it."""
        rows = self._view.find(query, key)[:top]
        return [Head(self, row["layer"] + 1, row["head"] + 1, row["weight"]) for row in rows]

    def plot(self, lang: str = "en") -> Picture:
        """All maps on one sheet: layers downwards, heads to the right."""
        return Picture(maps.sheet(self._view, lang), f"all maps of {self._view.subject.name}")

    def page(self) -> str:
        """The viewer as one HTML page; write it to a file to keep it."""
        subject = self._view.subject
        made = explorer.document(
            subject.weights, subject.config, self._view.ids, subject.tokenizer, run=subject.name
        )
        return explorer.page([made])

    def __repr__(self) -> str:
        layers, heads = self.maps.shape[:2]
        return (
            f"<attention of {self._view.subject.name}: {layers} x {heads} heads on {len(self.tokens)} tokens>"
        )

    def _repr_html_(self) -> str:
        """The page in a frame of its own: two of them in one notebook do not meet, and it may load nothing."""
        page = html.escape(self.page(), quote=True)
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #ccc"
        allowed = "allow-scripts allow-downloads"
        return f'<iframe title="attention" sandbox="{allowed}" style="{style}" srcdoc="{page}"></iframe>'
