"""`python -m rostok.text.stories`: make or measure built-in stories."""

from rostok.errors import run_main
from rostok.text.stories.plots import main

raise SystemExit(run_main(main))
