"""Questions about little stories, made by the world of the built-in stories: its people, things, places and state.

    world = SkillWorld(seed=0, number=7)               # or SimpleWorld: the same frames, words that TinyStories use
    good, bad = SKILLS["holder"].make(world, 1)        # the second grade; world.lines has the story

Each function of SKILLS moves the world on (who holds what, where a thing is), says so in sentences of frames.txt, and
gives (good, bad): the continuation that the world's state makes true, and one that would be true of the other person,
thing or place. The truth is never read off the text. A grade is the number of sentences between what must be known and
the question, or what distracts in between. Sets of items: sets.py. The same in Russian: russian.py.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from rostok.text.stories.teller import NEEDS_AN, PRONOUNS, Being, Forms, Frame, Story, Thing, words

FIRST = 1_000_000_000  # number of the first world: stories for training have smaller ones
WAITS = (0, 3, 10)  # sentences in between, by grade
DISTANCE = ("near", "middle", "far")
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
def frames(name: str) -> dict[str, list[Frame]]:
    return {section: [words().compile(line) for line in lines] for section, lines in sections(name).items()}


@cache
def listed(name: str, section: str) -> list[str]:
    """The words of a section, divided by commas."""
    return [word.strip() for line in sections(name)[section] for word in line.split(",")]


class SkillWorld(Story):
    """A story's world with two people and two things, told in the skills' own frames."""

    frames, lists = "frames", "simple"  # files beside this one
    invents = 0.3  # share of people with an invented name
    pronouns = {"girl": "she", "boy": "he"}  # noqa: RUF012
    feelings = ("happy", "sad")
    holder_form = speaker_form = "call"  # the form of a name in the answers of these skills

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(seed, FIRST + number)
        self.taken = set()
        self.genders = ("girl", "boy") if self.chance(0.5) else ("boy", "girl")
        self.lines: list[str] = []

    def list(self, section: str) -> list[str]:
        return listed(self.lists, section)

    def names(self, gender: str) -> Sequence[str]:
        return self.words.items[gender]

    def made_up(self, gender: str) -> str:
        """An invented first name."""
        return self.invented(gender)

    def nouns(self) -> Sequence[Sequence[str]]:
        """Rows of things: singular, plural."""
        return self.words.tables["thing"]

    def person(self, role: str, gender: str, invented: bool = False) -> Being:
        """A child of that gender with one name; a first letter that nobody else has."""
        while True:
            made = invented or self.chance(self.invents)
            call = self.made_up(gender) if made else self.pick(self.names(gender))
            if call[0] not in self.taken:
                break
        self.taken.add(call[0])
        self.cast[role] = {**self.forms_of(call, gender), "": [call], "s": [call], "call": call}
        return Being(call, self.cast[role])

    def forms_of(self, call: str, gender: str) -> Forms:
        return dict(PRONOUNS[gender])

    def people(self) -> tuple[Being, Being]:
        self.hero, self.friend = self.person("h", self.genders[0]), self.person("f", self.genders[1])
        return self.hero, self.friend

    def object(self, role: str) -> Thing:
        """A thing of one color, neither shared with another of this story."""
        noun = self.unused([row[0] for row in self.nouns() if " " not in row[0]])
        color = self.unused(self.list("color"))
        self.cast[role] = {"": noun, "noun": noun, "acc": noun, "color": color, "a": f"a {color} {noun}"}
        return Thing(noun, self.cast[role])

    def somewhere(self, role: str) -> None:
        """A place to go to, not yet in the story."""
        self.place(role, "wild", "water", "green", "town")

    def unused(self, options: Sequence[str]) -> str:
        while (word := self.pick(options)) in self.taken:
            pass
        self.taken.add(word)
        return word

    def things(self) -> tuple[Thing, Thing]:
        return self.object("t"), self.object("u")

    def holder_of(self, thing: Thing) -> str:
        """The holder's name, in the form of an answer."""
        assert thing.holder is not None
        return thing.holder.forms[self.holder_form]

    def line(self, section: str, who: Being | None = None, to: Being | None = None) -> None:
        """Add a sentence of frames.txt."""
        self.lines.append(
            self.filled(self.pick(frames(self.frames)[section]), who or self.hero, to or self.friend)
        )

    def wait(self, grade: int) -> None:
        """Sentences in which nothing happens; none comes twice."""
        order = sorted(frames(self.frames)["wait"], key=lambda _: self.random())
        self.lines += [self.filled(frame, self.hero, self.friend) for frame in order[: WAITS[grade]]]

    def ask(self, section: str, options: Sequence[str], truth: int) -> tuple[str, str]:
        """End with a question; give the true option and the other one, as continuations."""
        self.line(section)
        return " " + options[truth], " " + options[1 - truth]

    def ask_either(self, section: str, true: Callable[[int], str], ends: str = "tu") -> tuple[str, str]:
        """Ask about the first or the second of two; true(k) is the answer for each."""
        k = int(self.chance(0.5))
        return self.ask(f"{section}.ask.{ends[k]}", (true(0), true(1)), k)


