"""The story teller: word lists, a small world, sentences filled from frames. The plots are in plots.py.

A frame is a line of words/frames.txt or words/plots.txt. `{h.s} [ran|walked] {p.to} {quickly}.` draws one of
[ran|walked] and an item of the list {quickly}, and looks up the roles: {h.s} is the hero as a subject (the name, or a
pronoun where it cannot mean anybody else), {p.to} is "to the forest". `Story.tell` draws a frame of a section and fills
it, `Story.say` makes direct speech, `polish` corrects a/an and capitals. Left out: grammar that no frame has.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

Frame = tuple[
    Any, ...
]  # of str (ordinary text), list (draw one Frame), (role, form) (look it up in the cast)
Forms = dict[str, Any]  # form -> str, or a list of str to draw from

TABLES = ("animals", "things", "places", "foods", "jobs", "relations", "troubles", "verbs")
ROLES = {
    "h": "hero",
    "f": "friend",
    "e": "elder of the hero's family",
    "k": "grown-up helper",
    "c": "a nameless creature",
    "x": "who acts in this frame",
    "y": "whom x turns to",
    "t": "the thing",
    "u": "another thing",
    "v": "a third thing",
    "p": "the place",
    "q": "another place",
    "z": "where the hero lives",
    "w": "weather",
    "o": "food",
    "n": "an invented name or a word",
    "b": "what the plot is about",
    "i": "a detail of it",
    "r": "a whole clause",
    "g": "the hero's song",
    "m1": "first landmark",
    "m2": "second landmark",
    "m3": "third landmark",
}


# word lists


def read_sections(name: str) -> dict[str, list[str]]:
    """The lines of rostok/text/stories/words/NAME.txt under their @section heads, without comments and blank lines."""
    sections: dict[str, list[str]] = {}
    text = resources.files("rostok.text.stories").joinpath("words", f"{name}.txt").read_text(encoding="ascii")
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


def read_all(split: Callable[[list[str]], list[Any]], *names: str) -> dict[str, list[Any]]:
    """The sections of several files, split into items or rows."""
    return {section: split(lines) for name in names for section, lines in read_sections(name).items()}


class Words:
    """All word lists, each by section: `items` (words), `tables` (rows), `frames` (compiled sentences)."""

    def __init__(self) -> None:
        self.items = read_all(split_items, "lists", "names")
        self.tables = read_all(split_rows, *TABLES)
        self.tables["food"] = self.tables["dish"] + self.tables["snack"]
        for section in read_sections("verbs"):
            self.columns(section, section, section + ".past", section + ".ing")
        self.columns("animal", "beast", "beasts")
        self.columns("thing", "thing", "things")
        self.columns("fancy", "fancy")
        sentences = read_all(list, "frames", "plots")
        self.frames: dict[str, list[Frame]] = {name: [] for name in self.items}  # lists may name each other
        for name, lines in [*self.items.items(), *sentences.items()]:
            self.frames.setdefault(name, []).extend(map(self.compile, lines))
        self.troubles = [(row[0], *map(self.compile, row[1:])) for row in self.tables["trouble"]]

    def columns(self, table: str, *names: str) -> None:
        """The first columns of a table as word lists of these names."""
        self.items |= {name: [row[i] for row in self.tables[table]] for i, name in enumerate(names)}

    def compile(self, text: str) -> Frame:
        """A frame's text as parts. "a [red|blue] {t}." -> ("a ", [("red",), ("blue",)], ("t", ""), ".")."""
        return tuple(self._parts(re.findall(r"[][|{}]|[^][|{}]+", text), 0, text)[0])

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


# the world

PRONOUNS = {
    "girl": {"he": "she", "him": "her", "his": "her", "himself": "herself", "He": "She", "His": "Her"},
    "boy": {"he": "he", "him": "him", "his": "his", "himself": "himself", "He": "He", "His": "His"},
}


@dataclass(slots=True, eq=False)
class Being:
    """Somebody, with the name to call and the forms that the frames may use: {h.he}, {h.full}, ..."""

    call: str
    forms: Forms


@dataclass(slots=True, eq=False)
class Location:
    """Somewhere with spots where a thing may lie; `sort` is wild, water, green, town or house."""

    sort: str
    spots: list[str]
    forms: Forms


