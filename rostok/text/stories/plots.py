"""Children's stories without a download: a seeded story grammar with a world state.

    python -m rostok.text.stories --count 3 --seed 0                        print three stories
    python -m rostok.text.stories --measure --count 50000 --reference FILE  figures, beside those of real stories

How a story is made:

    1. cast       people (gender, kind, name or invented name), things, places, food: from words/*.txt
    2. plot       one of PLOTS, a short function, moves the world on (who holds what, where a thing lies)
    3. sentences  `tell` draws a frame for each step and fills it from the cast; `say` makes dialogue
    4. polish     a/an and capital letters, once over the finished text

Steps 1, 3 and 4 are teller.py; this file has the plots and the measures. Story i is a pure function of (seed, i) on
every platform. Every story names a thing, a person or a word early and comes back to it sentences later
(`Story.planted`). Its names, its song and its sayings are its own, too, so that a model has something to look back for.
Left out: tenses other than the past, knowledge of the world beyond one story.
"""

import argparse
import gzip
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rostok.errors import UserError, run_main
from rostok.text.stories.teller import Being, Location, Story

# plots

OUTDOORS = ("wild", "water", "green")


def begin(s: Story, place: Location, friend: bool = True) -> None:
    """Who the hero is, and the friend (unless the plot brings them together), and a look around."""
    s.tell("open", "song", "?habit")
    if friend:
        s.tell("befriend")
    s.tell("?scene")
    look_around(s, place)


def look_around(s: Story, place: Location) -> None:
    """What there is to see, hear and smell; outdoors only when there is no snow."""
    if place.sort == "house" or s.season != "snow":
        s.tell("?detail." + place.sort)


def finish(s: Story, other: Being, *sections: str) -> None:
    """The plot's own last words, and perhaps an ending that any story may have."""
    s.tell(*sections, s.pick(("?meal", "?play", "end")) if sections else "end", who=s.hero, to=other)


def thank(s: Story, who: Being, to: Being) -> None:
    s.say(who, "thanks", to, "happily")
    if s.chance(0.3):
        s.say(to, "welcome", who, "kindly")
    s.tell("?embrace", who=who, to=to)


def plot_lost(s: Story) -> None:
    """A thing is left somewhere, missed, looked for in vain, and found where it was left."""
    place = s.place("p", *OUTDOORS, "town")
    s.place("q", "house")
    thing = s.thing("t")
    s.give(thing, s.hero)
    begin(s, place)
    s.tell("own", "?travel")
    look_around(s, place)
    s.lay(thing, place)
    s.tell("lost.lay", "lost.notice", "?grieve")
    if s.chance(0.25):
        s.say(s.friend, "ask_trouble", s.hero, "kindly")
    s.say(s.hero, "lost.say", s.friend, "sadly")
    if s.chance(0.25):
        s.say(s.friend, "offer_help", s.hero, "kindly")
    s.tell("lost.search", "interlude")
    s.say(s.friend, "lost.hint", s.hero)
    s.tell("lost.found")
    s.give(thing, s.hero)
    s.tell("?joy")
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
    s.tell("save.keep", "interlude")
    s.fix(r=s.filled(trouble, s.hero, s.friend))
    s.tell("save.trouble")
    if s.chance(0.25):
        s.say(s.friend, "please_help", s.hero, "fearfully")
    s.tell("?ponder", "save.idea")
    s.fix(r=s.filled(deed, s.hero, s.friend))
    s.tell("save.deed")
    thank(s, s.friend, s.hero)
    s.tell("?joy", who=s.friend, to=s.hero)
    finish(s, s.friend, "save.moral")
    s.planted = noun


def plot_hurt(s: Story) -> None:
    """A hurt creature is nursed, named, set free, and comes back."""
    place = s.place("p", *OUTDOORS)
    s.creature()
    s.fix(i=s.draw("part"), n=s.invented(s.pick(("girl", "boy"))))
    begin(s, place)
    s.tell("hurt.find", "hurt.carry", "hurt.name", "hurt.care", "?hurt.care")
    if s.chance(0.25):
        s.say(s.friend, "offer_help", s.hero, "kindly")
    s.tell("hurt.healed", "?play", "interlude", "hurt.free", "?grieve")
    s.tell("?embrace", who=s.elder, to=s.hero)
    s.tell("hurt.return", "joy")
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
    s.tell("quarrel.pull", "quarrel.apart", "?grieve", "interlude")
    s.say(s.hero, "quarrel.sorry", s.friend, "sadly")
    s.say(s.friend, "quarrel.sorry", s.hero, "sadly")
    s.tell("?embrace", "quarrel.mend", "?play")
    finish(s, s.friend, "quarrel.moral")
    s.planted = thing.noun


