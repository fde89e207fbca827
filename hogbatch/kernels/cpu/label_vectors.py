"""Building label vectors, and the best labels by sums of a network's scores and others.

`hogbatch.model.label_vectors` defines label vectors and nearest rows, and computes the same scores
with NumPy.
"""

import numpy as np

from hogbatch.jit import kernel, reduction
from hogbatch.kernels.cpu.elementary import exp_negative

ZERO, ONE = np.float32(0.0), np.float32(1.0)
BLOCK = 64  # products that are compared at a time
LOWEST = np.float32(np.finfo(np.float32).min)  # below the score of any label


@kernel
def build(inputs, width, indptr, rows, shares, first, features, values, sizes):
    """Compute the vectors of the labels from `first` on, each with its largest values.

    rows[indptr[l] : indptr[l + 1]] are the rows of CSR inputs[N, width] with label l, and shares[N]
    their factors. Writes features[L, most], values[L, most] and their numbers, sizes[L].
    """
    total, touched = np.zeros(width, np.float32), np.empty(width, np.int32)
    is_touched = np.zeros(width, np.uint8)
    for place in range(len(sizes)):
        count, square = 0, 0.0
        for member in range(indptr[first + place], indptr[first + place + 1]):
            row = rows[member]
            for stored in range(inputs.indptr[row], inputs.indptr[row + 1]):
                feature = inputs.indices[stored]
                if not is_touched[feature]:
                    is_touched[feature] = 1
                    touched[count] = feature
                    count += 1
                total[feature] += shares[row] * inputs.values[stored]
        own = touched[:count]
        for feature in own:
            square += np.float64(total[feature]) ** 2
        norm = np.float32(np.sqrt(square)) if square > 0.0 else ONE
        sizes[place] = min(count, features.shape[1])
        largest = np.argsort(-np.abs(total[own]))[: sizes[place]]
        for rank in range(sizes[place]):
            feature = own[largest[rank]]
            features[place, rank], values[place, rank] = feature, total[feature] / norm
        for feature in own:
            total[feature], is_touched[feature] = ZERO, 0


@kernel
def insert(scores, columns, score, column):
    """Insert a score into descending scores[k]; of equal ones, the first column comes first."""
    place = len(scores) - 1
    if score < scores[place] or (score == scores[place] and column > columns[place]):
        return
    while place > 0 and (
        score > scores[place - 1] or (score == scores[place - 1] and column < columns[place - 1])
    ):
        scores[place], columns[place] = scores[place - 1], columns[place - 1]
        place -= 1
    scores[place], columns[place] = score, column


@reduction
def above(score, scores):
    """How many scores are above `score`: float32, with which it takes a sixth of the time."""
    count = ZERO
    for place in range(scores.shape[0]):
        count += ONE if scores[place] > score else ZERO
    return count


@kernel
def select(products, scores, columns):
    """Write the k highest of products[C] to scores[k], and where they are to columns[k].

    The highest come first, and of equal ones, the first column. LOWEST if there are fewer.
    """
    scores[:], columns[:] = LOWEST, len(products)
    for first in range(0, len(products), BLOCK):
        block = products[first : first + BLOCK]
        if above(scores[-1], block) > ZERO:
            for place in range(len(block)):
                if block[place] > scores[-1]:
                    insert(scores, columns, block[place], first + place)


@kernel
def add_products(inputs, row, vectors, products):
    """Add the products of unit row `row` with `vectors` to products[C]."""
    square = 0.0
    for stored in range(inputs.indptr[row], inputs.indptr[row + 1]):
        square += np.float64(inputs.values[stored]) ** 2
    norm = np.float32(np.sqrt(square)) if square > 0.0 else ONE
    for stored in range(inputs.indptr[row], inputs.indptr[row + 1]):
        value, feature = inputs.values[stored] / norm, inputs.indices[stored]
        for each in range(vectors.indptr[feature], vectors.indptr[feature + 1]):
            products[np.uint32(vectors.labels[each])] += value * vectors.values[each]


@kernel
def nearest_space(rows, most):
    """Return the scratch of `add_nearest` for N training `rows`, of which k = `most` are near.

    products[N], which are 0, and the cosines[k] and the numbers[k] of the nearest rows.
    """
    products = np.zeros(len(rows.indptr) - 1, np.float32)
    return products, np.empty(most, np.float32), np.empty(most, np.int32)


@kernel
def add_nearest(inputs, row, rows, space, scores):
    """Add the squared cosines of the k nearest training `rows` to the scores[C] of their labels.

    Near rows have a positive cosine with unit row `row` of `inputs`.
    """
    products, cosines, nearest = space
    if len(products) == 0:  # the model has no training rows
        return
    add_products(inputs, row, rows.vectors, products)
    select(products, cosines, nearest)
    for place in range(len(cosines)):
        if cosines[place] <= ZERO:
            break
        for each in range(rows.indptr[nearest[place]], rows.indptr[nearest[place] + 1]):
            scores[rows.labels[each]] += cosines[place] * cosines[place]
    products[:] = ZERO