class SimpleWorld(SkillWorld):
    """The words of simple.txt, which TinyStories use often."""

    invents = 0.0

    def names(self, gender: str) -> Sequence[str]:
        return self.list(gender)

    def nouns(self) -> Sequence[Sequence[str]]:
        return list(zip(self.list("thing"), self.list("things"), strict=True))

    def somewhere(self, role: str) -> None:
        name = self.unused(self.list("place"))
        self.cast[role] = {"to": f"to the {name}", "at": f"at the {name}"}


# the skills: what each does to the world, and what then is true


def article(w: SkillWorld, grade: int) -> tuple[str, str]:
    """a or an: before the noun, before an adjective, before one whose letter is not like the noun's."""
    w.people()
    nouns = [row[0] for row in w.nouns()]
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
    many = int(w.chance(0.5))
    w.fix(n=w.pick(w.nouns())[many], i=w.pick(w.nouns())[1 - many])
    return w.ask(("number.near", "number.far", "number.other")[grade], ("was", "were"), many)


def pronoun(w: SkillWorld, grade: int) -> tuple[str, str]:
    """he or she: what the story said that somebody is."""
    gender = w.genders[0]
    w.hero = w.person("h", gender, invented=True)
    w.line(gender)
    w.wait(grade)
    return w.ask("pronoun.ask", (w.pronouns["girl"], w.pronouns["boy"]), int(gender == "boy"))


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
    return w.ask_either("own", lambda k: w.holder_of((first, second)[k]))


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
    options = [who.forms[w.holder_form] for who in (w.hero, w.friend)]
    return w.ask(f"hold.ask.{'tu'[asked]}", options, truth)


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
    return w.ask_either("hold", lambda k: w.holder_of((first, second)[k]))


def where(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Where a thing is; another is in another spot."""
    w.people()
    for thing in w.things():
        thing.forms["where"] = thing.forms["spot_now"] = w.unused(w.list("spot"))
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
    return w.ask("lose.ask", [thing.forms["acc"] for thing in things], truth)


def color(w: SkillWorld, grade: int) -> tuple[str, str]:
    """The color of a thing; another has another."""
    w.people()
    things = w.things()
    w.line("have.one")
    w.wait(grade)
    return w.ask_either("color", lambda k: things[k].forms["color"])


def look(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Which thing has a color that was said before; another has another."""
    w.people()
    things = w.things()
    w.line("have.one")
    w.wait(grade)
    return w.ask_either("look", lambda k: things[k].noun)


def speaker(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Who said it."""
    people = w.people()
    w.fix(m1=w.unused(w.list("mood")), m2=w.unused(w.list("mood")))
    w.line("speak")
    w.wait(grade)
    return w.ask_either("speak", lambda k: people[k].forms[w.speaker_form], "12")


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
    return w.ask("seek.ask", w.feelings, int(thing.holder is not w.hero))


def food(w: SkillWorld, grade: int) -> tuple[str, str]:
    """What somebody ate; the other ate something else."""
    w.people()
    eaten = [w.unused(w.list("food")) for _ in range(2)]
    w.fix(o=eaten[0], b=eaten[1])
    w.line("eat")
    w.wait(grade)
    return w.ask_either("eat", lambda k: eaten[k], "12")


def place(w: SkillWorld, grade: int) -> tuple[str, str]:
    """Where somebody went; the other went somewhere else."""
    w.people()
    for role in "pq":
        w.somewhere(role)
    w.line("go")
    w.wait(grade)
    return w.ask_either("go", lambda k: w.cast["pq"[k]]["at"], "12")


class Skill(NamedTuple):
    """How a skill is asked, and the names of its grades."""

    make: Callable[..., tuple[str, str]]  # (world, grade) -> (good, bad)
    grades: tuple[str, str, str]


SKILLS = {
    "article": Skill(article, ("noun", "adjective", "against")),
    "number": Skill(number, ("next", "apart", "against")),
    "pronoun": Skill(pronoun, DISTANCE),
    "name": Skill(name, DISTANCE),
    "owner": Skill(owner, DISTANCE),
    "holder": Skill(holder, ("given once", "twice", "3 times")),
    "swap": Skill(swap, ("swapped once", "twice", "3 times")),
    "where": Skill(where, DISTANCE),
    "lost": Skill(lost, DISTANCE),
    "color": Skill(color, DISTANCE),
    "look": Skill(look, DISTANCE),
    "speaker": Skill(speaker, DISTANCE),
    "song": Skill(song, DISTANCE),
    "ending": Skill(ending, DISTANCE),
    "food": Skill(food, DISTANCE),
    "place": Skill(place, DISTANCE),
}
