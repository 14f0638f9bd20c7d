"""Questions about little stories, made by the world of the built-in stories: its people, things, places and state.

    items = make_items("stories", seed=0)          # or "tinystories": the same frames, words that those stories use

Each function of SKILLS moves the world on (who holds what, where a thing is), says so in sentences of frames.txt, and
gives (good, bad): the continuation that the world's state makes true, and one that would be true of the other person,
thing or place. The truth is never read off the text. A grade is the number of sentences between what must be known and
the question, or what distracts in between. An item is a function of (set, seed, skill, grade, number).
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources

from rostok.errors import UserError
from rostok.measuring.skills.items import Item
from rostok.text.stories.teller import NEEDS_AN, PRONOUNS, Being, Frame, Story, Thing, polish, words

EACH = 80  # items of a skill and grade whose choices have equal numbers of tokens
UNEQUAL = 20  # at most so many others
TRIALS = 2000  # worlds that are asked for them
FIRST = 1_000_000_000  # number of the first world: stories for training have smaller ones
WAITS = (0, 3, 10)  # sentences in between, by grade
DISTANCE = ("near", "middle", "far")
MOODS = ("hungry", "tired", "cold", "thirsty", "sick", "late")
VOWELS, CONSONANTS = ("old", "orange", "ugly", "empty"), ("big", "red", "nice", "small", "green", "new")


@cache
def sections(name: str) -> dict[str, list[str]]:
    """The lines of NAME.txt beside this file, under their @section heads."""
    found: dict[str, list[str]] = {}
    text = resources.files("rostok.measuring.skills").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("@"):
            found[line[1:]] = []
        elif not line.startswith("#"):
            found[list(found)[-1]].append(line)
    return found


@cache
def frames() -> dict[str, list[Frame]]:
    special = {"{noun}": "{n}", "{decoy}": "{i}"}
    compiled = {}
    for name, lines in sections("frames").items():
        for old, new in special.items():
            lines = [line.replace(old, new) for line in lines]
        compiled[name] = [words().compile(line) for line in lines]
    return compiled


@cache
def simple(section: str) -> list[str]:
    return [word.strip() for line in sections("simple")[section] for word in line.split(",")]


class SkillWorld(Story):
    """A story's world with two people and two things, told in the skills' own frames."""

    def __init__(self, seed: int, number: int, plain: bool) -> None:
        super().__init__(seed, FIRST + number)
        self.plain = plain
        self.taken = set()
        self.genders = ("girl", "boy") if self.chance(0.5) else ("boy", "girl")
        self.lines: list[str] = []

    def person(self, role: str, gender: str, invented: bool = False) -> Being:
        """A child of that gender with one name; a first letter that nobody else has."""
        while True:
            made = invented or (not self.plain and self.chance(0.3))
            known = simple(gender) if self.plain else self.words.items[gender]
            call = self.invented(gender) if made else self.pick(known)
            if call[0] not in self.taken:
                break
        self.taken.add(call[0])
        self.cast[role] = {**PRONOUNS[gender], "": [call], "s": [call], "call": call, "gender": gender}
        return Being(call, self.cast[role])

    def people(self) -> tuple[Being, Being]:
        self.hero, self.friend = self.person("h", self.genders[0]), self.person("f", self.genders[1])
        return self.hero, self.friend

    def object(self, role: str) -> Thing:
        """A thing of one color, neither shared with another of this story."""
        nouns = simple("thing") if self.plain else [row[0] for row in self.words.tables["thing"]]
        noun = self.unused([noun for noun in nouns if " " not in noun])
        color = self.unused(simple("color"))
        self.cast[role] = {"": noun, "noun": noun, "color": color, "a": f"a {color} {noun}"}
        return Thing(noun, self.cast[role])

    def unused(self, options: Sequence[str]) -> str:
        while (word := self.pick(options)) in self.taken:
            pass
        self.taken.add(word)
        return word

    def things(self) -> tuple[Thing, Thing]:
        return self.object("t"), self.object("u")

    def spot(self) -> str:
        return self.unused(simple("spot"))

    def line(self, section: str, who: Being | None = None, to: Being | None = None) -> None:
        """Add a sentence of frames.txt."""
        self.lines.append(self.filled(self.pick(frames()[section]), who or self.hero, to or self.friend))

    def wait(self, grade: int) -> None:
        """Sentences in which nothing happens; none comes twice."""
        order = sorted(frames()["wait"], key=lambda _: self.random())
        self.lines += [self.filled(frame, self.hero, self.friend) for frame in order[: WAITS[grade]]]

    def ask(self, section: str, options: Sequence[str], truth: int) -> tuple[str, str]:
        """End with a question; give the true option and the other one, as continuations."""
        self.line(section)
        return " " + options[truth], " " + options[1 - truth]

    def ask_either(self, section: str, true: Callable[[int], str], ends: str = "tu") -> tuple[str, str]:
        """Ask about the first or the second of two; true(k) is the answer for each."""
        k = int(self.chance(0.5))
        return self.ask(f"{section}.ask.{ends[k]}", (true(0), true(1)), k)


# the skills: what each does to the world, and what then is true


def article(w: SkillWorld, grade: int) -> tuple[str, str]:
    """a or an: before the noun, before an adjective, before one whose letter is not like the noun's."""
    w.people()
    nouns = simple("thing") if w.plain else [row[0] for row in w.words.tables["thing"]]
    vowel = w.chance(0.5)

    def opens(word: str) -> bool:
        return NEEDS_AN.sub(r"\1n ", f"a {word}").startswith("an")

    if grade == 0:
        phrase = w.pick([noun for noun in nouns if opens(noun) is vowel])
    else:
        wanted = vowel if grade == 1 else not vowel
        noun = w.pick([noun for noun in nouns if opens(noun) is wanted])
        phrase = f"{w.pick(VOWELS if vowel else CONSONANTS)} {noun}"
    w.line("article.ask")
    articles = ("an", "a") if vowel else ("a", "an")
    return f" {articles[0]} {phrase}.", f" {articles[1]} {phrase}."


