"""Children's stories without a download: a seeded story grammar with a world state.

    python -m rostok.stories --count 3 --seed 0                        print three stories
    python -m rostok.stories --measure --count 50000 --reference FILE  measure them beside a file of real stories

How a story is made:

    1. cast       people (gender, kind, name or invented name), things, places and food are drawn from rostok/words/*.txt
    2. plot       one of PLOTS, a short function, moves the world on (who holds what, where a thing lies) and tells each step
    3. sentences  `tell` draws a frame of the step from frames.txt or plots.txt and fills it from the cast; `say` makes dialogue
    4. polish     a/an and capital letters, once over the finished text

Story i is a pure function of (seed, i), on every platform. Every story plants a thing, a name or a word and comes back to it
sentences later (`Story.planted`), so that a model has something to look back for. Left out: tenses other than the past,
any knowledge of the world beyond one story, and any claim that these are good literature.
"""

import argparse
import gzip
import math
import random
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from rostok.errors import UserError, run_main

Frame = tuple[Any, ...]  # of str (as it stands), list (draw one Frame), (role, form) (look it up in the cast)
Forms = dict[str, Any]  # form -> str, or a list of str to draw from

ROLES = {
    **{"h": "hero", "f": "friend", "e": "elder of the hero's family", "k": "grown-up helper", "c": "a nameless creature"},
    **{"x": "who acts in this frame", "y": "whom x turns to", "t": "the thing", "u": "another thing", "v": "a third thing"},
    **{"p": "the place", "q": "another place", "z": "where the hero lives", "w": "weather", "o": "food", "n": "an invented name or a word"},
    **{"b": "what the plot is about", "i": "a detail of it", "r": "a whole clause"},
    **{"m1": "first landmark", "m2": "second landmark", "m3": "third landmark"},
}


# ---- word lists ------------------------------------------------------------------------------------------------------


def read_sections(name: str) -> dict[str, list[str]]:
    """The lines of rostok/words/NAME.txt under their @section heads, without comments and blank lines."""
    sections: dict[str, list[str]] = {}
    text = resources.files("rostok").joinpath("words", f"{name}.txt").read_text(encoding="ascii")
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("@"):
            lines = sections[line[1:]] = []
        elif not line.startswith("#"):
            lines.append(line)
    return sections


def split_items(lines: list[str]) -> list[str]:
    """["red, blue,", "green"] -> ["red", "blue", "green"]."""
    return [item.strip() for item in ",".join(lines).split(",") if item.strip()]


def split_rows(lines: list[str]) -> list[list[str]]:
    """["fox | foxes"] -> [["fox", "foxes"]]."""
    return [[cell.strip() for cell in line.split("|")] for line in lines]


class Words:
    """All word lists: `items` (words), `tables` (rows of cells) and `frames` (compiled sentences), each by section name."""

    def __init__(self) -> None:
        self.items = {k: split_items(v) for name in ("lists", "names") for k, v in read_sections(name).items()}
        self.tables: dict[str, list[list[str]]] = {}
        for name in ("animals", "things", "places", "foods", "jobs", "relations", "troubles", "verbs"):
            self.tables |= {k: split_rows(v) for k, v in read_sections(name).items()}
        for section in read_sections("verbs"):
            columns = zip(*self.tables[section], strict=True)
            self.items |= dict(zip((section, section + ".past", section + ".ing"), map(list, columns), strict=True))
        self.items["beast"], self.items["beasts"] = ([row[i] for row in self.tables["animal"]] for i in (0, 1))
        self.items["fancy"] = [row[0] for row in self.tables["fancy"]]
        self.items["thing"], self.items["things"] = ([row[i] for row in self.tables["thing"]] for i in (0, 1))
        self.frames: dict[str, list[Frame]] = {}
        for name in self.items:
            self.frames[name] = []  # all lists exist before the first frame is compiled: they may name each other
        sentences = {k: v for name in ("frames", "plots") for k, v in read_sections(name).items()}
        for name, lines in [*self.items.items(), *sentences.items()]:
            self.frames.setdefault(name, []).extend(self.compile(line) for line in lines)
        self.troubles = [(row[0], *map(self.compile, row[1:])) for row in self.tables["trouble"]]

    def compile(self, text: str) -> Frame:
        """A frame's text as parts. "a [red|blue] {t}." -> ("a ", [("red",), ("blue",)], ("t", ""), ".")."""
        parts, end = self._parts(re.findall(r"[][|{}]|[^][|{}]+", text), 0, text)
        return tuple(parts)

    def _parts(self, tokens: list[str], i: int, text: str) -> tuple[list[Any], int]:
        parts: list[Any] = []
        while i < len(tokens) and tokens[i] not in "|]":
            if tokens[i] == "[":
                options: list[Frame] = []
                while tokens[i] != "]":
                    option, i = self._parts(tokens, i + 1, text)
                    options.append(tuple(option))
                parts.append(options)
            elif tokens[i] == "{":
                parts.append(self._slot(tokens[i + 1], text))
                i += 2
            else:
                parts.append(tokens[i])
            i += 1
        return parts, i

    def _slot(self, name: str, text: str) -> Any:
        role, _, form = name.partition(".")
        if role in ROLES:
            return role, form
        if name not in self.frames:
            raise ValueError(f"no role and no word list is named {name!r}, in the frame {text!r}")
        return self.frames[name]


@cache
def words() -> Words:
    """The word lists, read and compiled once."""
    return Words()


