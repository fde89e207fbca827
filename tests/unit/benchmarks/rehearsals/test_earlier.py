from benchmarks.rehearsals.earlier import then_and_now


def entry(server, value, bound="=", target="early"):
    factors = {"adaptive": {"bound": bound, "value": value}}
    return {"set": "w8a", "server": server, "target": target, "shown": "0.05", "factors": factors}


def test_ratios_of_both_matrices_are_in_one_cell():
    then = [entry("b", 9.14), entry("a", 9.67, ">"), entry("gone", 1.0)]
    now = [entry("a", 1.07), entry("b", 0.98), entry("new", 1.5), entry("none", None, "?")]
    head, _, row = then_and_now(then, now).splitlines()
    assert head == "| set, target | a | b | new | none |"
    assert row == "| w8a, 0.05 | > 9.67 → **1.07** | 9.14 → **0.98** | - → **1.50** |  |"


def test_each_target_has_a_row():
    now = [entry("a", 1.0), entry("a", 2.0, target="late") | {"shown": "0.04"}]
    assert [row[:12] for row in then_and_now([], now).splitlines()[2:]] == [
        "| w8a, 0.05 ",
        "| w8a, 0.04 ",
    ]
