"""The one exception that a user is meant to see, and the one place that turns it into an exit code."""

import sys
from collections.abc import Callable, Sequence


class UserError(Exception):
    """A mistake that the user can mend. The message is one line: what came, what was wanted, what to type next."""

    exit_code = 2


def run_main(main: Callable[[Sequence[str]], int | None], argv: Sequence[str] | None = None) -> int:
    """Run a front file's `main(argv)`; give its exit code. A UserError becomes one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # UTF-8 whatever the locale says
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(encoding="utf-8", errors="replace")
    try:
        return main(sys.argv[1:] if argv is None else argv) or 0
    except UserError as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has gone: nothing is left to say
        sys.stdout = None
        return 0