# ---- the world -------------------------------------------------------------------------------------------------------

PRONOUNS = {
    "girl": {"he": "she", "him": "her", "his": "her", "himself": "herself", "He": "She", "His": "Her"},
    "boy": {"he": "he", "him": "him", "his": "his", "himself": "himself", "He": "He", "His": "His"},
}


@dataclass(slots=True, eq=False)
class Being:
    """Somebody with a name to call, a gender and a kind ("fox", "girl", "baker")."""

    call: str
    gender: str
    kind: str
    forms: Forms


@dataclass(slots=True, eq=False)
class Place:
    """Somewhere with spots where a thing may lie; `sort` is wild, water, green, town or house."""

    name: str
    sort: str
    spots: list[str]
    forms: Forms


@dataclass(slots=True, eq=False)
class Thing:
    """Something that is with its holder, or lies at a place; `forms["where"]` is then the spot."""

    noun: str
    forms: Forms
    holder: Being | None = None
    place: Place | None = None


SPECIAL = frozenset(("s", "own", "own2", "spot", "where", "intro"))
ARTICLE = re.compile(r"\ban?\b")
QUOTED = re.compile(r"(.+?[.!?]) (.+)")
NEEDS_AN = re.compile(r"\b([Aa]) (?=(?!uni|use|usu|uku|eu|one|once)[aeiouAEIOU]|hour|honest)")
SENTENCE_START = re.compile(r'(?:^|\n|[.!?] |\." )"?[a-z]')


def polish(text: str) -> str:
    """a/an and capitals. "a egg fell. it broke." -> "An egg fell. It broke."."""
    text = NEEDS_AN.sub(r"\1n ", text)
    return SENTENCE_START.sub(lambda match: match[0].upper(), text)


