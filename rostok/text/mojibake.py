"""Mojibake: UTF-8 that was once read as cp1252 or Latin-1 and saved so. “ became â€œ, é became Ã©.

    is_mojibake("the end,â€\\u009d she said")   True
    repair("CafÃ© â€œTomâ€\\u009d")             'Café “Tom”'

A text counts as mojibake only when it holds a sequence that ordinary text of no language has. Left out: text that was
damaged twice, other encodings, bytes that were lost (but for the closing quotation mark, whose last byte often is).
"""

import re

SIGNS = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"  # what cp1252 has for the bytes 80 to 9f
NEXT = f"[\\x80-\\xbf{SIGNS}]"  # what a byte 80 to bf, which continues a character, became
FIRST = "âÃÂÐÑðï"  # what a match of SURE begins with: a quick look before the slow one
SURE = re.compile(
    f"â[€\\x80]|â[‚„†ˆ]{NEXT}"  # quotation marks, dashes; €, ™, arrows
    "|Ã[\\x80-\\xaa\\xac-\\xba\\xbc-\\xbf€ƒ†‡ˆ‰Š•˜™œŸ]"  # letters such as é
    "|Â[\\xa0-\\xaa\\xac-\\xba\\xbc-\\xbf]"  # signs such as £
    f"|(?:[ÐÑ]{NEXT}){{2}}"  # Cyrillic
    f"|ð[Ÿ\\x9f]{NEXT}"  # pictures
    "|ï¿½|ï»¿"  # U+FFFD, the byte order mark
)
ANY = re.compile(f"[\\xc2-\\xdf]{NEXT}|[\\xe0-\\xef]{NEXT}{{2}}|[\\xf0-\\xf4]{NEXT}{{3}}|â[€\\x80]")


def is_mojibake(text: str) -> bool:
    """Whether a text holds a sequence that only mojibake has.

    >>> is_mojibake("â€œTomâ€"), is_mojibake("“Tom” à côté — café »")
    (True, False)
    """
    return any(sign in text for sign in FIRST) and SURE.search(text) is not None


def repair(text: str) -> str:
    """The text with every such sequence read as UTF-8; what is not UTF-8 stays as it is.

    >>> repair("CafÃ© â€œTomâ€ £5")
    'Café “Tom” £5'
    """
    return ANY.sub(lambda match: _decoded(match[0]), text)


def _decoded(damaged: str) -> str:
    if len(damaged) == 2 and damaged[0] == "â":  # its third byte, 9d, has no sign in cp1252 and was dropped
        return "”"
    raw = bytes(ord(sign) if ord(sign) < 256 else sign.encode("cp1252")[0] for sign in damaged)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return damaged
