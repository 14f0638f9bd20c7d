"""Ctrl-C and SIGTERM as a wish that the training loop can ask about, so that it saves before it leaves."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopWish:
    """`signal` is the number of the signal that came, or 0. Exit codes follow the shell: 130 Ctrl-C, 143 SIGTERM."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0

    @property
    def name(self) -> str:
        return "Ctrl-C" if self.signal == signal.SIGINT else signal.Signals(self.signal).name

    def catch(self, number: int, frame: FrameType | None) -> None:
        if self.signal:  # the second one does not wait for the end of the step
            raise KeyboardInterrupt
        self.signal = number


@contextlib.contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Catch both signals inside the block. In a thread, where Python allows no handlers, nothing is caught."""
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = {number: signal.signal(number, wish.catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
