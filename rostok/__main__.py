"""`python -m rostok VERB ...` is `rostok VERB ...`."""

from rostok.cli import console

raise SystemExit(console())