class Story:
    """One story: its world, its cast (role -> forms) and the text told so far."""

    def __init__(self, seed: int, index: int, plot: str | None = None) -> None:
        self.random = random.Random(f"{seed}/{index}").random
        self.words = words()
        self.cast: dict[str, Forms] = {}
        self.text: list[str] = []
        self.seen: list[Forms] = []  # the beings that the sentence in work has named so far
        self.lone: Forms | None = None  # the one being of the last sentence: now a pronoun may stand for it
        self.used: set[int] = set()  # frames told already
        self.taken: set[str] = set()  # first letters, kinds and nouns that would be confused
        self.since_break = 0
        self.answering = False  # the last sentence was direct speech
        self.planted = ""
        self.place("z", "wild", "water", "green")
        self.weather(self.pick(("fair", "fair", "rain", "snow", "wind")))
        self.hero = self.somebody("h")
        self.friend = self.somebody("f")
        self.elder = self.relative("e")
        self.cast |= {"x": self.hero.forms, "y": self.friend.forms}
        self.food("o")
        self.plot = plot or self.pick(list(PLOTS))
        PLOTS[self.plot](self)

    def __str__(self) -> str:
        return polish("".join(self.text))

    # -- chance

    def pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def draw(self, section: str) -> str:
        """A filled item of a word list."""
        out: list[str] = []
        self.fill(self.pick(self.words.frames[section]), out)
        return "".join(out)

    def other(self, section: str) -> str:
        """A word of a list that this story has not taken yet."""
        while (word := self.pick(self.words.items[section])) in self.taken:
            pass
        self.taken.add(word)
        return word

    # -- cast

    def invented(self, gender: str) -> str:
        """A first name of our own making: "Zorbin"."""
        return "".join(self.pick(self.words.items[s]) for s in ("onset", "vowel", "coda", "tail." + gender))

    def name(self, gender: str, share_invented: float) -> tuple[str, str]:
        """(what one is called, the full name), with a first letter that no one else in the story has."""
        while True:
            if made := self.chance(share_invented):
                call = self.invented(gender)
            else:
                call = self.pick(self.words.items[gender])
            if call[0] not in self.taken:
                self.taken.add(call[0])
                last = self.pick(self.words.items["onset"]) + self.pick(self.words.items["tail.last"])
                return call, f"{call} {last}" if made and self.chance(0.7) else call

    def somebody(self, role: str) -> Being:
        """A child, an animal or a being of fancy."""
        gender, kind = self.pick(("girl", "boy")), self.random()
        if kind < 0.5:
            call, full = self.name(gender, 0.15)
            noun, moved, home, eats = gender, self.draw("go.past"), f"a {self.draw('size')} house", self.pick(self.words.tables["food"])[0]
        else:
            row = self.pick(self.words.tables["animal" if kind < 0.85 else "fancy"])
            call, full = self.name(gender, 0.6)
            noun, moved, home, eats = row[0], row[3], "a " + row[4], row[5]
        known = noun in self.taken or noun == gender
        self.taken.add(noun)
        who = [call] if known else [call, call, call, full, f"the {noun}"]
        forms = {
            **PRONOUNS[gender],
            **{"": who, "s": who, "call": call, "full": full, "kind": noun, "home": home, "eats": eats},
            **{"moved": moved, "a": f"a {self.draw('trait')} {self.pick(('', 'little ', 'young '))}{noun}"},
            "tint": self.draw("tint" if noun == gender else "tint.animal"),
        }
        self.cast[role] = forms
        return Being(call, gender, noun, forms)

    def relative(self, role: str) -> Being:
        """An elder of the hero's family."""
        kind, call, gender = self.pick(self.words.tables["relation"])
        who = [call, call, f"{self.hero.call}'s {kind}"]
        forms = {**PRONOUNS[gender], "": who, "s": who, "call": call, "full": call, "kind": kind}
        self.cast[role] = forms
        return Being(call, gender, kind, forms)

    def grownup(self, role: str = "k") -> Being:
        """A helper with a trade."""
        job, busy = self.pick(self.words.tables["job"])
        gender = self.pick(("girl", "boy"))
        call = f"{'Mrs.' if gender == 'girl' else 'Mr.'} {self.pick(self.words.items['family'])}"
        intro = [f"{call} the {job}", f"a {self.draw('elderkind')} {job} named {call}"]
        who = [call, f"the {job}"]
        forms = {**PRONOUNS[gender], "": who, "s": who, "call": call, "full": call, "kind": job, "busy": busy}
        self.cast[role] = forms | {"intro": intro}
        return Being(call, gender, job, self.cast[role])

    def place(self, role: str, *sorts: str) -> Place:
        """A place of one of these sorts, not yet in the story."""
        while True:
            name, preposition, sort, spots = self.pick(self.words.tables["place"])
            if sort in sorts and name not in self.taken:
                break
        self.taken.add(name)
        where = sorted(spots.split("; "), key=lambda _: self.random())
        forms = {"": f"the {name}", "at": f"{preposition} the {name}", "to": f"to the {name}", "spots": where}
        self.cast[role] = forms
        return Place(name, sort, where, forms)

    def thing(self, role: str, *sorts: str) -> Thing:
        """A thing, of one of these sorts if any is given, with a look of its own."""
        while True:
            noun, _, sort, use, used = self.pick(self.words.tables["thing"])
            if (not sorts or sort in sorts) and noun not in self.taken:
                break
        self.taken.add(noun)
        look = self.pick(("colour", "look." + sort, "age"))
        long = f"{self.draw(look)} {noun}"
        if look != "age" and self.chance(0.4):
            long = f"{self.draw('age')} {long}"
        forms = {"": noun, "a": f"a {long}", "the": [f"the {noun}", f"the {noun}", f"the {long}"], "use": use, "used": used}
        self.cast[role] = forms
        return Thing(noun, forms)

    def weather(self, kind: str) -> None:
        self.season = kind
        self.cast["w"] = {"": self.words.items["weather." + kind], "day": self.words.items["day." + kind]}

    def food(self, role: str) -> None:
        name, some = self.pick(self.words.tables["food"])
        self.cast[role] = {"": name, "some": some}

    def creature(self, role: str = "c") -> str:
        """A nameless animal that is none of the cast."""
        noun = self.other("beast")
        self.cast[role] = {"": noun}
        return noun

    def spirit(self, role: str) -> Being:
        """A being of fancy without a name or a gender: "the genie"."""
        kind = self.draw("fancy")
        self.cast[role] = {"": kind}
        return Being(kind, "none", kind, {"": [f"the {kind}"], "he": "it", "his": "its", "him": "it"})

    def fix(self, **roles: str) -> None:
        """Give a role one wording for the whole story: fix(b="the dark")."""
        for role, text in roles.items():
            self.cast[role] = {"": text, "the": re.sub("^an? ", "the ", text)}

    # -- the world moves on

    def give(self, thing: Thing, holder: Being) -> None:
        thing.holder, thing.place = holder, None

    def lay(self, thing: Thing, place: Place) -> None:
        """Nobody holds the thing any longer: it lies at one spot of the place, and stays there."""
        thing.holder, thing.place = None, place
        thing.forms["where"] = place.spots.pop()

    # -- telling

    def fill(self, frame: Frame, out: list[str]) -> None:
        """Append the frame's text: draw its choices, look up its roles."""
        for part in frame:
            kind = type(part)
            if kind is str:
                out.append(part)
            elif kind is list:
                self.fill(part[int(self.random() * len(part))], out)
            else:
                forms = self.cast[part[0]]
                value = self.special(forms, part[1]) if part[1] in SPECIAL else forms[part[1]]
                if "he" in forms:
                    self.seen.append(forms)
                out.append(value if type(value) is str else value[int(self.random() * len(value))])

    def special(self, forms: Forms, form: str) -> Any:
        """The forms that depend on what has been told."""
        if form == "spot":  # each spot in turn, so that no place is searched twice
            forms["spots"].append(forms["spots"].pop(0))
            return forms["spots"][-1]
        if form == "where":  # "under a bench" at first, then "under the bench"
            where, forms["where"] = forms["where"], ARTICLE.sub("the", forms["where"], count=1)
            return where
        if form == "intro":  # introduced once, then known
            intro, forms["intro"] = forms["intro"], forms[""]
            return intro
        if forms is self.lone and self.random() < 0.7:
            return forms["he" if form == "s" else "his"]
        name = self.pick(forms[""])
        return name if form == "s" else name + "'s"

    def render(self, section: str, who: Being | None, to: Being | None) -> str:
        """A frame of the section that this story has not used yet, filled."""
        frames = self.words.frames[section]
        for _ in range(8):
            frame = self.pick(frames)
            if id(frame) not in self.used:
                break
        self.used.add(id(frame))
        return self.filled(frame, who or self.hero, to or self.friend)

    def filled(self, frame: Frame, who: Being, to: Being) -> str:
        """A compiled frame with x = who and y = to, as text."""
        self.cast["x"], self.cast["y"] = who.forms, to.forms
        out: list[str] = []
        self.fill(frame, out)
        return "".join(out)

    def gap(self, break_chance: float) -> None:
        """Append the space before the next sentence: a blank, or sometimes a line break."""
        self.seen = []
        if not self.text:
            return
        if self.since_break >= 2 and self.random() < break_chance:
            self.text.append("\n")
            self.since_break, self.lone = 0, None
        else:
            self.text.append(" ")
            self.since_break += 1

    def tell(self, section: str, who: Being | None = None, to: Being | None = None) -> None:
        """Add a sentence (or two) of the section; x is `who` (the hero), y is `to` (the friend)."""
        self.gap(0.16)
        sentence = self.render(section, who, to)
        self.text.append(sentence[0].upper() + sentence[1:])
        self.answering = False
        self.lone = self.seen[0] if self.seen and all(f is self.seen[0] for f in self.seen) else None

    def maybe(self, probability: float, section: str, who: Being | None = None, to: Being | None = None) -> None:
        if self.random() < probability:
            self.tell(section, who, to)

    def say(self, who: Being, section: str, to: Being, how: str = "neutrally") -> None:
        """Add direct speech by `who` to `to`; `how` is the list of the adverbs that fit the mood."""
        lone = self.lone
        self.gap(0.4)
        line = self.render(section, who, to)
        line = line[0].upper() + line[1:]
        named = who.forms["he"] if lone is who.forms and self.lone and self.chance(0.6) else self.pick(who.forms[""])
        quote = self.quote(line, named, how)
        self.text.append(quote[0].upper() + quote[1:])
        self.lone, self.answering = None, True

    def quote(self, line: str, who: str, how: str) -> str:
        """Quotation marks and one of four places for the words that say who speaks."""
        mode = self.random()
        match = QUOTED.fullmatch(line)
        first, rest = match.groups() if match else (line, "")
        loud = first[-1] == "!" and how in ("kindly", "sadly", "fearfully")  # nobody shouts gently
        adverb = " " + self.draw(how) if not loud and self.chance(0.3) else ""
        if mode < 0.12:
            return f'{who} {self.draw("beat")}. "{line}"'
        if mode < 0.3:
            return f'{who} {"asked" if first[-1] == "?" else "said"}{adverb}, "{line}"'
        if mode > 0.75:
            first, rest = line, ""
        mark = first[-1]
        verb = "said" if mark == "." and self.chance(0.4) else self.draw(f"{'answer' if self.answering and mark == '.' else 'call'}{mark}.past")
        inverted = who not in ("he", "she") and verb != "wanted to know" and self.chance(0.5)
        tag = f"{verb} {who}" if inverted else f"{who} {verb}"
        first = first[:-1] + "," if first[-1] == "." else first
        return f'"{first}" {tag}{adverb}.' + (f' "{rest}"' if rest else "")