def plot_broken(s: Story) -> None:
    """A thing of the elder's breaks; the pieces are hidden, then brought out again with the truth."""
    place, hiding = s.place("p", "house"), s.place("q", "house", "green")
    thing = s.thing("t", "treasure", "music")
    s.give(thing, s.elder)
    begin(s, place)
    s.tell("broken.house", "broken.break")
    s.lay(thing, hiding)
    s.tell("broken.hide")
    s.say(s.elder, "broken.ask", s.hero)
    if s.chance(0.25):
        s.say(s.hero, "broken.lie", s.elder, "fearfully")
    s.tell("broken.guilt", "?grieve")
    s.say(s.hero, "broken.confess", s.elder, "sadly")
    s.tell("interlude")
    s.say(s.elder, "broken.forgive", s.hero, "kindly")
    s.tell("?embrace", who=s.elder, to=s.hero)
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
    s.tell("fear.of", "?fear.laugh", "own", "fear.call", "interlude")
    if s.chance(0.25):
        s.say(s.friend, "please_help", s.hero, "fearfully")
    s.tell("fear.act")
    look_around(s, place)
    s.tell("fear.saved")
    thank(s, s.friend, s.hero)
    s.tell("?joy", who=s.friend, to=s.hero)
    finish(s, s.friend, "fear.moral")
    s.planted = thing.noun


def plot_race(s: Story) -> None:
    """Practice beats boasting."""
    place = s.place("p", *OUTDOORS, "town")
    thing = s.thing("t")
    judge = s.grownup()
    s.give(thing, judge)
    s.fix(b=s.draw("contest"))
    begin(s, place)
    s.tell("race.notice", "?race.boast")
    s.say(s.friend, "race.boast_say", s.hero, "crossly")
    s.tell("?grieve", "race.train", "interlude", "race.run")
    look_around(s, place)
    s.tell("race.win")
    s.give(thing, s.hero, judge)
    s.tell("joy")
    finish(s, s.friend, "race.moral")
    s.planted = thing.noun


def plot_present(s: Story) -> None:
    """A present made by hand, hidden until the day."""
    place = s.place("p", *OUTDOORS, "house")
    thing = s.thing("t", "toy", "wear", "paper")
    begin(s, place)
    s.tell("present.day", "?ponder", "present.plan", "present.fail")
    if s.chance(0.25):
        s.say(s.friend, "offer_help", s.hero, "kindly")
        s.say(s.hero, "thanks", s.friend, "happily")
    s.tell("interlude", "?present.fail")
    s.lay(thing, place)
    s.tell("present.hide", "present.give")
    s.give(thing, s.elder)
    s.say(s.elder, "present.joy", s.hero, "happily")
    s.tell("?embrace", who=s.elder, to=s.hero)
    finish(s, s.elder, "present.moral")
    s.planted = thing.noun


def plot_seed(s: Story) -> None:
    """A seed, much patience, and what came of it."""
    place = s.place("p", "green")
    s.grownup()
    s.fix(b=s.draw("crop"))
    s.weather("fair")
    begin(s, place)
    s.tell("seed.get", "seed.plant", "seed.wait")
    look_around(s, place)
    s.tell("seed.sprout", "seed.danger", "?seed.danger", "interlude", "seed.fruit", "?joy", "seed.share")
    s.say(s.friend, "thanks", s.hero, "happily")
    finish(s, s.friend)
    s.planted = "seed"


def plot_new(s: Story) -> None:
    """Somebody new is left alone until one goes over."""
    place = s.place("p", "green", "town")
    thing = s.thing("t", "toy", "music", "paper", "treasure")
    s.give(thing, s.friend)
    begin(s, place, friend=False)
    s.tell("new.arrive", "new.apart")
    s.tell("?grieve", who=s.friend, to=s.hero)
    s.tell("new.dare")
    s.say(s.hero, "new.offer", s.friend, "kindly")
    s.tell("new.show")
    if s.chance(0.25):
        s.say(s.friend, "thanks", s.hero, "happily")
    s.tell("play", "interlude", "new.all")
    s.tell("?joy", who=s.friend, to=s.hero)
    s.tell("?home")
    finish(s, s.friend)
    s.planted = s.friend.call