@dataclass(slots=True, eq=False)
class Thing:
    """Something that is with its holder, or lies where `forms["where"]` says (then nobody holds it)."""

    noun: str
    forms: Forms
    holder: Being | None = None


SPECIAL = frozenset(("s", "own", "own2", "spot", "where", "intro"))
ARTICLE = re.compile(r"\ban?\b")
QUOTED = re.compile(r"(.+?(?<!Mr)(?<!Mrs)[.!?]) (.+)")
NEEDS_AN = re.compile(r"\b([Aa]) (?=(?!uni|use|usu|uku|eu|one|once)[aeiouAEIOU]|hour|honest)")
SENTENCE_START = re.compile(r'(?:^|\n|[.!?] |\." )"?[a-z]')


def polish(text: str) -> str:
    """a/an and capitals. "a egg fell. it broke." -> "An egg fell. It broke."."""
    text = NEEDS_AN.sub(r"\1n ", text)
    return SENTENCE_START.sub(lambda match: match[0].upper(), text)


class Story:
    """One story: its world, its cast (role -> forms) and the text told so far."""

    def __init__(self, seed: int, index: int) -> None:
        self.random = random.Random(f"{seed}/{index}").random
        self.words = words()
        self.cast: dict[str, Forms] = {}
        self.text: list[str] = []
        self.seen: list[Forms] = []  # the beings that the current sentence has named so far
        self.lone: Forms | None = (
            None  # the one being of the last sentence: now it may be called by a pronoun
        )
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
        verse = self.draw("verse")
        self.fix(g=verse[0].upper() + verse[1:])

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
        """An invented first name: "Zorbin"."""
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
                last = self.invented("last") if made else self.family()
                return call, f"{call} {last}" if self.chance(0.7) else call

    def family(self) -> str:
        """A family name from the list, with a first letter that no one else in the story has."""
        while (word := self.pick(self.words.items["family"]))[0] in self.taken:
            pass
        self.taken.add(word[0])
        return word

    def somebody(self, role: str) -> Being:
        """A child, an animal or a being of fancy."""
        gender, kind = self.pick(("girl", "boy")), self.random()
        if kind < 0.5:
            call, full = self.name(gender, 0.15)
            noun, moved, home, eats = (
                gender,
                self.draw("go.past"),
                f"a {self.pick(('small', 'tiny', 'crooked', 'tall', 'narrow', 'cozy'))} house",
                self.pick(self.words.tables["food"])[0],
            )
        else:
            row = self.pick(self.words.tables["animal" if kind < 0.85 else "fancy"])
            call, full = self.name(gender, 0.25)
            noun, moved, home, eats = row[0], row[3], "a " + row[4], row[5]
        known = noun in self.taken or noun == gender
        self.taken.add(noun)
        who = self.pick(([full], [call, call, full]))  # some are called by their full name all their lives
        who = who if known else [*who, *who, f"the {noun}"]
        forms = {
            **PRONOUNS[gender],
            **{"": who, "s": who, "call": call, "full": full, "kind": noun, "home": home, "eats": eats},
            **{"moved": moved, "a": f"a {self.other('trait')} {self.pick(('', 'little ', 'young '))}{noun}"},
            "tint": self.draw("tint" if noun == gender else "tint.animal"),
            "oath": self.draw("oath"),
        }
        self.cast[role] = forms
        return Being(call, forms)

    def relative(self, role: str) -> Being:
        """An elder of the hero's family."""
        kind, call, gender = self.pick(self.words.tables["relation"])
        call = call.replace("*", self.name(gender, 0.1)[0])
        who = [call]
        forms = {**PRONOUNS[gender], "": who, "s": who, "call": call, "full": call, "kind": kind}
        self.cast[role] = forms
        return Being(call, forms)

    def grownup(self, role: str = "k") -> Being:
        """A helper with a trade."""
        job, busy = self.pick(self.words.tables["job"])
        gender = self.pick(("girl", "boy"))
        call = f"{'Mrs.' if gender == 'girl' else 'Mr.'} {self.family()}"
        intro = [f"{call} the {job}", f"a {self.draw('elderkind')} {job} named {call}"]
        who = [call, f"the {job}"]
        forms = {**PRONOUNS[gender], "": who, "s": who, "call": call, "full": call, "kind": job, "busy": busy}
        self.cast[role] = forms | {"intro": intro}
        return Being(call, self.cast[role])

    def place(self, role: str, *sorts: str) -> Location:
        """A place of one of these sorts, not yet in the story."""
        while True:
            name, preposition, sort, spots = self.pick(self.words.tables["place"])
            if sort in sorts and name not in self.taken:
                break
        self.taken.add(name)
        if sort != "house" and self.chance(0.6):
            name = f"{self.family()} {name}"
        where = sorted(spots.split("; "), key=lambda _: self.random())
        forms = {"": f"the {name}", "at": f"{preposition} the {name}", "to": f"to the {name}", "spots": where}
        self.cast[role] = forms
        return Location(sort, where, forms)

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
        forms = {
            "": [noun, long],
            "noun": noun,
            "a": f"a {long}",
            "the": [f"the {noun}", f"the {long}", f"the {long}"],
            "use": use,
            "used": used,
        }
        self.cast[role] = forms
        return Thing(noun, forms)

    def weather(self, kind: str) -> None:
        self.season = kind
        self.cast["w"] = {"": self.words.items["weather." + kind], "day": self.words.items["day." + kind]}

    def food(self, role: str, table: str = "food") -> None:
        name, some = self.pick(self.words.tables[table])
        self.cast[role] = {"": name, "some": some}

    def creature(self, role: str = "c") -> str:
        """A nameless animal that does not belong to the cast."""
        noun = self.other("beast")
        self.cast[role] = {"": noun}
        return noun

    def spirit(self, role: str) -> Being:
        """A being of fancy without a name or a gender: "the genie"."""
        kind = self.draw("fancy")
        self.cast[role] = {"": kind}
        return Being(kind, {"": [f"the {kind}"], "he": "it", "his": "its", "him": "it"})

    def fix(self, **roles: str) -> None:
        """Give a role one wording for the whole story: fix(b="the dark")."""
        for role, text in roles.items():
            self.cast[role] = {"": text, "the": re.sub("^an? ", "the ", text)}

    # -- the world moves on

    def give(self, thing: Thing, holder: Being, giver: Being | None = None) -> None:
        """The thing passes from the giver (None: from where it lay, or from outside the story)."""
        assert thing.holder is giver, "a plot hands over what its giver does not hold"
        thing.holder = holder

    def lay(self, thing: Thing, place: Location) -> None:
        """Nobody holds the thing now: it lies at one spot of the place, one that no search looks at."""
        thing.holder = None
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
        if forms is self.lone and self.random() < 0.4:
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

    def tell(self, *sections: str, who: Being | None = None, to: Being | None = None) -> None:
        """Add a sentence (or two) of each section; "?meal" is left out more often than not.

        In the frames x is `who` (else the hero) and y is `to` (else the friend).
        """
        for section in sections:
            if section[0] == "?" and self.random() > 0.12:
                continue
            self.gap(0.16)
            sentence = self.render(section.removeprefix("?"), who, to)
            self.text.append(sentence[0].upper() + sentence[1:])
            self.lone = self.seen[0] if self.seen and all(f is self.seen[0] for f in self.seen) else None
            self.answering = False

    def say(self, who: Being, section: str, to: Being, how: str = "neutrally") -> None:
        """Add direct speech by `who` to `to`; `how` is the list of the adverbs that fit the mood."""
        lone = self.lone
        self.gap(0.4)
        line = self.render(section, who, to)
        if "oath" in who.forms and self.chance(0.35):
            line = f"{who.forms['oath']}! {line[0].upper()}{line[1:]}"
        line = line[0].upper() + line[1:]
        named = (
            who.forms["he"]
            if lone is who.forms and self.lone and self.chance(0.4)
            else self.pick(who.forms[""])
        )
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
        verb = (
            "said"
            if mark == "." and self.chance(0.4)
            else self.draw(f"{'answer' if self.answering and mark == '.' else 'call'}{mark}.past")
        )
        inverted = who not in ("he", "she") and self.chance(0.5)
        tag = f"{verb} {who}" if inverted else f"{who} {verb}"
        first = first[:-1] + "," if first[-1] == "." else first
        return f'"{first}" {tag}{adverb}.' + (f' "{rest}"' if rest else "")
