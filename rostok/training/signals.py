"""Ctrl-C, SIGTERM and a closed terminal: the training loop asks about them, and saves before it stops."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopWish:
    """`signal` is the number of the signal that came, or 0. Exit codes follow the shell: 130 for Ctrl-C."""

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
    """Catch the signals inside the block. In a thread, where Python allows no handlers, nothing is caught.

    Under nohup SIGHUP is ignored already, and stays so. Windows has no SIGHUP.
    """
    wish = StopWish()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, wish.catch) for number in numbers}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
