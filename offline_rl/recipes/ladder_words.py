"""Which rung of a ladder won, and what is not known of it, in words."""

from collections.abc import Mapping

import numpy as np

from offline_rl.recipes.ladder import MOST_GUESSED, RungStep, chosen_of


def in_words(steps: Mapping[str, RungStep], *, is_trusted: bool = True) -> str:
    """Which rung won, and by how much over the one below; or why the first stayed; which other the twin only guesses
    about, where it knows the one that won; and where that is not known to be better than the logged behaviour."""
    return "; ".join(filter(None, [_won(steps, is_trusted), _guessed(steps), beside_the_log(steps)]))


def beside_the_log(steps: Mapping[str, RungStep]) -> str:
    """That the chosen rung is not surely better than the logged behaviour, in words; empty where it is, or where the
    log does not say what the behaviour was worth."""
    name = chosen_of(steps)[0]
    step = steps[name]
    if not step.over_log_low <= 0.0:
        return ""
    how = "is not surely better" if step.over_log > 0.0 else "IS NO BETTER"
    best = max(steps, key=lambda one: steps[one].over_log)
    others = "" if best == name else f" (the highest of all rungs, {best}: {steps[best].value:.4f} there)"
    return (
        f"{name} {how} in the twin than the logged decisions were in the log: {step.value:.4f} there, "
        f"{step.value - step.over_log:.4f} here{others}"
    )


def _won(steps: Mapping[str, RungStep], is_trusted: bool) -> str:
    first, chosen = next(iter(steps)), chosen_of(steps)[0]
    if not steps[chosen].taken:
        return f"{chosen}: {_fallen_back(steps)}"
    if chosen != first:
        step = steps[chosen]
        caveat = "" if is_trusted else "; the twin failed its certificate"
        took = "" if np.isnan(step.response_s) else f"; mean response {_times(step, steps[first])} {first}'s"
        likely = "likely better" if step.gain > 0.0 else "not surely worse"
        least = "at least" if step.low > 0.0 else f"{likely}, perhaps"
        return (
            f"{chosen}: {step.gain:+.4f} over the rung below, {least} {step.low:+.4f}, with members held out"
            f"{took}{caveat}"
        )
    rivals = {name: step for name, step in steps.items() if name != first and step.gain > 0.0}
    if not rivals:
        return f"{first}: no other rung was better"
    name, step = max(rivals.items(), key=lambda pair: pair[1].gain)
    if step.too_slow:
        return f"{first}: the best other, {name}, is {step.gain:+.4f} at {_times(step, steps[first])} its mean response"
    low = f"perhaps {step.low:+.4f}" if np.isfinite(step.low) else "of too few windows for an interval"
    why = "is too uncertain" if is_trusted else "failed its certificate, and shows too little,"
    return f"{first}: the twin {why} to leave it; the best other, {name}, is {step.gain:+.4f}, {low}"


def _guessed(steps: Mapping[str, RungStep]) -> str:
    """The best of the rungs that lead to queues which the log does not know, unless the one that won does so, too."""
    guessed = {name: step for name, step in steps.items() if step.out_of_support > MOST_GUESSED}
    if not guessed or chosen_of(steps)[0] in guessed:
        return ""
    name, step = max(guessed.items(), key=lambda pair: pair[1].value)
    return (
        f"what the twin says of {name} is a guess, for {step.out_of_support:.0%} of its decisions lead to longer "
        "queues than the log knows: try it in shadow mode"
    )


def _fallen_back(steps: Mapping[str, RungStep]) -> str:
    """Why the clone of the behaviour is handed over in place of what the ladder held at its end."""
    name = [name for name, step in steps.items() if step.taken][-1]
    step = steps[name]
    low = f"perhaps {step.over_clone_low:+.4f}" if np.isfinite(step.over_clone_low) else "of too few windows"
    return (
        "the twin failed its certificate, and what it holds for best is not surely better than the logged behaviour: "
        f"{name}, {step.over_clone:+.4f} over its clone, {low}"
    )


def _times(step: RungStep, first: RungStep) -> str:
    """The mean response time of a rung as a multiple of the first one's."""
    return f"{step.response_s / first.response_s:.2f} times"
