from hogbatch.simulate.profile.time_slice import measure_slice


def test_two_processes_on_one_core_take_turns():
    found = measure_slice()
    assert found is not None
    assert 1e-4 < found < 0.2