# ---- plots -----------------------------------------------------------------------------------------------------------

OUTDOORS = ("wild", "water", "green")


def begin(s: Story, place: Place, friend: bool = True) -> None:
    """Who the hero is, and the friend (unless the plot brings them together), the day, a look around the place."""
    s.tell("open")
    s.maybe(0.25, "habit")
    if friend:
        s.tell("befriend")
    s.maybe(0.25, "scene")
    look_around(s, place, 0.2)


def look_around(s: Story, place: Place, probability: float) -> None:
    """What there is to see, hear and smell; outdoors, not when all lies under snow."""
    if place.sort == "house" or s.season != "snow":
        s.maybe(probability, "detail." + place.sort)


def finish(s: Story, other: Being, *sections: str) -> None:
    """The plot's own last words, and perhaps an ending that any story may have."""
    for section in sections:
        s.tell(section, s.hero, other)
    s.maybe(0.15, "meal", s.hero, other)
    s.maybe(0.6, "end", s.hero, other)


def thank(s: Story, who: Being, to: Being) -> None:
    s.say(who, "thanks", to, "happily")
    if s.chance(0.5):
        s.say(to, "welcome", who, "kindly")
    s.maybe(0.3, "embrace", who, to)


def plot_lost(s: Story) -> None:
    """A thing is left somewhere, missed, looked for in vain, and found where it was left."""
    place = s.place("p", *OUTDOORS, "town")
    s.place("q", "house")
    thing = s.thing("t")
    s.give(thing, s.hero)
    begin(s, place)
    s.tell("own")
    s.maybe(0.5, "travel")
    look_around(s, place, 0.3)
    s.lay(thing, place)
    s.tell("lost.lay")
    s.tell("lost.notice")
    s.maybe(0.6, "grieve")
    s.maybe(0.25, "interlude")
    if s.chance(0.5):
        s.say(s.friend, "ask_trouble", s.hero, "kindly")
    s.say(s.hero, "lost.say", s.friend, "sadly")
    if s.chance(0.5):
        s.say(s.friend, "offer_help", s.hero, "kindly")
    s.tell("lost.search", s.hero, s.friend)
    s.say(s.friend, "lost.hint", s.hero)
    s.tell("lost.found")
    s.give(thing, s.hero)
    s.maybe(0.6, "joy")
    thank(s, s.hero, s.friend)
    finish(s, s.friend, "lost.moral")
    s.planted = thing.noun


