"""Numbers of examples of property tests: all, or a tenth (`--hypothesis-profile few`)."""

from hypothesis import HealthCheck, settings

ALL, FEW = 100, 10  # examples of a test that does not set a number


def register_profiles() -> None:
    """Define the profiles "all", "few" and "random", and load the first.

    The examples of a test are the same in every run, so that a failure is due to a change of the
    code; those of "random" are new each time, to search for more. None has a deadline, or
    a limit for making examples: both take longer than usual when other programs load the machine.
    Nothing is stored, because the checkout may not be writable.
    """
    always = {
        "deadline": None,
        "database": None,
        "suppress_health_check": [HealthCheck.too_slow],
    }
    settings.register_profile("all", max_examples=ALL, derandomize=True, **always)
    settings.register_profile("few", max_examples=FEW, derandomize=True, **always)
    settings.register_profile("random", max_examples=ALL, derandomize=False, **always)
    settings.load_profile("all")


def max_examples(count: int) -> settings:
    """Decorate a property test that tries `count` examples, or a tenth in the profile "few"."""
    return settings(max_examples=max(1, count * settings().max_examples // ALL))
