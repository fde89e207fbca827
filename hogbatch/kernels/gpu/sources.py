"""The CUDA C of the gpu backend, as text: one compilation unit per entry of SOURCES.

Plain CUDA C with extern "C" names, so that NVRTC compiles it with or without CuPy and a GPU.
Arguments follow what CuPy passes for Python numbers: every integer is a long long, every number a
double. Kinds and cells of `totals` are the numbers of kernels/contract.py, put in as #defines.
"""

from typing import Final

from hogbatch.kernels import contract

_NAMES = """
    RELU SIGMOID TANH  LOGISTIC HINGE SOFTMAX MULTILABEL SQUARED
    SGD MOMENTUM ADAGRAD ADAM  FURTHEST  LOSS SKIPPED HITS
"""
_DEFINES = "".join(f"#define {name} {getattr(contract, name)}\n" for name in _NAMES.split())

# A grid-stride loop: any grid covers any count.
_EACH = """
#define EACH(i, count) \\
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (count); \\
         i += gridDim.x * (long long)blockDim.x)
"""

# One cell of `Kernels.step`; 1 - beta is taken in double, where it is exact enough.
_STEP = """
__device__ void step_cell(long long kind, double rate, double l2, double momentum, double beta2,
                          double epsilon, float gradient, float* first, float* second,
                          float* weights, long long cell)
{
    float w = weights[cell];
    float g = gradient + (float)l2 * w;
    if (kind == SGD) {
        w -= (float)rate * g;
    } else if (kind == MOMENTUM) {
        first[cell] = (float)momentum * first[cell] + g;
        w -= (float)rate * first[cell];
    } else if (kind == ADAGRAD) {
        first[cell] += g * g;
        w -= (float)rate * g / (sqrtf(first[cell]) + (float)epsilon);
    } else if (kind == ADAM) {
        first[cell] += (float)(1 - momentum) * (g - first[cell]);
        second[cell] += (float)(1 - beta2) * (g * g - second[cell]);
        w -= (float)rate * first[cell] / (sqrtf(second[cell]) + (float)epsilon);
    }
    weights[cell] = w;
}
"""

# One block a row of the batch; the block's size is a power of two, at most BLOCK.
_REDUCE = """
#define BLOCK 256
#define INF __int_as_float(0x7f800000)

__device__ float block_sum(float mine)
{
    __shared__ float sums[BLOCK];
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    float total = sums[0];
    __syncthreads();
    return total;
}
"""

# Shrinks one row's gradient, where its own step would move it by more than FURTHEST gradients.
_BOUND = """
__device__ void shrink_far(double moved, long long H, float* grad)
{
    if (moved <= FURTHEST) return;
    float share = FURTHEST / moved;
    for (long long h = threadIdx.x; h < H; h += blockDim.x) grad[h] *= share;
}
"""

_SIGMOID = """
__device__ float sigmoid(float z)
{
    float small = expf(-fabsf(z));
    return (z < 0 ? small : 1.0f) / (1.0f + small);
}
"""

_DENSE = """
extern "C" __global__ void gather(const float* dense, const long long* rows, long long count,
                                  long long F, long long K, float* out)
{
    EACH(i, count) {
        long long k = i % K;
        out[i] = k < F ? dense[rows[i / K] * F + k] : 0.0f;
    }
}

// nan stays nan, so that the loss can see it and skip the row.
extern "C" __global__ void activate(long long kind, long long width, long long count, long long H,
                                    float* out)
{
    EACH(i, count) {
        float z = out[i];
        if (i % H >= width) z = 0.0f;
        else if (kind == RELU) z = z < 0 ? 0.0f : z;
        else if (kind == SIGMOID) z = sigmoid(z);
        else if (kind == TANH) z = tanhf(z);
        out[i] = z;
    }
}

extern "C" __global__ void activate_backward(long long kind, long long count,
                                             const float* activated, float* grad)
{
    EACH(i, count) {
        float a = activated[i];
        if (kind == RELU) grad[i] *= a > 0 ? 1.0f : 0.0f;
        else if (kind == SIGMOID) grad[i] *= a * (1 - a);
        else if (kind == TANH) grad[i] *= 1 - a * a;
    }
}

// One block a row of the batch.
extern "C" __global__ void bound_rows(double rate, long long B, long long K, long long H,
                                      const float* x, float* grad)
{
    float square = 0;
    for (long long k = threadIdx.x; k < K; k += blockDim.x)
        square += x[blockIdx.x * K + k] * x[blockIdx.x * K + k];
    shrink_far(rate / B * block_sum(square), H, grad + blockIdx.x * H);
}

extern "C" __global__ void step(long long kind, double rate, double l2, double momentum,
                                double beta2, double epsilon, long long count,
                                const float* gradient, float* first, float* second, float* weights)
{
    EACH(i, count)
        step_cell(kind, rate, l2, momentum, beta2, epsilon, gradient[i], first, second, weights, i);
}
"""

