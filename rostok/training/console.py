"""What a training tells: metrics.jsonl, loss.png, the advisor's sentences, and lines and a bar for people.

It looks at a training (train.py) and never touches it; a run that nobody listens to has the same bits.
"""

import contextlib
import dataclasses
import math
import sys
import time
from typing import Any

from tqdm import tqdm

from rostok.errors import UserError, close_output, verb, visible
from rostok.generation.generate import Sampling, generate
from rostok.runs import read_metrics
from rostok.text.advice import prompt_for, quoted
from rostok.training.advisor import Advisor
from rostok.training.folder import model_tensors
from rostok.training.head_probe import probe_model
from rostok.training.heldout import trigram_loss
from rostok.training.metrics import MetricsLog, plot_losses
from rostok.training.runtime import measure_peak, uncompiled
from rostok.training.signals import StopWish
from rostok.training.trained import Trained


class Speaker:
    """Prints lines for people, or nothing when `quiet`."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __call__(self, text: str) -> None:
        """Print a line. A reader that went away (head, a full disk) does not end a run."""
        if not self.quiet:
            try:
                print(text, flush=True)
            except OSError as error:
                self.quiet = True
                close_output()
                print(f"warning: cannot print: {error.strerror}; training goes on unheard", file=sys.stderr)


class Console:
    """What a training tells: metrics.jsonl, loss.png, and lines and a bar for people."""

    def __init__(self, training: Trained) -> None:
        self.training, self.config = training, training.config
        state, self.run = training.state, training.run
        self.log = MetricsLog(
            self.run / "metrics.jsonl", state.step, self.config.tensorboard, active=training.ranks.first
        )
        self.advisor = Advisor(state.advisor, self.config.model.vocab_size, self.config.schedule.warmup_steps)
        self.peak = 0.0 if training.say.quiet else measure_peak(training.runtime) * training.ranks.world
        self.mark = (state.tokens, time.perf_counter())  # where the present stretch of speed began
        self.first, self.plotted, self.loss = True, time.perf_counter(), math.nan
        training.say(describe(training))
        self.bar = tqdm(
            total=training.plan.steps(state.step), initial=state.step, unit="step", leave=False,
            disable=True if training.say.quiet else None,
        )  # fmt: skip

    def after_step(self, loss: float, norm: float) -> None:
        state, self.loss = self.training.state, loss
        if self.first:  # compiling and first touches of memory would spoil the figures of speed
            self.mark, self.first = (state.tokens, time.perf_counter()), False
        if self.training.due(self.config.log_every):
            speed = self.speed()
            lr = self.training.optimizer.parts[0].param_groups[0]["lr"]
            seconds = round(state.seconds, 3)
            finite = {"grad_norm": norm} if math.isfinite(norm) else {}  # fp16 overflows now and then
            self.write(seconds=seconds, loss=loss, lr=lr, **finite, **speed)
            self.bar.total = self.training.plan.steps(state.step)
            self.bar.set_postfix_str(f"loss {loss:.3f}, {speed.get('tokens_per_s', 0):,.0f} tokens/s")
        every = self.config.probe.every
        if every and state.step % every == 0 and self.training.ranks.first:
            self.probe()
        self.advise(self.advisor.after_step(state.step, loss, norm))
        self.bar.update()

    def after_evaluation(self, scores: dict[str, float]) -> None:
        self.write(**scores)
        self.tell(progress_line(self.training, self.loss))
        self.advise(self.advisor.after_evaluation(self.training.state.step, scores["valid_loss"]))
        if self.training.ranks.first and self.config.sample_tokens:
            self.sample()
        if self.training.ranks.first and time.perf_counter() - self.plotted > 60:
            self.plot()

    def probe(self) -> None:
        """How far the heads have come, from a copy of the weights in NumPy. A window MLP has no heads."""
        training = self.training
        if self.config.model.kind == "gpt":
            settings = dataclasses.asdict(self.config.model)
            self.write(heads=probe_model(model_tensors(training.model), settings, training.tokenizer))

    def sample(self) -> None:
        """Let the model write a little, from ◆ and with a generator of its own: losses do not show everything."""
        training = self.training
        start = training.tokenizer.start_id
        training.model.eval()
        with uncompiled():
            result = generate(
                training.model, [[start]], Sampling(0.8), self.config.sample_tokens, end_id=start
            )
        training.model.train()
        text = training.tokenizer.decode([i for i in result[0].ids if i != start])
        self.write(sample=text)
        self.tell("         | " + visible(" ".join(text.split())))

    def speed(self) -> dict[str, float]:
        """Tokens a second since the last time, and the share of the machine's own matmul peak."""
        tokens, now = self.training.state.tokens, time.perf_counter()
        done, seconds = tokens - self.mark[0], now - self.mark[1]
        self.mark = (tokens, now)
        if not done:
            return {}
        speed = {"tokens_per_s": round(done / seconds, 1)}
        share = done / seconds * self.training.flops / self.peak if self.peak else 0.0
        return {**speed, "peak_share": round(share, 3)} if share else speed

    def write(self, **record: Any) -> None:
        self.log.write(step=self.training.state.step, tokens=self.training.state.tokens, **record)

    def advise(self, lines: list[str]) -> None:
        for line in lines:
            self.write(advice=line)
            self.tell(f"advice   {line}")

    def tell(self, line: str) -> None:
        with self.bar.external_write_mode(file=sys.stdout):
            self.training.say(line)

    def plot(self) -> None:
        self.plotted = time.perf_counter()
        with contextlib.suppress(OSError, UserError):  # a picture does not end a run
            plot_losses({self.config.name: self.run / "metrics.jsonl"}, self.run / "loss.png")

    def trigram(self) -> float:
        """The loss of the data's trigram: from the log, or counted now and logged."""
        training = self.training
        known = [record["trigram"] for record in read_metrics(self.log.path) if "trigram" in record]
        if not known:
            known = [trigram_loss(training.data, training.tokenizer.start_id, training.held_out.count)]
            self.write(guessing=math.log(self.config.model.vocab_size), trigram=known[0])
        return known[0]

    def close(self, stop: StopWish | None) -> None:
        self.bar.close()
        if not self.training.finished:
            self.log.close()
            who = stop.name if stop and stop.signal else "a signal to another process"
            self.training.say(
                f"\nstopped  by {who} after step {self.training.state.step} and saved; "
                "the same command goes on from here"
            )
            return
        if self.training.ranks.first:
            told = summary(self.training, self.trigram())
            self.log.close()
            self.plot()
            self.training.say(told)


