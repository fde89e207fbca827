"""Remarks about the result of a run: its baseline, and whether more epochs would help."""

from collections.abc import Iterator, Mapping

from hogbatch.config.losses import LOSSES
from hogbatch.config.metrics import ranking
from hogbatch.coordinator.commands import Finish
from hogbatch.data.load import LoadedData
from hogbatch.events.event import Assessed, BaselineMeasured
from hogbatch.model.baseline import baseline_of, evaluate_baseline
from hogbatch.run.components import RunComponents


def assess(components: RunComponents, finish: Finish) -> Iterator[BaselineMeasured | Assessed]:
    """Measure the baseline on the sets on which the kept model was evaluated, and compare them.

    There is no baseline of data that are divided among servers.
    """
    setup, recorder = components.setup, components.recorder
    progress = components.coordinator.progress
    data, network, results = setup.data, setup.network, recorder.results
    if isinstance(data, LoadedData) and results:
        loss, encoding = LOSSES[network.loss], data.encoding
        baseline = baseline_of(loss, encoding, data.train.labels)
        for name, (_, values) in results.items():
            found = evaluate_baseline(baseline, loss, encoding, data.sets[name].labels)
            shown = {each: found.metrics[each] for each in values if each in found.metrics}
            measured = BaselineMeasured(name, baseline.prediction, found.loss, shown)
            yield measured
        by_metric = (recorder.label_vectors or {}).get("weight")  # has chosen, whatever the loss
        own, values = results[name]  # on the test rows, if there are any
        if text := no_better(None if by_metric else own, values, measured):
            yield Assessed(text)
    if (chosen := setup.config.threshold) and progress.rows:
        yield Assessed(threshold_in_words(chosen, recorder.threshold))
    if recorder.temperature is not None:
        yield Assessed(f"the scores were divided by the temperature {recorder.temperature:.4g}")
    if finish.status == "finished" and not progress.has_stalled() and progress.still_improves:
        judge = setup.plan.stopping.metric or "loss"
        yield Assessed(
            f"the validation {judge} was still improving at the last epoch: raise --epochs"
        )


def threshold_in_words(metric: str, threshold: float | None) -> str:
    """A sentence about the decision threshold of the kept model."""
    if threshold is None:
        return "the decision threshold is 0.5: no validation rows of both classes were evaluated"
    return f"the validation {metric} is highest at the decision threshold {threshold:.4g}"


def no_better(
    loss: float | None, values: Mapping[str, float], baseline: BaselineMeasured
) -> str | None:
    """A sentence if the loss or the first metric of a model is no better than the baseline's.

    A `loss` of None is not compared.
    """
    main = next(iter(values), "loss")
    own, other = ranking(main, values), ranking(main, baseline.values)
    metric = own is not None and other is not None and own >= other
    worse = [
        *([main] if metric else []),
        *(["loss"] if loss is not None and loss >= baseline.loss else []),
    ]
    if not worse:
        return None
    are, those = ("is", "that") if len(worse) == 1 else ("are", "those")
    what = f"{baseline.set} {' and '.join(worse)}"
    return f"the {what} {are} no better than {those} of always predicting {baseline.prediction}"
