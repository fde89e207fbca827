"""How many examples property tests try: all of them, or a tenth (`--hypothesis-profile few`)."""

from hypothesis import settings

ALL, FEW = 100, 10  # examples of a test that does not set a number


def register_profiles() -> None:
    """Define the profiles "all" and "few", and load the first.

    Neither has a deadline: an example takes longer than the usual 200 ms when other programs load
    the machine.
    """
    settings.register_profile("all", max_examples=ALL, deadline=None)
    settings.register_profile("few", max_examples=FEW, deadline=None)
    settings.load_profile("all")


def max_examples(count: int) -> settings:
    """Decorate a property test that tries `count` examples, or a tenth in the profile "few"."""
    return settings(max_examples=max(1, count * settings().max_examples // ALL))
