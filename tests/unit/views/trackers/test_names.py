from hogbatch.config.train import TrainConfig
from hogbatch.config.values import WorkerRequest
from hogbatch.views.trackers.names import evaluation_values, mlflow_name, run_settings
from tests.support.tracked_runs import evaluation, worker


def test_an_evaluation_has_these_names():
    metrics = {"P@1": 0.5, "P@3": 0.25}
    result = evaluation(
        validation_values=metrics, utilization={"gpu-0": 0.6}, noise_scale=900.0, noise_error=80.0
    )
    workers = [worker(), worker("gpu-0", staleness=1.5, batch_size=512, update_share=0.25)]
    assert evaluation_values(result, workers, 40.0) == {
        "loss/train": 0.5,
        "loss/validation": 0.25,
        "metric/validation/P@1": 0.5,
        "metric/validation/P@3": 0.25,
        "progress/epochs": 0.5,
        "progress/noise_scale": 900.0,
        "progress/rows": 100,
        "progress/rows_per_second": 40.0,
        "progress/seconds": 2.0,
        "worker/cpu-0/batch_size": 16,
        "worker/cpu-0/update_share": 0.75,
        "worker/gpu-0/batch_size": 512,
        "worker/gpu-0/update_share": 0.25,
        "worker/gpu-0/utilization": 0.6,
        "worker/gpu-0/staleness": 1.5,
    }


def test_what_was_not_measured_and_workers_that_left_have_no_value():
    result = evaluation(train_loss=None, validation_loss=None)
    values = evaluation_values(result, [worker(left_at=1.0)], 0.0)
    assert {name.partition("/")[0] for name in values} == {"progress"}


def test_settings_are_flat_and_those_of_the_run():
    config = TrainConfig(
        "a9a",
        hidden=(64, 32),
        workers=(WorkerRequest("cpu", threads=2), WorkerRequest("gpu", ordinal="host")),
        run_dir="/tmp/x",
        log=("csv",),
    )
    settings = run_settings(config, {"epochs": 10, "max_seconds": None, "hogbatch": "0.1"})
    assert settings["hidden"] == "64,32" and settings["workers"] == "cpu:2,gpu:host"
    assert settings["seed"] == 0 and settings["deterministic"] is False
    assert settings["epochs"] == 10 and settings["hogbatch"] == "0.1"
    assert not {"run_dir", "log", "max_seconds", "lr"} & set(settings)
    assert all(isinstance(value, str | int | float | bool) for value in settings.values())


def test_characters_that_mlflow_refuses_are_replaced():
    assert mlflow_name("metric/validation/P@1 (top)") == "metric/validation/P_1 _top_"
    assert mlflow_name("worker/cpu-0/batch_size") == "worker/cpu-0/batch_size"
