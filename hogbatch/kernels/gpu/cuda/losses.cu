// Losses with their gradients and metrics. A row has a list of labels if LABEL_LISTS(kind), else one
// label in `targets`, or one number for each score, and the weight 1 unless `weighted`. One block per
// row of the batch, except for narrow layers. Only gradients depend on the label smoothing.

// The column that follows (value, column) in z[0, width), sorted by descending value and then by
// ascending column; `width` if there is none. Start with (inf, -1).
__device__ int block_next_best(const float* z, int width, float value, int column)
{
    __shared__ float values[BLOCK];
    __shared__ int columns[BLOCK];
    float best = -INF;
    int where = width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        bool after = z[c] < value || (z[c] == value && c > column);
        if (after && (where == width || z[c] > best)) { best = z[c]; where = c; }
    }
    values[threadIdx.x] = best;
    columns[threadIdx.x] = where;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = values[threadIdx.x + half];
            int there = columns[threadIdx.x + half];
            if (other > values[threadIdx.x]
                || (other == values[threadIdx.x] && there < columns[threadIdx.x])) {
                values[threadIdx.x] = other;
                columns[threadIdx.x] = there;
            }
        }
        __syncthreads();
    }
    int found = columns[0];
    __syncthreads();
    return found;
}

// NaN stays NaN: fmaxf drops it, but the second term keeps it.
__device__ float softplus(float z) { return fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z))); }

// The loss of one score and its label, for one thread. Returns the loss; *slope is its derivative.
__device__ float scalar_loss(long long kind, float smoothing, float y, float z, float* slope)
{
    if (kind == SQUARED) {
        *slope = z - y;
        return 0.5f * *slope * *slope;
    }
    float sign = 2 * y - 1, margin = sign * z;
    if (kind == HINGE) {
        *slope = margin < 1 ? -sign : 0.0f;
        return margin >= 1 ? 0.0f : 1 - margin;
    }
    if (kind == LOGISTIC) {
        *slope = -sign * sigmoid(-margin) + 0.5f * smoothing * sign;
        return softplus(-margin);
    }
    float error = z - y;
    if (kind == HUBER) {
        *slope = fminf(fmaxf(error, -1.0f), 1.0f);
        return *slope * (error - 0.5f * *slope);
    }
    if (kind == POISSON) {
        float farthest = logf(y + (float)STEEPEST), near = z > farthest ? farthest : z;
        *slope = expf(near) - y;
        return *slope + (y > 0 ? y * logf(y) : 0.0f) - y * near + *slope * (z - near);
    }
    // ABSOLUTE, or a quantile
    float above = kind == ABSOLUTE ? 1.0f : 1 + 1e-6f * kind;
    float below = kind == ABSOLUTE ? -1.0f : 1e-6f * kind;
    *slope = error > 0 ? above : error < 0 ? below : 0.0f;
    return *slope * error;
}

// Losses of a row, for one block; NaN if a score is not finite, for which they add 0 * score.
// `slopes`, if given, is set to the derivatives times `scale`.
// The target of softmax_loss is the uniform distribution over the `count` columns `present`. With
// none the loss is 0.
__device__ float softmax_loss(const int* present, long long count, int width, const float* z,
                              float smoothing, float scale, Operand* slopes)
{
    float any = count > 0, target = any / max(count, 1LL), even = smoothing / width;
    // The largest score of this thread, and its sum of expf(score - own), which a larger one scales.
    float own = LOWEST, mine = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float score = z[c], more = score - own, ratio = expf(-fabsf(more));
        mine = more > 0 ? mine * ratio + 1 : mine + ratio;
        mine += 0 * score;
        if (more > 0) own = score;
    }
    float top = block_max(own), sum = block_sum(mine * expf(own - top));
    if (slopes)
        for (int c = threadIdx.x; c < width; c += blockDim.x)
            slopes[c] = operand_of((any * expf(z[c] - top) / sum - even) * scale);
    __syncthreads();
    mine = 0;
    float smoothed = target - smoothing * target;
    for (long long n = threadIdx.x; n < count; n += blockDim.x) {
        float below = z[present[n]] - top;
        mine -= target * below;
        // Not from the slope above, because a probability near 1 may have been rounded to 1.
        if (slopes) slopes[present[n]] = operand_of((expf(below) / sum - even - smoothed) * scale);
    }
    return any * logf(sum) + block_sum(mine);
}