# csr_step in four launches: find the touched features, clear their sums, add up, step. `head`[F]
# marks what has been found (-1: not yet), and is -1 everywhere again at the end. Of `sums`[F, H]
# only the rows of touched features are ever written or read.
_SPARSE = """
// One thread a cell of out[B, H]: neighbours read neighbouring weights.
extern "C" __global__ void csr_forward(const long long* indptr, const int* indices,
                                       const float* values, const long long* rows, long long count,
                                       long long H, const float* weights, const float* bias,
                                       float* out)
{
    EACH(i, count) {
        long long row = rows[i / H], h = i % H;
        float sum = 0;
        for (long long j = indptr[row]; j < indptr[row + 1]; j++)
            sum += values[j] * weights[indices[j] * H + h];
        out[i] = sum + bias[h];
    }
}

// One block a row of the batch.
extern "C" __global__ void csr_bound_rows(double rate, const long long* indptr, const float* values,
                                          const long long* rows, long long B, long long H,
                                          float* grad)
{
    float square = 0;
    for (long long j = indptr[rows[blockIdx.x]] + threadIdx.x; j < indptr[rows[blockIdx.x] + 1];
         j += blockDim.x)
        square += values[j] * values[j];
    shrink_far(rate / B * block_sum(square), H, grad + blockIdx.x * H);
}

// One block a row of the batch.
extern "C" __global__ void find_touched(const long long* indptr, const int* indices,
                                        const long long* rows, int* head, int* touched, int* found)
{
    long long row = rows[blockIdx.x];
    for (long long j = indptr[row] + threadIdx.x; j < indptr[row + 1]; j += blockDim.x) {
        int feature = indices[j];
        if (head[feature] == -1 && atomicExch(&head[feature], 0) == -1)
            touched[atomicAdd(found, 1)] = feature;
    }
}

extern "C" __global__ void clear_touched(const int* touched, const int* found, long long H,
                                         float* sums)
{
    EACH(i, *found * H)
        sums[touched[i / H] * H + i % H] = 0;
}

// One block a row of the batch: sums[f] += X[b, f] * grad[b].
extern "C" __global__ void add_up(const long long* indptr, const int* indices, const float* values,
                                  const long long* rows, long long H, const float* grad,
                                  float* sums)
{
    long long begin = indptr[rows[blockIdx.x]], end = indptr[rows[blockIdx.x] + 1];
    for (long long i = threadIdx.x; i < (end - begin) * H; i += blockDim.x) {
        long long j = begin + i / H, h = i % H;
        atomicAdd(&sums[indices[j] * H + h], values[j] * grad[blockIdx.x * H + h]);
    }
}

extern "C" __global__ void step_touched(long long kind, double rate, double l2, double momentum,
                                        double beta2, double epsilon, const int* touched,
                                        const int* found, long long H, const float* sums, int* head,
                                        float* first, float* second, float* weights)
{
    EACH(i, *found * H) {
        long long cell = touched[i / H] * H + i % H;
        step_cell(kind, rate, l2, momentum, beta2, epsilon, sums[cell], first, second, weights,
                  cell);
        if (i % H == 0) head[touched[i / H]] = -1;
    }
}
"""

_BEST = """
// The first column of z[0, width) that is greatest among those after (value, column) in the order
// value descending, column ascending; `width` if there is none. Start with (inf, -1).
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
"""