def plot_wish(s: Story) -> None:
    """Too much of a good thing."""
    place = s.place("p", *OUTDOORS, "town")
    thing = s.thing("t", "treasure", "tool", "music")
    spirit = s.spirit("b")
    begin(s, place)
    s.tell("wish.find")
    s.give(thing, s.hero)
    s.say(spirit, "wish.offer", s.hero)
    s.tell("?ponder")
    s.say(s.hero, "wish.make", s.friend, "happily")
    s.tell("wish.good", "interlude", "wish.bad", "?wish.bad")
    s.say(s.hero, "wish.undo", s.friend, "fearfully")
    s.lay(thing, place)
    s.tell("wish.end")
    s.tell("?embrace", who=s.friend, to=s.hero)
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
    s.tell("visit.task", "?travel")
    look_around(s, place)
    s.tell("visit.beggar", "visit.block", "interlude", "visit.repay", "visit.arrive")
    s.give(thing, helper, s.hero)
    s.say(helper, "thanks", s.hero, "happily")
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
    s.tell("box.try", "?ponder", "interlude", "box.key", "box.open")
    s.give(thing, s.hero)
    s.tell("?joy", "box.note")
    finish(s, s.friend, "box.moral")
    s.planted = "box"


def plot_cook(s: Story) -> None:
    """Cooking goes wrong, and then right."""
    place = s.place("p", "house", "town")
    s.place("q", "green", "town")
    s.food("o", "dish")
    s.fix(i=s.draw("wrong"))
    begin(s, place)
    s.tell(
        "cook.plan",
        "cook.mix",
        "?cook.mix",
        "cook.mishap",
        "cook.taste",
        "?grieve",
        "cook.fix",
        "interlude",
        "cook.done",
    )
    thank(s, s.hero, s.elder)
    finish(s, s.friend, "cook.moral")
    s.planted = s.cast["o"][""]


def plot_way(s: Story) -> None:
    """Out past three landmarks, and home past the same three, the other way around."""
    place = s.place("p", "wild", "water")
    s.fix(m1=s.other("mark"), m2=s.other("mark"), m3=s.other("mark"))
    begin(s, place, friend=False)
    s.tell("way.out")
    look_around(s, place)
    s.tell("way.lost", "?grieve", "meet")
    s.say(s.friend, "way.ask", s.hero, "kindly")
    s.say(s.hero, "way.tell", s.friend)
    s.tell("way.back", "?interlude", "way.home")
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
    look_around(s, place)
    s.tell("build.first", "grieve")
    s.say(s.friend, "build.why", s.hero)
    s.tell("build.learn", "interlude", "build.second", "build.use", "?play")
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
    s.tell("trade.want", "?scene", "trade.first")
    s.give(first, s.friend, s.hero)
    s.give(second, s.hero, s.friend)
    s.tell("trade.second", "interlude")
    s.say(helper, "trade.ask", s.hero, "happily")
    s.say(s.hero, "agree", helper, "happily")
    s.tell("trade.done", who=s.hero, to=helper)
    s.give(second, helper, s.hero)
    s.give(wanted, s.hero, helper)
    s.tell("joy", "?home")
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
    s.tell("own", "?play", "noise.hear")
    s.say(s.friend, "noise.guess", s.hero, "fearfully")
    s.say(s.hero, "noise.guess", s.friend, "fearfully")
    s.tell("noise.go")
    look_around(s, place)
    s.tell("noise.find", "noise.end", "?joy")
    finish(s, s.friend, "noise.moral")
    s.planted = thing.noun


def plot_hide(s: Story) -> None:
    """The best hiding place, and what gave it away."""
    place = s.place("p", *OUTDOORS, "house")
    s.grownup()
    thing = s.thing("t", "toy", "wear", "music")
    s.give(thing, s.hero)
    begin(s, place)
    s.tell("own", "interlude", "hide.game")
    s.lay(thing, place)
    s.tell("hide.spot", "hide.seek", "hide.sleep", "hide.worry")
    s.tell("?grieve", who=s.friend, to=s.hero)
    s.tell("hide.clue")
    s.give(thing, s.hero)
    s.tell("hide.found")
    s.tell("?embrace", who=s.elder, to=s.hero)
    s.tell("?joy", who=s.friend, to=s.hero)
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
    s.tell("thief.hurt", "thief.trail", "thief.real", "ponder")
    s.say(s.hero, "thief.sorry", s.friend, "sadly")
    s.tell("?embrace", "?play")
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
    s.tell("word.old", "word.keep", "?scene", "word.door")
    s.say(s.friend, "word.try", s.hero, "crossly")
    s.tell("word.stuck", "interlude")
    s.say(s.hero, "word.say", s.friend)
    s.tell("word.open")
    s.give(thing, s.hero)
    s.tell("?joy", "?home")
    finish(s, s.friend, "word.moral")
    s.planted = s.cast["n"][""]