__device__ float multilabel_loss(const int* present, long long count, int width, const float* z,
                                 float scale, Operand* slopes)
{
    float mine = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        mine += softplus(z[c]) + 0 * z[c];
        if (slopes) slopes[c] = operand_of(sigmoid(z[c]) * scale);
    }
    __syncthreads();
    for (long long n = threadIdx.x; n < count; n += blockDim.x) {
        float true_score = z[present[n]];
        mine -= true_score;
        if (slopes) slopes[present[n]] = operand_of(-sigmoid(-true_score) * scale);
    }
    return block_sum(mine);
}

// The sum of `scalar_loss` over the scores of a row.
__device__ float scalar_losses(long long kind, const float* y, int width, const float* z,
                               float smoothing, float scale, Operand* slopes)
{
    float mine = 0, slope;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        mine += scalar_loss(kind, smoothing, y[c], z[c], &slope) + 0 * z[c];
        if (slopes) slopes[c] = operand_of(slope * scale);
    }
    return block_sum(mine);
}

// cell = max(cell, value) for nonnegative values: nonnegative doubles compare like their bits.
__device__ void raise_to(double* cell, double value)
{
    atomicMax((unsigned long long*)cell, (unsigned long long)__double_as_longlong(value));
}

extern "C" __global__ void loss_gradient(
    long long kind, double smoothing, const float* targets, const long long* indptr,
    const int* indices, const float* weights, long long weighted, const long long* rows,
    const long long* numbers, long long B, long long width, long long H, const float* scores,
    Operand* grad, double* totals)
{
    long long row = rows[blockIdx.x];
    const float* z = scores + blockIdx.x * H;
    Operand* slopes = grad + blockIdx.x * H;
    const int y = LABEL_LISTS(kind) ? 0 : (int)targets[row];
    const int* present = LABEL_LISTS(kind) ? indices + indptr[row] : &y;
    long long count = LABEL_LISTS(kind) ? indptr[row + 1] - indptr[row] : 1;
    float weight = weighted ? weights[row] : 1.0f, scale = weight / B, loss;
    for (int h = width + threadIdx.x; h < H; h += blockDim.x) slopes[h] = 0;
    if (NORMALISED(kind)) {
        loss = softmax_loss(present, count, width, z, smoothing, scale, slopes);
    } else if (kind == MULTILABEL) {
        loss = multilabel_loss(present, count, width, z, scale, slopes);
    } else {
        loss = scalar_losses(kind, targets + row * width, width, z, smoothing, scale, slopes);
    }
    bool bad = !isfinite(loss);
    if (bad)
        for (int h = threadIdx.x; h < width; h += blockDim.x) slopes[h] = 0;
    if (threadIdx.x > 0) return;
    atomicAdd(&totals[bad ? SKIPPED : LOSS], bad ? 1.0 : (double)weight * loss);
    if (weighted && !bad) atomicAdd(&totals[EXTRA_WEIGHT], weight - 1.0);
    if (bad) raise_to(&totals[SKIPPED_ROW], numbers[blockIdx.x] + 1.0);
}

// The loss of a row with at most NARROW scores and no label list, for one thread. Sets slopes[width]
// to its derivatives.
__device__ float narrow_loss(long long kind, float smoothing, const float* targets, long long row,
                             const float* z, int width, float* slopes)
{
    float top = -INF, sum = 0, mine = 0, even = smoothing / width;
    if (!NORMALISED(kind)) {
        const float* y = targets + row * width;
        EACH_OUTPUT(h, width) sum += scalar_loss(kind, smoothing, y[h], z[h], &slopes[h]);
        return sum;
    }
    EACH_OUTPUT(h, width) top = fmaxf(top, z[h]);
    EACH_OUTPUT(h, width) sum += expf(z[h] - top);
    EACH_OUTPUT(h, width) {
        bool present = h == (int)targets[row];
        if (present) mine = z[h] - top;
        slopes[h] = expf(z[h] - top) / sum - even - (1 - smoothing) * present;
    }
    return logf(sum) - mine;
}

