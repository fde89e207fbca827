import pytest

from hogbatch.errors import UsageError
from hogbatch.policy.adaptive import Adaptive
from hogbatch.policy.base import Settings, WorkerView
from hogbatch.policy.choose import choose
from hogbatch.policy.fixed import Fixed
from hogbatch.policy.hogbatch import Hogbatch

MINE = """
class Mine:
    def __init__(self, settings):
        self.alpha = settings.alpha

    def first_size(self, worker):
        return 7

    def next_size(self, worker, others):
        return worker.batch_size * self.alpha

class Half:
    def __init__(self, settings):
        self.next_size = 3

    def first_size(self, worker):
        return 7

class Stubborn:
    def __init__(self):
        pass

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module `own_policies` on sys.path."""
    (tmp_path / "own_policies.py").write_text(MINE)
    (tmp_path / "broken_policies.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"), [("adaptive", Adaptive), ("hogbatch", Hogbatch), ("fixed", Fixed)]
)
def test_the_policies_have_names(name, kind):
    assert type(choose(name, Settings())) is kind


def test_a_class_of_ones_own_is_made_with_the_settings(own):
    policy = choose("own_policies:Mine", Settings(alpha=3.0))
    worker = WorkerView("cpu", 1, 1, 64, batch_size=5)
    assert (policy.first_size(worker), policy.next_size(worker, [])) == (7, 15)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adaptve", "one of adaptive, hogbatch, fixed, or module:Class; got 'adaptve'"),
        ("", "got ''"),
        (":Mine", "got ':Mine'"),
        ("own_policies:", "got 'own_policies:'"),
        ("no_such_policies:Mine", "No module named 'no_such_policies'"),
        ("broken_policies:Mine", "No module named 'no_such_module'"),
        (".relative:Mine", "cannot make that class"),
        ("own_policies:Other", "has no attribute 'Other'"),
        ("own_policies:number", "not callable"),
        ("own_policies:Stubborn", "takes 1 positional argument"),
        ("own_policies:Half", "the class has no method next_size"),
        ("own_policies:Mine:more", "has no attribute 'Mine:more'"),
    ],
)
def test_what_cannot_be_a_policy_is_refused_in_one_sentence(own, name, words):
    with pytest.raises(UsageError) as raised:
        choose(name, Settings())
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--policy")