def plot_save(s: Story) -> None:
    """A thing that everyone laughs at is the one that helps."""
    place = s.place("p", *OUTDOORS, "town")
    s.place("q", "wild", "water")
    s.grownup()
    noun, trouble, deed = s.pick(s.words.troubles)
    s.fix(n=noun)
    begin(s, place)
    s.tell("save.gift")
    s.say(s.friend, "save.mock", s.hero, "crossly")
    s.tell("save.keep")
    s.maybe(0.25, "interlude")
    s.fix(r=s.filled(trouble, s.hero, s.friend))
    s.tell("save.trouble")
    if s.chance(0.6):
        s.say(s.friend, "please_help", s.hero, "fearfully")
    s.maybe(0.5, "ponder")
    s.tell("save.idea")
    s.fix(r=s.filled(deed, s.hero, s.friend))
    s.tell("save.deed")
    thank(s, s.friend, s.hero)
    s.maybe(0.4, "joy", s.friend)
    finish(s, s.friend, "save.moral")
    s.planted = noun


def plot_hurt(s: Story) -> None:
    """A hurt creature is nursed, named, set free, and comes back."""
    place = s.place("p", *OUTDOORS)
    s.creature()
    s.fix(i=s.draw("part"), n=s.invented(s.pick(("girl", "boy"))))
    begin(s, place)
    s.tell("hurt.find")
    s.tell("hurt.carry")
    s.tell("hurt.name")
    s.tell("hurt.care")
    s.maybe(0.6, "hurt.care")
    if s.chance(0.4):
        s.say(s.friend, "offer_help", s.hero, "kindly")
    s.tell("hurt.healed")
    s.maybe(0.5, "play")
    s.tell("hurt.free")
    s.maybe(0.5, "grieve")
    s.maybe(0.4, "embrace", s.elder, s.hero)
    s.tell("hurt.return")
    s.tell("joy")
    finish(s, s.friend)
    s.planted = s.cast["n"][""]


def plot_quarrel(s: Story) -> None:
    """Two pull at one thing until it breaks, and mend it together."""
    place = s.place("p", *OUTDOORS, "town")
    s.grownup()
    thing = s.thing("t", "toy", "music", "paper")
    begin(s, place)
    s.tell("quarrel.start")
    s.say(s.hero, "quarrel.say", s.friend, "crossly")
    s.say(s.friend, "quarrel.say", s.hero, "crossly")
    s.tell("quarrel.pull")
    s.maybe(0.25, "interlude")
    s.tell("quarrel.apart")
    s.tell("grieve")
    s.maybe(0.4, "ponder")
    s.say(s.hero, "quarrel.sorry", s.friend, "sadly")
    s.say(s.friend, "quarrel.sorry", s.hero, "sadly")
    s.maybe(0.5, "embrace")
    s.tell("quarrel.mend")
    s.maybe(0.5, "play")
    finish(s, s.friend, "quarrel.moral")
    s.planted = thing.noun


def plot_broken(s: Story) -> None:
    """A thing of the elder's breaks; the pieces are hidden, then brought out again with the truth."""
    place, hiding = s.place("p", "house"), s.place("q", "house", "green")
    thing = s.thing("t", "treasure", "music")
    s.give(thing, s.elder)
    begin(s, place)
    s.tell("broken.house")
    s.tell("broken.break")
    s.lay(thing, hiding)
    s.tell("broken.hide")
    s.say(s.elder, "broken.ask", s.hero)
    if s.chance(0.8):
        s.say(s.hero, "broken.lie", s.elder, "fearfully")
    s.tell("broken.guilt")
    s.maybe(0.6, "grieve")
    s.say(s.hero, "broken.confess", s.elder, "sadly")
    s.maybe(0.25, "interlude")
    s.say(s.elder, "broken.forgive", s.hero, "kindly")
    s.tell("embrace", s.elder, s.hero)
    s.tell("broken.mend")
    s.give(thing, s.elder)
    finish(s, s.elder)
    s.planted = thing.noun


def plot_fear(s: Story) -> None:
    """What the hero is afraid of lies between the hero and a friend in need."""
    place = s.place("p", *OUTDOORS)
    s.place("q", "wild", "water")
    thing = s.thing("t", "toy", "treasure", "wear")
    s.fix(b=s.draw("fear"))
    begin(s, place)
    s.tell("fear.of")
    s.maybe(0.7, "fear.laugh")
    s.tell("own")
    s.tell("fear.call")
    s.maybe(0.25, "interlude")
    if s.chance(0.5):
        s.say(s.friend, "please_help", s.hero, "fearfully")
    s.tell("fear.act")
    look_around(s, place, 0.3)
    s.tell("fear.saved")
    thank(s, s.friend, s.hero)
    s.maybe(0.4, "joy", s.friend)
    finish(s, s.friend, "fear.moral")
    s.planted = thing.noun


def plot_race(s: Story) -> None:
    """Practice beats boasting, and a helping hand beats both."""
    place = s.place("p", *OUTDOORS, "town")
    thing = s.thing("t")
    thing_holder = s.grownup()
    s.give(thing, thing_holder)
    s.fix(b=s.draw("contest"))
    begin(s, place)
    s.tell("race.notice")
    s.maybe(0.7, "race.boast")
    s.say(s.friend, "race.boast_say", s.hero, "crossly")
    s.maybe(0.4, "grieve")
    s.tell("race.train")
    s.maybe(0.5, "scene")
    s.tell("race.run")
    look_around(s, place, 0.4)
    s.tell("race.win")
    s.give(thing, s.hero)
    s.tell("joy")
    finish(s, s.friend, "race.moral")
    s.planted = thing.noun


