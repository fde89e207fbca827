"""How long must a network with very many labels train to reach a P@1, with and without hashing?"""

import argparse
from dataclasses import fields
from typing import Any, Final

from hogbatch.data.synthetic import SyntheticSettings
from hogbatch.errors import UsageError

HIDDEN: Final = 128  # units of the hidden layer


def synthetic(text: str) -> SyntheticSettings:
    """An argparse type: "labels=1000,rows=500", fields of SyntheticSettings."""
    kinds: dict[str, Any] = {each.name: type(each.default) for each in fields(SyntheticSettings)}
    found: dict[str, Any] = {}
    for each in filter(None, text.split(",")):
        name, _, value = each.partition("=")
        try:
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"expected NAME=NUMBER with a name from {', '.join(kinds)}; got {each}"
            ) from None
    try:
        return SyntheticSettings(**found)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