def number(w: SkillWorld, grade: int) -> tuple[str, str]:
    """was or were: right after the noun, after more words, after a noun of the other number."""
    w.people()
    rows = list(zip(simple("thing"), simple("things"), strict=True)) if w.plain else w.words.tables["thing"]
    many = int(w.chance(0.5))
    w.fix(n=w.pick(rows)[many], i=w.pick(rows)[1 - many])
    return w.ask(("number.near", "number.far", "number.other")[grade], ("was", "were"), many)


def pronoun(w: SkillWorld, grade: int) -> tuple[str, str]:
    """he or she: what the story said that somebody is."""
    gender = w.genders[0]
    w.hero = w.person("h", gender, invented=True)
    w.line(gender)
    w.wait(grade)
    return w.ask("pronoun.ask", ("she", "he"), int(gender == "boy"))


def name(w: SkillWorld, grade: int) -> tuple[str, str]:
    """An invented name again; the other one has not been in the story."""
    gender = w.genders[0]
    w.hero, other = w.person("h", gender, invented=True), w.person("f", gender, invented=True)
    w.line(gender)
    w.wait(grade)
    return w.ask("name.ask", (w.hero.call, other.call), 0)


def owner(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Which of two friends has a thing."""
    w.people()
    first, second = w.things()
    w.give(first, w.hero)
    w.give(second, w.friend)
    w.line("have.one")
    w.wait(grade)
    return w.ask_either("own", lambda k: holder_of((first, second)[k]))


def holder_of(thing: Thing) -> str:
    assert thing.holder is not None
    return thing.holder.call


def holder(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Who holds a thing after it was given away once, twice, three times."""
    w.people()
    things = w.things()
    for thing, who in zip(things, (w.hero, w.friend), strict=True):
        w.give(thing, who)
    w.line("have.one")
    asked = int(w.chance(0.5))
    for _ in range(grade + 1):
        giver = things[asked].holder
        taker = w.friend if giver is w.hero else w.hero
        w.give(things[asked], taker, giver)
        w.line(f"give.{'tu'[asked]}", giver, taker)
    truth = int(things[asked].holder is w.friend)
    return w.ask(f"hold.ask.{'tu'[asked]}", (w.hero.call, w.friend.call), truth)


def swap(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Who holds a thing after one swap, two, three."""
    w.people()
    first, second = w.things()
    w.give(first, w.hero)
    w.give(second, w.friend)
    w.line("have.one")
    for _ in range(grade + 1):
        first.holder, second.holder = second.holder, first.holder
        w.line("swap")
    return w.ask_either("hold", lambda k: holder_of((first, second)[k]))


def where(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Where a thing is; another is in another spot."""
    w.people()
    for thing in w.things():
        thing.forms["where"] = thing.forms["spot_now"] = w.spot()
    w.line("lay")
    w.wait(grade)
    return w.ask_either("lay", lambda k: w.cast["tu"[k]]["spot_now"])


def lost(w: SkillWorld, grade: int) -> tuple[str, str]:
    """What was lost; another thing was not."""
    w.people()
    things = w.things()
    for thing in things:
        w.give(thing, w.hero)
    w.line("pack")
    gone = things[int(w.chance(0.5))]
    gone.holder = None
    w.line(f"lose.{'tu'[things.index(gone)]}")
    w.wait(grade)
    truth = next(k for k, thing in enumerate(things) if thing.holder is None)
    return w.ask("lose.ask", [thing.noun for thing in things], truth)


def color(w: SkillWorld, grade: int) -> tuple[str, str]:
    """The color of a thing; another has another."""
    w.people()
    things = w.things()
    w.line("have.one")
    w.wait(grade)
    return w.ask_either("color", lambda k: things[k].forms["color"])


def speaker(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Who said it."""
    people = w.people()
    w.fix(m1=w.unused(MOODS), m2=w.unused(MOODS))
    w.line("speak")
    w.wait(grade)
    return w.ask_either("speak", lambda k: people[k].call, "12")


def song(w: SkillWorld, grade: int) -> tuple[str, str]:
    """How a song goes on; the other sings another one."""
    w.people()
    while True:
        verses = [w.draw("verse").split() for _ in range(2)]
        half = len(verses[0]) // 2
        if len(verses[0]) == len(verses[1]) and all(verses[0][k] != verses[1][k] for k in (0, half, -1)):
            break
    w.fix(g=" ".join(verses[0]), i=" ".join(verses[1]))
    w.fix(**{f"m{k + 1}": " ".join(verses[k][:half]) for k in range(2)})
    w.line("sing")
    w.wait(grade)
    return w.ask_either("sing", lambda k: " ".join(verses[k][half:]), "12")


def ending(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Glad or sad: whether the lost thing was found."""
    w.people()
    thing = w.object("t")
    w.line("seek")
    if w.chance(0.5):
        w.give(thing, w.hero)
    w.line("seek.found" if thing.holder is w.hero else "seek.gone")
    w.wait(grade)
    return w.ask("seek.ask", ("happy", "sad"), int(thing.holder is not w.hero))


def food(w: SkillWorld, grade: int) -> tuple[str, str]:
    """What somebody ate; the other ate something else."""
    w.people()
    eaten = [w.unused(simple("food")) for _ in range(2)]
    w.fix(o=eaten[0], b=eaten[1])
    w.line("eat")
    w.wait(grade)
    return w.ask_either("eat", lambda k: eaten[k], "12")


def place(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Where somebody went; the other went somewhere else."""
    w.people()
    for role in "pq":
        if w.plain:
            spot = w.unused(simple("place"))
            w.cast[role] = {"to": f"to the {spot}", "at": f"at the {spot}"}
        else:
            w.place(role, "wild", "water", "green", "town")
    w.line("go")
    w.wait(grade)
    return w.ask_either("go", lambda k: w.cast["pq"[k]]["at"], "12")


SKILLS: dict[str, tuple[Callable[[SkillWorld, int], tuple[str, str]], tuple[str, str, str]]] = {
    "article": (article, ("noun", "adjective", "against")),
    "number": (number, ("next", "apart", "against")),
    "pronoun": (pronoun, DISTANCE),
    "name": (name, DISTANCE),
    "owner": (owner, DISTANCE),
    "holder": (holder, ("given once", "twice", "3 times")),
    "swap": (swap, ("swapped once", "twice", "3 times")),
    "where": (where, DISTANCE),
    "lost": (lost, DISTANCE),
    "color": (color, DISTANCE),
    "speaker": (speaker, DISTANCE),
    "song": (song, DISTANCE),
    "ending": (ending, DISTANCE),
    "food": (food, DISTANCE),
    "place": (place, DISTANCE),
}
SETS = ("stories", "tinystories")


def make_items(
    which: str, equal: Callable[[Item], bool] = lambda item: True, seed: int = 0, each: int = EACH
) -> list[Item]:
    """All skills, three grades; of each kind `each` items that are `equal` and UNEQUAL others, none twice.

    The same set for the same words. Raises UserError.
    """
    if which not in SETS:
        raise UserError(f"wanted a set of skills ({' or '.join(SETS)}) or a JSONL file of items. Got {which}")
    items = []
    for k, (skill, (make, grades)) in enumerate(SKILLS.items()):
        for level, grade in enumerate(grades):
            made: dict[bool, dict[Item, None]] = {True: {}, False: {}}
            for trial in range(TRIALS):
                world = SkillWorld(seed, (k * 3 + level) * TRIALS + trial, which == "tinystories")
                good, bad = make(world, level)
                item = Item(polish(" ".join(world.lines)), good, bad, skill, grade)
                alike = equal(item)
                if len(made[alike]) < (each if alike else UNEQUAL):
                    made[alike][item] = None
                if len(made[True]) == each:
                    break
            items += [*made[True], *made[False]]
    return items