def plot_present(s: Story) -> None:
    """A present made by hand, hidden until the day."""
    place = s.place("p", *OUTDOORS, "house")
    thing = s.thing("t", "toy", "wear", "paper", "treasure")
    begin(s, place)
    s.tell("present.day")
    s.maybe(0.5, "ponder")
    s.tell("present.plan")
    s.tell("present.fail")
    if s.chance(0.5):
        s.say(s.friend, "offer_help", s.hero, "kindly")
        s.say(s.hero, "thanks", s.friend, "happily")
    s.maybe(0.6, "present.fail")
    s.lay(thing, place)
    s.tell("present.hide")
    s.maybe(0.25, "interlude")
    s.tell("present.give")
    s.give(thing, s.elder)
    s.say(s.elder, "present.joy", s.hero, "happily")
    s.tell("embrace", s.elder, s.hero)
    s.maybe(0.5, "joy")
    finish(s, s.elder, "present.moral")
    s.planted = thing.noun


def plot_seed(s: Story) -> None:
    """A seed, much patience, and what came of it."""
    place = s.place("p", "green")
    s.grownup()
    s.fix(b=s.draw("crop"))
    s.weather("fair")
    begin(s, place)
    s.tell("seed.get")
    s.tell("seed.plant")
    s.tell("seed.wait")
    s.tell("seed.wait")
    look_around(s, place, 0.4)
    s.tell("seed.sprout")
    s.tell("seed.danger")
    s.maybe(0.6, "seed.danger")
    s.maybe(0.25, "interlude")
    s.tell("seed.fruit")
    s.tell("joy")
    s.tell("seed.share")
    s.say(s.friend, "thanks", s.hero, "happily")
    finish(s, s.friend)
    s.planted = "seed"


def plot_new(s: Story) -> None:
    """Somebody new is left alone until one goes over."""
    place = s.place("p", "green", "town")
    thing = s.thing("t", "toy", "music", "paper", "treasure")
    s.give(thing, s.friend)
    begin(s, place, friend=False)
    s.tell("new.arrive")
    s.tell("new.apart")
    s.maybe(0.6, "grieve", s.friend, s.hero)
    s.tell("new.dare")
    s.say(s.hero, "new.offer", s.friend, "kindly")
    s.tell("new.show")
    if s.chance(0.6):
        s.say(s.friend, "thanks", s.hero, "happily")
    s.tell("play")
    s.tell("new.all")
    s.maybe(0.6, "joy", s.friend, s.hero)
    s.maybe(0.4, "home")
    finish(s, s.friend)
    s.planted = thing.noun


def plot_wish(s: Story) -> None:
    """Too much of a good thing."""
    place = s.place("p", *OUTDOORS, "town")
    thing = s.thing("t", "treasure", "tool", "music")
    spirit = s.spirit("b")
    begin(s, place)
    s.tell("wish.find")
    s.give(thing, s.hero)
    s.say(spirit, "wish.offer", s.hero)
    s.maybe(0.6, "ponder")
    s.say(s.hero, "wish.make", s.friend, "happily")
    s.tell("wish.good")
    s.maybe(0.4, "joy")
    s.tell("wish.bad")
    s.maybe(0.5, "wish.bad")
    s.say(s.hero, "wish.undo", s.friend, "fearfully")
    s.lay(thing, place)
    s.tell("wish.end")
    s.maybe(0.5, "embrace", s.friend, s.hero)
    finish(s, s.friend, "wish.moral")
    s.planted = thing.noun


def plot_visit(s: Story) -> None:
    """A basket is to be delivered; who gets a bite on the way helps later."""
    place = s.place("p", *OUTDOORS)
    s.place("q", *OUTDOORS, "town")
    helper, thing = s.grownup(), s.thing("t", "tool", "wear", "paper")
    s.give(thing, s.hero)
    s.creature()
    begin(s, place)
    s.tell("visit.task")
    s.maybe(0.6, "travel")
    look_around(s, place, 0.5)
    s.tell("visit.beggar")
    s.maybe(0.25, "interlude")
    s.tell("visit.block")
    s.maybe(0.5, "grieve")
    s.tell("visit.repay")
    s.tell("visit.arrive")
    s.give(thing, helper)
    s.say(helper, "thanks", s.hero, "happily")
    s.maybe(0.5, "home")
    finish(s, helper, "visit.moral")
    s.planted = thing.noun


def plot_box(s: Story) -> None:
    """Guesses about a box, and what is in it."""
    place = s.place("p", *OUTDOORS, "house")
    s.place("q", "house", "town")
    s.grownup()
    thing = s.thing("t")
    s.fix(n=" ".join((s.invented("boy"), s.invented("last"))))
    begin(s, place)
    s.tell("box.find")
    s.say(s.hero, "box.guess", s.friend)
    s.say(s.friend, "box.guess", s.hero)
    s.tell("box.try")
    s.maybe(0.6, "ponder")
    s.maybe(0.25, "interlude")
    s.tell("box.key")
    s.tell("box.open")
    s.give(thing, s.hero)
    s.tell("joy")
    s.tell("box.note")
    finish(s, s.friend, "box.moral")
    s.planted = "box"


