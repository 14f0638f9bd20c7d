"""The skills in Russian: the same worlds and states, told in frames-ru.txt with the words of words-ru.txt.

    world = RussianWorld(seed=0, number=7)
    good, bad = RUSSIAN_SKILLS["verb"].make(world, 2)

Russian has no a/an; instead a verb in the past agrees with who acts (verb), and a thing that is taken has a case of its
own (case). The other skills are those of world.py with the same functions. Left out: songs.
"""

from collections.abc import Sequence

from rostok.measuring.skills.world import SKILLS, Skill, SkillWorld, sections
from rostok.text.stories.teller import Forms, Thing

GENDERS = {  # of a person: pronouns, the ending of a verb in the past, irregular verbs
    "girl": {"he": "она", "him": "её", "a": "а", "found": "нашла", "went": "пошла"},
    "boy": {"he": "он", "him": "его", "a": "", "found": "нашёл", "went": "пошёл"},
}
THINGS = {  # of a thing
    "m": {"was": "был", "lay": "лежал", "stayed": "остался", "fell": "выпал"},
    "f": {"was": "была", "lay": "лежала", "stayed": "осталась", "fell": "выпала"},
}


def declined(name: str) -> dict[str, str]:
    """The cases of a first name on -а, -я or a consonant.

    >>> declined("Маша"), declined("Егор")["dat"]
    ({'gen': 'Маши', 'dat': 'Маше', 'instr': 'Машей'}, 'Егору')
    """
    stem = name[:-1]
    if name[-1] == "а":
        soft, hushed = stem[-1] in "гкхжшчщ", stem[-1] in "жшчщц"
        return {
            "gen": stem + ("и" if soft else "ы"),
            "dat": stem + "е",
            "instr": stem + ("ей" if hushed else "ой"),
        }
    if name[-1] == "я":
        return {"gen": stem + "и", "dat": stem + "е", "instr": stem + "ей"}
    return {"gen": name + "а", "dat": name + "у", "instr": name + "ом"}


class RussianWorld(SkillWorld):
    """The world with Russian names and things, in the forms that the frames ask for."""

    frames, lists = "frames-ru", "words-ru"
    invents = 0.0
    pronouns = {"girl": "она", "boy": "он"}  # noqa: RUF012
    feelings = ("радостно", "грустно")
    holder_form, speaker_form = "gen", "dat"

    def rows(self, section: str) -> list[list[str]]:
        lines = [line for each in sections(self.lists)[section] for line in each.split(",")]
        return [[cell.strip() for cell in line.split("|")] for line in lines]

    def names(self, gender: str) -> Sequence[str]:
        return self.list(gender)

    def nouns(self) -> Sequence[Sequence[str]]:
        return self.rows("thing")

    def made_up(self, gender: str) -> str:
        return "".join(self.pick(self.list(part)) for part in ("onset", "vowel", "coda", f"tail.{gender}"))

    def forms_of(self, call: str, gender: str) -> Forms:
        return {**GENDERS[gender], **declined(call)}

    def object(self, role: str) -> Thing:
        rows = {row[0]: row for row in self.nouns()}
        colors = dict(self.rows("color"))
        noun, color = self.unused(list(rows)), self.unused(list(colors))
        _, acc, gen, gender, *_ = rows[noun]
        red = f"{color if gender == 'm' else colors[color]} {noun}"
        forms = {"": noun, "noun": noun, "Noun": noun.capitalize(), "acc": acc, "gen": gen, "color": color}
        self.cast[role] = {**forms, "red": red, **THINGS[gender]}
        return Thing(noun, self.cast[role])

    def somewhere(self, role: str) -> None:
        places = dict(self.rows("place"))
        where_to = self.unused(list(places))
        self.cast[role] = {"to": where_to, "at": places[where_to]}


def verb(w: RussianWorld, grade: int) -> tuple[str, str]:
    """A verb in the past agrees with who acts, not with somebody named in between."""
    w.people()
    pair = w.pick(w.rows("verb"))
    return w.ask(("verb.near", "verb.far", "verb.other")[grade], pair, int(w.genders[0] == "girl"))


def number(w: RussianWorld, grade: int) -> tuple[str, str]:
    """One or several were: right after the noun, after more words, after a noun of the other number."""
    w.people()
    noun, _, _, gender, plural, *_ = w.pick(w.nouns())
    several = int(w.chance(0.5))
    *_, other_one, other_many = w.pick(w.nouns())
    w.fix(n=(noun, plural)[several], i=(other_many, other_one)[several])
    return w.ask(
        ("number.near", "number.far", "number.other")[grade], (THINGS[gender]["was"], "были"), several
    )


def case(w: RussianWorld, grade: int) -> tuple[str, str]:
    """What is taken is in the accusative."""
    w.people()
    rows = [row for row in w.nouns() if row[3] == "f"]
    noun, acc = w.pick(rows)[:2]
    w.fix(i=w.pick([row[1] for row in rows if row[0] != noun]))
    good, bad = w.ask(("case.near", "case.far", "case.other")[grade], (acc, noun), 0)
    return good + ".", bad + "."


SHARED = (
    "pronoun",
    "name",
    "owner",
    "holder",
    "swap",
    "where",
    "lost",
    "color",
    "speaker",
    "ending",
    "food",
    "place",
)
RUSSIAN_SKILLS = {
    "verb": Skill(verb, ("next", "apart", "against")),
    "number": Skill(number, ("next", "apart", "against")),
    "case": Skill(case, ("next", "apart", "against")),
    **{name: SKILLS[name] for name in SHARED},
}
