"""The built-in stories of the page, in English and in Russian, with what a learner should look at first."""

from collections.abc import Mapping

from rostok.text.tokenizer import Tokenizer

# What a learner should look at first: the strongest head from the last mention of a word to another word opens the
# page. The same word twice means: from its first piece to the piece that followed when it was said before.
STORIES: dict[str, tuple[str, str, str]] = {
    "he": (
        "Once upon a time there was a boy named Tom. Tom had a red ball. One day the ball rolled under a big bush. "
        "Tom looked and looked for it. Then he saw something red and smiled.",
        "he",
        "Tom",
    ),
    "doll": (
        "Mia had a new doll. Mia took the doll everywhere: to the park, to the shop and to her grandma. At night "
        "Mia was very tired. She washed her face, gave her mom a kiss and put the doll",
        "the",
        "doll",
    ),
    "name": (
        "Once upon a time there was a little dragon. His name was Zorbin Plax. He lived on a green hill and he was "
        "afraid of the dark. One night a small star fell on the hill, and it was afraid too. \"Do not cry,\" said "
        "Zorbin Plax. \"I will make a fire for you.\" After that Zorbin Plax was not afraid any more.",
        "Zorbin",
        "Zorbin",
    ),
}  # fmt: skip
# The same for a tokenizer that has learned Russian.
RUSSIAN: dict[str, tuple[str, str, str]] = {
    "he": (
        "Жил-был мальчик, которого звали Том. У Тома был красный мяч. Однажды мяч укатился под большой куст. "
        "Том искал и искал его. Потом он увидел что-то красное и улыбнулся.",
        "он",
        "Том",
    ),
    "doll": (
        "У Маши была новая кукла. Маша брала куклу всюду: в парк, в магазин и к бабушке. Вечером Маша очень устала. "
        "Она умылась, поцеловала маму и положила куклу",
        "положила",
        "куклу",
    ),
    "name": (
        "Жил-был маленький дракон. Его звали Зорбин Плакс. Он жил на зелёном холме и боялся темноты. Однажды ночью на "
        "холм упала маленькая звезда, и она тоже боялась. «Не плачь, — сказал Зорбин Плакс. — Я разведу для тебя "
        "огонь». С тех пор Зорбин Плакс больше не боялся.",
        "Зорбин",
        "Зорбин",
    ),
}  # fmt: skip


def stories(tokenizer: Tokenizer) -> dict[str, tuple[str, str, str]]:
    """The built-in stories in the language that the tokenizer spells in fewer tokens a word."""

    def tokens_a_word(texts: Mapping[str, tuple[str, str, str]]) -> float:
        text = " ".join(story for story, _, _ in texts.values())
        return len(tokenizer.encode(text)) / len(text.split())

    return RUSSIAN if tokens_a_word(RUSSIAN) < tokens_a_word(STORIES) else STORIES