def plot_learn(s: Story) -> None:
    """What helped was not the charm."""
    place = s.place("p", *OUTDOORS)
    thing = s.thing("t", "treasure", "wear", "paper")
    s.give(thing, s.friend)
    s.fix(b=s.draw("skill"))
    begin(s, place)
    s.tell("learn.want", "learn.fail")
    s.say(s.hero, "learn.quit", s.friend, "sadly")
    s.say(s.friend, "learn.teach", s.hero, "kindly")
    s.tell("learn.lend")
    s.give(thing, s.hero, s.friend)
    s.tell("learn.again", "interlude", "learn.can", "?joy")
    thank(s, s.hero, s.friend)
    finish(s, s.friend, "learn.back")
    s.planted = thing.noun


PLOTS: dict[str, Callable[[Story], None]] = {
    name.removeprefix("plot_"): f for name, f in list(globals().items()) if name.startswith("plot_")
}


def make_story(seed: int, index: int, plot: str | None = None) -> Story:
    """The story of this number, a pure function of its arguments; str() of it is the text."""
    story = Story(seed, index)
    PLOTS[plot or story.pick(list(PLOTS))](story)
    return story


def generate_stories(count: int, seed: int = 0) -> Iterator[str]:
    """`count` stories, about 1,000 characters of ASCII each; story i depends on (seed, i) alone.

    >>> len(set(generate_stories(20)))
    20
    """
    return (str(make_story(seed, index)) for index in range(count))


# measures


def measure(stories: Sequence[str]) -> dict[str, float]:
    """Length (words), variety (word forms, entropy in bits per word) and redundancy (gzip) of some texts."""
    text = "\n\n".join(stories)
    forms = Counter(re.findall(r"[a-z]+", text.lower()))
    plain = set(re.findall(r"\b[a-z]+\b", text))
    total = sum(forms.values())
    raw = text.encode()
    return {
        "stories": len(stories),
        "megabytes": len(raw) / 1e6,
        "equal stories": len(stories) - len(set(stories)),
        "median words": statistics.median(len(story.split()) for story in stories),
        "word forms": len(forms),
        "word forms in lower case": len(plain),
        "word entropy, bits": -sum(n / total * math.log2(n / total) for n in forms.values()),
        "gzip ratio": len(gzip.compress(raw, 6)) / len(raw),
    }


def report(count: int, seed: int, reference: Path | None) -> None:
    """Print the measures of `count` stories, and of as much of the reference (<|endoftext|> ends a text)."""
    start = time.process_time()
    stories = list(generate_stories(count, seed))
    seconds = time.process_time() - start
    size = sum(map(len, stories))
    print(f"{size / seconds / 1e6:.2f} MB/s ({size / 1e6:.1f} MB, {seconds:.1f} s of one processor)")
    columns = {f"first {n} stories": measure(stories[:n]) for n in sorted({min(20000, count), count})}
    if reference:
        parts = reference.read_text(encoding="utf-8").split("<|endoftext|>")
        real = [text.strip() for text in parts if text.strip()]
        size = min(size, sum(map(len, real)))
        columns[f"stories, {size / 1e6:.1f} MB"] = measure(first_bytes(stories, size))
        columns[f"reference, {size / 1e6:.1f} MB"] = measure(first_bytes(real, size))
    for title, figures in columns.items():
        print(title + ": " + ", ".join(f"{name} {readable(value)}" for name, value in figures.items()))


def readable(value: float) -> str:
    """Counts whole, ratios with four digits: "23,010", "0.3079"."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def first_bytes(texts: list[str], size: int) -> list[str]:
    """The first texts, `size` characters of them at most."""
    kept, room = [], size
    for text in texts:
        room -= len(text)
        if kept and room < 0:
            break
        kept.append(text)
    return kept


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rostok.text.stories", description="Make or measure built-in stories."
    )
    parser.add_argument("--count", type=int, default=3, help="how many stories (3)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other stories (0)")
    parser.add_argument("--plot", choices=list(PLOTS), help="only stories of this plot")
    parser.add_argument("--measure", action="store_true", help="print figures instead of stories")
    parser.add_argument(
        "--reference", type=Path, help="with --measure: a file of real stories to compare with"
    )
    args = parser.parse_args(argv)
    if args.count < 1:
        raise UserError(f"--count {args.count}: wanted a number of stories, 1 or more, e.g. --count 3")
    if args.reference and not args.reference.is_file():
        raise UserError(f"--reference {args.reference}: no such file; wanted a text file of stories")
    if args.measure:
        report(args.count, args.seed, args.reference)
        return
    for index in range(args.count):
        print(make_story(args.seed, index, args.plot), end="\n\n")


if __name__ == "__main__":
    raise SystemExit(run_main(main))
