from tests.chaos.plan import DECK, KINDS, LASTING, plan


def test_a_seed_gives_the_same_plan_again():
    assert plan(7, 60) == plan(7, 60) != plan(8, 60)


def test_acts_are_in_order_and_in_time():
    acts = plan(1, 100, every=0.5)
    assert [act.at for act in acts] == sorted(act.at for act in acts)
    assert acts[0].at > 0 and acts[-1].at < 100
    assert 150 < len(acts) < 250
    assert all(0 <= act.whom < 1 for act in acts)


def test_everything_is_done_before_anything_is_done_once_more_than_its_share():
    acts = [act.what for act in plan(3, 1000)]
    assert sorted(acts[: len(DECK)]) == sorted(DECK)
    assert sorted(acts[len(DECK) : 2 * len(DECK)]) == sorted(DECK)


def test_only_some_kinds_can_be_asked_for():
    assert {act.what for act in plan(3, 1000, kinds=("kill", "pause"))} == {"kill", "pause"}
    assert set(KINDS) == set(DECK)


def test_what_lasts_has_an_end():
    for act in plan(2, 1000):
        low, high = LASTING.get(act.what, (0.0, 0.0))
        assert low <= act.lasts <= high