@reduction
def total_below(top, scores):
    """The sum of exp(score - top) for scores of at most `top`; nan if a score is not finite."""
    total = ZERO
    for place in range(scores.shape[0]):
        total += exp_negative(scores[place] - top) + ZERO * scores[place]
    return total


@kernel
def rank_sums(inputs, true, sources, sums, powers, scores, ranked, start, stop):
    """Rank the labels of rows [start, stop) by S sums of scores, with the softmax over all labels.

    `sources` are a `LabelVectors`, a `NearestRows`, and how many rows are near. Each of sums[S, 4]
    has a factor, 0 or 1, of the network's scores[B, C], which are overwritten, a factor of the
    products of CSR `inputs` with the label vectors, the number of those of powers[P, C] that these
    are multiplied by, and a factor of the scores by nearest rows. `true` has indptr[B + 1] and
    indices of the rows' true labels. The results are a `hogbatch.model.ranking.Ranked`; of sums
    without the network, only `columns`.
    """
    vectors, rows, most = sources
    outputs, k = scores.shape[1], ranked.columns.shape[2]
    products, places = np.zeros(outputs, np.float32), np.zeros(outputs, np.int32)
    touched, own = np.empty(outputs + 1, np.int32), np.empty(outputs, np.float32)
    added, both = np.empty(outputs, np.float32), np.empty(outputs, np.float32)
    others, other_columns = np.empty(k, np.float32), np.empty(k, np.int32)
    near, space = np.zeros(outputs, np.float32), nearest_space(rows, most)
    for row in range(start, stop):
        add_products(inputs, row, vectors, products)
        add_nearest(inputs, row, rows, space, near)
        count, network = 0, scores[row]
        for label in range(outputs):
            touched[count] = label  # a branch would often be mispredicted
            count += (products[label] != ZERO) | (near[label] != ZERO)
        for place in range(count):
            label = touched[place]
            own[place], network[label], places[label] = network[label], LOWEST, place + 1
        labels = true[1][true[0][row] : true[0][row + 1]]
        fixed = 0.0  # the sum of the network's scores of true labels without a product
        for label in labels:
            fixed += network[label] if places[label] == 0 else ZERO
        others[:], other_columns[:] = LOWEST, outputs
        for label in range(outputs):
            if network[label] > others[k - 1]:
                insert(others, other_columns, network[label], label)
        rest, last = total_below(others[0], network) if count < outputs else ZERO, -1
        for s in range(sums.shape[0]):
            factor, weight, power = sums[s, 0], sums[s, 1], int(sums[s, 2])
            if power != last:
                last = power
                for place in range(count):
                    added[place] = powers[power, touched[place]] * products[touched[place]]
            for place in range(count):
                score = factor * own[place] + weight * added[place]
                both[place] = score + sums[s, 3] * near[touched[place]]
            best, columns = ranked.scores[row, s], ranked.columns[row, s]
            for place in range(k):
                absent = factor == ZERO and others[place] > LOWEST
                best[place] = ZERO if absent else others[place]
                columns[place] = other_columns[place]
            for place in range(count):
                if both[place] >= best[k - 1]:
                    insert(best, columns, both[place], touched[place])
            total = rest * np.exp(others[0] - best[0]) + total_below(best[0], both[:count])
            ranked.totals[row, s], sum_of_true = total, fixed
            for label in labels:
                sum_of_true += both[places[label] - 1] if places[label] else ZERO
            ranked.true[row, s] = sum_of_true
        for place in range(count):
            products[touched[place]], near[touched[place]] = ZERO, ZERO
            places[touched[place]] = 0


@kernel
def rank_shortlist(inputs, sources, hidden, last, limit, ranked, start, stop):
    """Rank the labels of rows [start, stop), of each only the `limit` that `sources` rank highest.

    `sources` are those of `rank_sums`, times their weights; `last` has weights[C, H] and bias[C] of
    the output layer, whose inputs are hidden[B, H]. Where fewer than k labels have a positive sum
    of the sources, all are ranked. Writes the one sum of `ranked`; its totals are over the labels
    that were ranked.
    """
    vectors, rows, most = sources
    outputs, k = len(last[1]), ranked.columns.shape[2]
    products, space = np.zeros(outputs, np.float32), nearest_space(rows, most)
    found, labels = np.empty(outputs, np.float32), np.empty(outputs, np.int32)
    for row in range(start, stop):
        add_products(inputs, row, vectors, products)
        add_nearest(inputs, row, rows, space, products)
        scores, own = found[:limit], labels[:limit]
        select(products, scores, own)
        if scores[k - 1] <= ZERO:
            scores, own = found, labels
            for label in range(outputs):
                scores[label], own[label] = products[label], label
        best, columns = ranked.scores[row, 0], ranked.columns[row, 0]
        best[:], columns[:] = LOWEST, outputs
        for place in range(len(own)):
            scores[place] += last[1][own[place]] + dot(hidden[row], last[0][own[place]])
            insert(best, columns, scores[place], own[place])
        ranked.totals[row, 0] = total_below(best[0], scores)
        products[:] = ZERO


@reduction
def dot(x, y):
    total = ZERO
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total