def plot_cook(s: Story) -> None:
    """Cooking goes wrong, and then right."""
    place = s.place("p", "house", "town")
    s.place("q", "green", "town")
    s.fix(i=s.draw("wrong"))
    begin(s, place)
    s.tell("cook.plan")
    s.tell("cook.mix")
    s.maybe(0.6, "cook.mix")
    s.tell("cook.mishap")
    s.tell("cook.taste")
    s.maybe(0.6, "grieve")
    s.tell("cook.fix")
    s.maybe(0.25, "interlude")
    s.tell("cook.done")
    thank(s, s.hero, s.elder)
    finish(s, s.friend, "cook.moral")
    s.planted = s.cast["o"][""]


def plot_way(s: Story) -> None:
    """Out past three landmarks, and home past the same three, the other way around."""
    place = s.place("p", "wild", "water")
    s.fix(m1=s.other("mark"), m2=s.other("mark"), m3=s.other("mark"))
    begin(s, place, friend=False)
    s.tell("way.out")
    look_around(s, place, 0.6)
    s.tell("way.lost")
    s.maybe(0.6, "grieve")
    s.tell("meet")
    s.say(s.friend, "way.ask", s.hero, "kindly")
    s.say(s.hero, "way.tell", s.friend)
    s.tell("way.back")
    s.maybe(0.25, "interlude")
    s.tell("way.home")
    thank(s, s.hero, s.friend)
    finish(s, s.friend, "way.moral")
    s.planted = s.cast["m1"][""]


def plot_build(s: Story) -> None:
    """The first one falls down, the second one stands."""
    place = s.place("p", *OUTDOORS)
    s.grownup()
    s.fix(b=s.draw("building"), n=" ".join((s.invented("girl"), s.invented("last"))))
    begin(s, place)
    s.tell("build.plan")
    look_around(s, place, 0.4)
    s.tell("build.first")
    s.tell("grieve")
    s.say(s.friend, "build.why", s.hero)
    s.tell("build.learn")
    s.maybe(0.5, "ponder")
    s.tell("build.second")
    s.tell("joy")
    s.tell("build.use")
    s.maybe(0.5, "play")
    finish(s, s.friend, "build.moral")
    s.planted = s.cast["b"][""]


def plot_trade(s: Story) -> None:
    """u for v, and v for t."""
    place = s.place("p", *OUTDOORS, "town")
    s.place("q", "town")
    helper, wanted, first, second = s.grownup(), s.thing("t"), s.thing("u"), s.thing("v")
    s.give(wanted, helper)
    s.give(first, s.hero)
    s.give(second, s.friend)
    begin(s, place, friend=False)
    s.tell("trade.want")
    s.maybe(0.5, "scene")
    s.tell("trade.first")
    s.give(first, s.friend)
    s.give(second, s.hero)
    s.tell("trade.second")
    s.maybe(0.25, "interlude")
    s.say(helper, "trade.ask", s.hero, "happily")
    s.say(s.hero, "agree", helper, "happily")
    s.tell("trade.done", s.hero, helper)
    s.give(second, helper)
    s.give(wanted, s.hero)
    s.tell("joy")
    s.maybe(0.5, "home")
    finish(s, s.friend, "trade.moral")
    s.planted = second.noun


def plot_noise(s: Story) -> None:
    """A noise at night, and who made it."""
    place = s.place("p", "house")
    thing = s.thing("t", "tool", "toy", "music")
    s.give(thing, s.hero)
    s.creature()
    s.fix(n=s.draw("sound"))
    begin(s, place)
    s.tell("own")
    s.maybe(0.5, "play")
    s.tell("noise.hear")
    s.say(s.friend, "noise.guess", s.hero, "fearfully")
    s.say(s.hero, "noise.guess", s.friend, "fearfully")
    s.maybe(0.25, "interlude")
    s.tell("noise.go")
    look_around(s, place, 0.5)
    s.tell("noise.find")
    s.tell("noise.end")
    s.maybe(0.6, "joy")
    finish(s, s.friend, "noise.moral")
    s.planted = thing.noun


def plot_hide(s: Story) -> None:
    """The best hiding place, and what gave it away."""
    place = s.place("p", *OUTDOORS, "house")
    s.grownup()
    thing = s.thing("t", "toy", "wear", "music")
    s.give(thing, s.hero)
    begin(s, place)
    s.maybe(0.6, "own")
    s.tell("hide.game")
    s.lay(thing, place)
    s.tell("hide.spot")
    s.tell("hide.seek")
    s.tell("hide.sleep")
    s.maybe(0.25, "interlude")
    s.tell("hide.worry")
    s.maybe(0.5, "grieve", s.friend, s.hero)
    s.tell("hide.clue")
    s.give(thing, s.hero)
    s.tell("hide.found")
    s.tell("embrace", s.elder, s.hero)
    s.maybe(0.5, "joy", s.friend, s.hero)
    finish(s, s.friend)
    s.planted = thing.noun


def plot_thief(s: Story) -> None:
    """The wrong one is blamed until the crumbs are followed."""
    place = s.place("p", "house", "green")
    s.place("q", "green", "wild")
    s.creature()
    begin(s, place)
    s.tell("thief.gone")
    s.say(s.hero, "thief.blame", s.friend, "crossly")
    s.say(s.friend, "thief.deny", s.hero, "sadly")
    s.tell("thief.hurt")
    s.maybe(0.25, "interlude")
    s.tell("thief.trail")
    s.tell("thief.real")
    s.tell("ponder")
    s.say(s.hero, "thief.sorry", s.friend, "sadly")
    s.maybe(0.6, "embrace")
    s.maybe(0.4, "play")
    finish(s, s.friend, "thief.moral")
    s.planted = s.cast["o"][""]


