import pytest

from tests.support.coordinator_stage import Stage
from tests.support.row_invariants import check_rows


@pytest.fixture
def stage():
    """Makes stages with a plan of one's own; each is checked once more at the end."""
    made = []

    def make(*workers, **plan):
        made.append(Stage(*workers, **plan))
        return made[-1]

    yield make
    for each in made:
        check_rows(each.state)
        each.state.totals(each.now)