def describe(training: Trained) -> str:
    config, state = training.config, training.state
    groups = training.model.parameter_groups()
    parts = ", ".join(f"{name} {count:,}" for name, count in groups.items())
    begin = f"resumed at step {state.step}" if state.step else "from scratch"
    if config.init_from and not state.step:
        begin = f"with the weights of {config.init_from}"
    limit = config.schedule.max_minutes
    crowd = f", {training.ranks.world} processes" if training.ranks.world > 1 else ""
    runtime = training.runtime.reason.replace("\n", "\n         ")
    return (
        f"model    {config.model.kind}, {sum(groups.values()):,} parameters ({parts})\n"
        f"runtime  {runtime}{crowd}\n"
        f"data     {config.data.path}, vocabulary {config.model.vocab_size:,}\n"
        f"run      {config.steps:,} steps of {config.tokens_per_step:,} tokens"
        f"{f', or {limit:g} minutes' if limit else ''}, {config.optim.kind}, {begin}; "
        f"guessing uniformly costs {math.log(config.model.vocab_size):.2f} nats"
    )


def progress_line(training: Trained, loss: float) -> str:
    state, scores = training.state, training.state.scores
    return (
        f"step {state.step:>6,}/{training.plan.steps(state.step):,}  loss {loss:.3f}  "
        f"held out {scores['valid_loss']:.3f}  perplexity {scores['perplexity']:.2f}  "
        f"bits/byte {scores['bits_per_byte']:.3f}  {state.tokens / state.seconds:,.0f} tokens/s"
    )


def beside(loss: float, trigram: float) -> str:
    """A loss beside that of a model that only counts which token follows which two."""
    apart = f"the best checkpoint is {abs(loss - trigram):.2f}"
    words = f"{apart} better" if loss < trigram else f"{apart} worse: train longer, or on more text"
    return f"trigram  {trigram:.4f} nats per token, by counting alone; {words}"


def summary(training: Trained, trigram: float) -> str:
    state, scores = training.state, training.state.scores
    why = " (stopped early: no new best)" if 0 < training.config.early_stop <= state.stale else ""
    return (
        f"\ntrained  {state.tokens:,} tokens in {state.seconds:,.0f} s{why}\n"
        f"held out {scores['valid_loss']:.4f} nats per token, perplexity {scores['perplexity']:.2f}, "
        f"{scores['bits_per_byte']:.4f} bits per byte (best {state.best:.4f})\n"
        f"{beside(state.best, trigram)}\n"
        f"saved    {training.run}\n"
        f"losses   {training.run / 'loss.png'}\n"
        f"next     {verb('sample')} {training.run}{quoted(prompt_for(training.data))}"
    )