def plot_word(s: Story) -> None:
    """A word nobody understands opens a door much later."""
    place = s.place("p", *OUTDOORS)
    s.place("q", "wild", "water")
    s.grownup()
    thing = s.thing("t", "treasure", "music", "paper")
    s.fix(n=" ".join((s.invented("boy"), s.invented("last"))))
    begin(s, place)
    s.tell("word.old")
    s.tell("word.keep")
    s.maybe(0.4, "scene")
    s.tell("word.door")
    s.say(s.friend, "word.try", s.hero, "crossly")
    s.tell("word.stuck")
    s.maybe(0.25, "interlude")
    s.say(s.hero, "word.say", s.friend)
    s.tell("word.open")
    s.give(thing, s.hero)
    s.tell("joy")
    s.maybe(0.5, "home")
    finish(s, s.friend, "word.moral")
    s.planted = s.cast["n"][""]


def plot_learn(s: Story) -> None:
    """What helped was not the charm."""
    place = s.place("p", *OUTDOORS)
    thing = s.thing("t", "treasure", "wear", "paper")
    s.give(thing, s.friend)
    s.fix(b=s.draw("skill"))
    begin(s, place)
    s.tell("learn.want")
    s.tell("learn.fail")
    s.say(s.hero, "learn.quit", s.friend, "sadly")
    s.say(s.friend, "learn.teach", s.hero, "kindly")
    s.tell("learn.lend")
    s.give(thing, s.hero)
    s.tell("learn.again")
    s.maybe(0.5, "scene")
    s.tell("learn.can")
    s.tell("joy")
    thank(s, s.hero, s.friend)
    finish(s, s.friend, "learn.back")
    s.planted = thing.noun


PLOTS: dict[str, Callable[[Story], None]] = {
    name.removeprefix("plot_"): f for name, f in list(globals().items()) if name.startswith("plot_")
}


def generate_stories(count: int, seed: int = 0, start: int = 0) -> Iterator[str]:
    """Stories start .. start + count - 1 of this seed; story i is a function of (seed, i) alone."""
    for index in range(start, start + count):
        yield str(Story(seed, index))


# ---- measures --------------------------------------------------------------------------------------------------------


def measure(stories: Sequence[str]) -> dict[str, float]:
    """Length (words), variety (word forms, entropy in bits a word) and redundancy (gzip) of some texts."""
    text = "\n\n".join(stories)
    forms = Counter(re.findall(r"[a-z]+", text.lower()))
    plain = {w for w in re.findall(r"\b[a-z]+\b", text)}
    total = sum(forms.values())
    raw = text.encode()
    return {
        "stories": len(stories),
        "megabytes": len(raw) / 1e6,
        "equal stories": len(stories) - len(set(stories)),
        "median words": statistics.median(len(story.split()) for story in stories),
        "word forms": len(forms),
        "word forms seen in lower case": len(plain),
        "word entropy, bits": -sum(n / total * math.log2(n / total) for n in forms.values()),
        "gzip ratio": len(gzip.compress(raw, 6)) / len(raw),
    }


def report(count: int, seed: int, reference: Path | None) -> None:
    """Print the measures of `count` stories, and of as many bytes of the reference (texts end at <|endoftext|>)."""
    start = time.process_time()
    stories = list(generate_stories(count, seed))
    seconds = time.process_time() - start
    size = sum(map(len, stories))
    print(f"{size / seconds / 1e6:.2f} MB/s ({size / 1e6:.1f} MB, {seconds:.1f} s of one processor)")
    columns = {f"first {n} stories": measure(stories[:n]) for n in sorted({min(20000, count), count})}
    if reference:
        real = [text.strip() for text in reference.read_text(encoding="utf-8").split("<|endoftext|>")]
        size = min(size, sum(map(len, real)))
        columns[f"stories, {size / 1e6:.1f} MB"] = measure(first_bytes(stories, size))
        columns[f"reference, {size / 1e6:.1f} MB"] = measure(first_bytes(real, size))
    for title, figures in columns.items():
        print(title + ": " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))


def first_bytes(texts: list[str], size: int) -> list[str]:
    """The first texts, `size` characters of them at most."""
    kept, room = [], size
    for text in texts:
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    return kept


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m rostok.stories", description="Make or measure built-in stories.")
    parser.add_argument("--count", type=int, default=3, help="how many stories (3)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other stories (0)")
    parser.add_argument("--plot", choices=list(PLOTS), help="only stories of this plot")
    parser.add_argument("--measure", action="store_true", help="print figures instead of stories")
    parser.add_argument("--reference", type=Path, help="with --measure: a file of real stories to compare with")
    args = parser.parse_args(argv)
    if args.count < 1:
        raise UserError(f"--count {args.count}: wanted a number of stories, 1 or more, e.g. --count 3")
    if args.reference and not args.reference.is_file():
        raise UserError(f"--reference {args.reference}: no such file; wanted a text file of stories")
    if args.measure:
        report(args.count, args.seed, args.reference)
        return
    for index in range(args.count):
        print(Story(args.seed, index, args.plot), end="\n\n")


if __name__ == "__main__":
    raise SystemExit(run_main(main))
