import pytest


@pytest.fixture
def imitation():
    """The stand-in for cuBLASLt, whose properties a test may change; skips with a real one."""
    module = pytest.importorskip("cupy._cublaslt", reason="a real cuBLASLt has other algorithms")
    yield module
    module.refused.clear()
    module.relu_keeps_nan = True
