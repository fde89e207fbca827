from tests.chaos.plan import DECK, KINDS, LASTING, plan


def test_acts_are_in_order_and_in_time_and_a_seed_gives_them_again():
    acts = plan(1, 100, every=0.5)
    assert acts == plan(1, 100, every=0.5) != plan(2, 100, every=0.5)
    assert [act.at for act in acts] == sorted(act.at for act in acts)
    assert acts[0].at > 0 and acts[-1].at < 100 and 150 < len(acts) < 250
    for act in acts:
        low, high = LASTING.get(act.what, (0.0, 0.0))
        assert 0 <= act.whom < 1 and low <= act.lasts <= high


def test_everything_is_done_before_anything_is_done_once_more_than_its_share():
    acts = [act.what for act in plan(3, 1000)]
    assert sorted(acts[: len(DECK)]) == sorted(acts[len(DECK) : 2 * len(DECK)]) == sorted(DECK)
    assert {act.what for act in plan(3, 1000, kinds=("kill", "pause"))} == {"kill", "pause"}
    assert set(KINDS) == set(DECK)