// `loss_gradient` with a thread per row, for narrow layers and kinds without label lists. A warp adds
// its losses up first: additions to one cell of `totals` are done one after another.
extern "C" __global__ void narrow_loss_gradient(
    long long kind, double smoothing, const float* targets, const float* weights,
    long long weighted, const long long* rows, const long long* numbers, long long B,
    long long width, long long H, const float* scores, Operand* grad, double* totals)
{
    long long b = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    float loss = 0, extra = 0;
    if (b < B) {
        float weight = weighted ? weights[rows[b]] : 1.0f;
        float z[NARROW], slopes[NARROW] = {0}, scale = weight / B;
        EACH_OUTPUT(h, width) z[h] = scores[b * H + h];
        loss = narrow_loss(kind, smoothing, targets, rows[b], z, width, slopes);
        bool bad = !isfinite(loss);
        EACH_OUTPUT(h, width) bad |= !isfinite(z[h]);
        EACH_OUTPUT(h, H)
            grad[b * H + h] = operand_of(bad || h >= width ? 0.0f : slopes[h] * scale);
        loss *= weight;
        extra = weight - 1;
        if (bad) {
            loss = extra = 0;
            atomicAdd(&totals[SKIPPED], 1.0);
            raise_to(&totals[SKIPPED_ROW], numbers[b] + 1.0);
        }
    }
    loss = sum_of_lanes(loss, 1);
    if (threadIdx.x % LANES == 0) atomicAdd(&totals[LOSS], (double)loss);
    if (!weighted) return;
    extra = sum_of_lanes(extra, 1);
    if (threadIdx.x % LANES == 0) atomicAdd(&totals[EXTRA_WEIGHT], (double)extra);
}

// Precision at 1, 3 and 5 times `weight`, added to totals[METRIC_SUMS...] by thread 0.
__device__ void add_precisions(const int* present, long long count, int width, const float* z,
                               double weight, double* totals)
{
    float value = INF;
    int column = -1, found = 0;
    for (int rank = 1; rank <= 5; rank++) {
        if (column < width) column = block_next_best(z, width, value, column);
        if (column < width) {
            value = z[column];
            for (long long n = 0; n < count; n++) found += present[n] == column;
        }
        if (threadIdx.x == 0 && rank % 2 == 1)
            atomicAdd(&totals[METRIC_SUMS + rank / 2], weight * found / rank);
    }
}

extern "C" __global__ void loss_and_metrics(
    long long kind, const float* targets, const long long* indptr, const int* indices,
    const float* weights, long long weighted, const long long* rows, long long width, long long H,
    const float* scores, double* totals)
{
    long long row = rows[blockIdx.x];
    const float* z = scores + blockIdx.x * H;
    const int y = LABEL_LISTS(kind) ? 0 : (int)targets[row];
    const int* present = LABEL_LISTS(kind) ? indices + indptr[row] : &y;
    long long count = LABEL_LISTS(kind) ? indptr[row + 1] - indptr[row] : 1;
    float loss;
    double metric_sums = 0, weight = weighted ? weights[row] : 1.0f;
    if (NORMALISED(kind)) loss = softmax_loss(present, count, width, z, 0, 0, 0);
    else if (kind == MULTILABEL) loss = multilabel_loss(present, count, width, z, 0, 0);
    else loss = scalar_losses(kind, targets + row * width, width, z, 0, 0, 0);
    if (!isfinite(loss)) {
        if (threadIdx.x == 0) atomicAdd(&totals[SKIPPED], 1.0);
        return;
    }
    if (LABEL_LISTS(kind)) add_precisions(present, count, width, z, weight, totals);
    else if (NORMALISED(kind)) metric_sums = block_next_best(z, width, INF, -1) == y;
    else if (BINARY(kind)) metric_sums = (z[0] > 0) == (y > 0);
    else for (int c = 0; c < width; c++) {
        float predicted = kind == POISSON ? expf(fminf(z[c], (float)LARGEST_LOG)) : z[c];
        double error = predicted - (double)targets[row * width + c];
        metric_sums += error * error;
    }
    if (threadIdx.x == 0) {
        atomicAdd(&totals[LOSS], weight * loss);
        if (weighted) atomicAdd(&totals[EXTRA_WEIGHT], weight - 1);
        if (!LABEL_LISTS(kind)) atomicAdd(&totals[METRIC_SUMS], weight * metric_sums);
    }
}
