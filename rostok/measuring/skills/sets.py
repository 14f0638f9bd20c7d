"""The sets of items: which world, which skills; of every kind so many pairs, none twice.

    items = make_items("stories")                      # or "tinystories", "russian"
    items = make_items("stories", equal)               # 80 of a kind for which equal(item), 20 others at most

An item is a function of (set, seed, skill, grade, number). `equal` says which pairs have choices of equally many tokens
under the runs' tokenizer: so every skill has as many as it needs, and a set belongs to a tokenizer.
"""

from collections.abc import Callable, Mapping

from rostok.errors import UserError
from rostok.measuring.skills.items import Item
from rostok.measuring.skills.russian import RUSSIAN_SKILLS, RussianWorld
from rostok.measuring.skills.world import SKILLS, SimpleWorld, Skill, SkillWorld
from rostok.text.stories.teller import polish

EACH = 80  # items of a skill and grade whose choices have equal numbers of tokens
UNEQUAL = 20  # at most so many others
TRIALS = 2000  # worlds that are asked for them
SETS: dict[str, tuple[type[SkillWorld], Mapping[str, Skill]]] = {
    "stories": (SkillWorld, SKILLS),
    "tinystories": (SimpleWorld, SKILLS),
    "russian": (RussianWorld, RUSSIAN_SKILLS),
}


def make_items(
    which: str, equal: Callable[[Item], bool] = lambda item: True, seed: int = 0, each: int = EACH
) -> list[Item]:
    """All skills of a set, three grades; the same items for the same words. Raises UserError for an unknown set."""
    if which not in SETS:
        raise UserError(f"wanted a set of skills ({', '.join(SETS)}) or a JSONL file of items. Got {which}")
    world, skills = SETS[which]
    items = []
    for k, (name, skill) in enumerate(skills.items()):
        for level, grade in enumerate(skill.grades):
            made: dict[bool, dict[Item, None]] = {True: {}, False: {}}
            for trial in range(TRIALS):
                story = world(seed, (k * 3 + level) * TRIALS + trial)
                good, bad = skill.make(story, level)
                item = Item(polish(" ".join(story.lines)), good, bad, name, grade)
                alike = equal(item)
                if len(made[alike]) < (each if alike else UNEQUAL):
                    made[alike][item] = None
                if len(made[True]) == each:
                    break
            items += [*made[True], *made[False]]
    return items