_LOSSES = """
// nan stays nan: the second term keeps it, though fmaxf does not.
__device__ float softplus(float z) { return fmaxf(z, 0.0f) + log1pf(expf(-fabsf(z))); }

// Losses of one score, by one thread: the loss, and its slope through `slope`.
__device__ float scalar_loss(long long kind, float y, float z, float* slope)
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
    *slope = -sign * sigmoid(-margin);
    return softplus(-margin);
}

// Losses of a row, by one block. `slopes`, if given, gets the row's slope times `scale`.
__device__ float softmax_loss(int y, int width, const float* z, float scale, float* slopes)
{
    float top = z[block_next_best(z, width, INF, -1) % width];
    float mine = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x) mine += expf(z[c] - top);
    float sum = block_sum(mine);
    if (slopes)
        for (int c = threadIdx.x; c < width; c += blockDim.x)
            slopes[c] = (expf(z[c] - top) / sum - (c == y ? 1.0f : 0.0f)) * scale;
    return logf(sum) - (z[y] - top);
}

__device__ float multilabel_loss(const int* present, long long count, int width, const float* z,
                                 float scale, float* slopes)
{
    float mine = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        mine += softplus(z[c]);
        if (slopes) slopes[c] = sigmoid(z[c]) * scale;
    }
    __syncthreads();
    for (long long n = threadIdx.x; n < count; n += blockDim.x) {
        float true_score = z[present[n]];
        mine -= true_score;
        if (slopes) slopes[present[n]] = -sigmoid(-true_score) * scale;
    }
    return block_sum(mine);
}

extern "C" __global__ void loss_gradient(
    long long kind, const float* targets, const long long* indptr, const int* indices,
    const long long* rows, long long B, long long width, long long H, const float* scores,
    float* grad, double* totals)
{
    long long row = rows[blockIdx.x];
    const float* z = scores + blockIdx.x * H;
    float* slopes = grad + blockIdx.x * H;
    float scale = 1.0f / B, loss;
    for (int h = threadIdx.x; h < H; h += blockDim.x) slopes[h] = 0;
    __syncthreads();
    if (kind == SOFTMAX) {
        loss = softmax_loss((int)targets[row], width, z, scale, slopes);
    } else if (kind == MULTILABEL) {
        const int* present = indices + indptr[row];
        loss = multilabel_loss(present, indptr[row + 1] - indptr[row], width, z, scale, slopes);
    } else {
        float slope;
        loss = scalar_loss(kind, targets[row], z[0], &slope);
        if (threadIdx.x == 0) slopes[0] = slope * scale;
    }
    __syncthreads();
    int bad = !isfinite(loss);
    for (int h = threadIdx.x; h < width; h += blockDim.x) bad |= !isfinite(slopes[h]);
    bad = __syncthreads_or(bad);
    if (bad)
        for (int h = threadIdx.x; h < width; h += blockDim.x) slopes[h] = 0;
    if (threadIdx.x == 0) atomicAdd(&totals[bad ? SKIPPED : LOSS], bad ? 1.0 : (double)loss);
}

// Precision at 1, 3 and 5, added to totals[HITS...] by thread 0.
__device__ void add_precisions(const int* present, long long count, int width, const float* z,
                               double* totals)
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
            atomicAdd(&totals[HITS + rank / 2], (double)found / rank);
    }
}

extern "C" __global__ void loss_and_hits(
    long long kind, const float* targets, const long long* indptr, const int* indices,
    const long long* rows, long long width, long long H, const float* scores, double* totals)
{
    long long row = rows[blockIdx.x];
    const float* z = scores + blockIdx.x * H;
    const int* present = kind == MULTILABEL ? indices + indptr[row] : indices;
    long long count = kind == MULTILABEL ? indptr[row + 1] - indptr[row] : 0;
    float y = kind == MULTILABEL ? 0.0f : targets[row];
    float loss, slope, hits = 0;
    if (kind == SOFTMAX) loss = softmax_loss((int)y, width, z, 0, 0);
    else if (kind == MULTILABEL) loss = multilabel_loss(present, count, width, z, 0, 0);
    else loss = scalar_loss(kind, y, z[0], &slope);
    int bad = !isfinite(loss);
    for (int h = threadIdx.x; h < width; h += blockDim.x) bad |= !isfinite(z[h]);
    if (__syncthreads_or(bad)) {
        if (threadIdx.x == 0) atomicAdd(&totals[SKIPPED], 1.0);
        return;
    }
    if (kind == MULTILABEL) add_precisions(present, count, width, z, totals);
    else if (kind == SOFTMAX) hits = block_next_best(z, width, INF, -1) == (int)y;
    else if (kind == SQUARED) hits = (z[0] - y) * (z[0] - y);
    else hits = (z[0] > 0) == (y > 0);
    if (threadIdx.x == 0) {
        atomicAdd(&totals[LOSS], (double)loss);
        if (kind != MULTILABEL) atomicAdd(&totals[HITS], (double)hits);
    }
}
"""

SOURCES: Final = {
    "dense": _DEFINES + _EACH + _STEP + _REDUCE + _BOUND + _SIGMOID + _DENSE,
    "sparse": _DEFINES + _EACH + _STEP + _REDUCE + _BOUND + _SPARSE,
    "losses": _DEFINES + _REDUCE + _BEST + _SIGMOID + _LOSSES,
}

KERNELS: Final = {  # the extern "C" names of each source
    "dense": ("gather", "activate", "activate_backward", "bound_rows", "step"),
    "sparse": (
        *("csr_forward", "csr_bound_rows"),
        *("find_touched", "clear_touched", "add_up", "step_touched"),
    ),
    "losses": ("loss_gradient", "loss_and_hits"),
}
