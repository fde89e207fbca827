// Dense layers, except their products (cuBLAS). One block per row of the batch.

extern "C" __global__ void gather_dense(const float* dense, const long long* rows, long long F,
                                        long long K, Operand* out)
{
    const float* row = dense + rows[blockIdx.x] * F;
    EACH_COLUMN(k, K) out[blockIdx.x * K + k] = operand_of(k < F ? row[k] : 0.0f);
}

extern "C" __global__ void to_operands(const float* values, long long count, Operand* out)
{
    EACH(i, count) out[i] = operand_of(values[i]);
}

extern "C" __global__ void add_bias_and_activate(const Operand* bias, long long kind, long long width,
                                                 long long H, Operand* out)
{
    Operand* row = out + blockIdx.x * H;
    EACH_COLUMN(h, H) {
        float z = value_of(row[h]) + value_of(bias[h]);
        row[h] = operand_of(h < width ? activated(kind, z) : 0.0f);
    }
}

// blockIdx.x selects columns, blockIdx.y rows: a wide layer has more columns than a batch has rows.
extern "C" __global__ void add_bias(const float* bias, long long B, long long width, long long H,
                                    float* out)
{
    long long h = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (h >= H) return;
    float mine = bias[h];
    for (long long b = blockIdx.y; b < B; b += gridDim.y)
        out[b * H + h] = h < width ? out[b * H + h] + mine : 0.0f;
}

extern "C" __global__ void activate_backward(long long kind, long long count,
                                             const Operand* activated, Operand* grad)
{
    EACH(i, count) {
        float a = value_of(activated[i]), slope = 1;
        if (kind == RELU) slope = a > 0 ? 1.0f : 0.0f;
        else if (kind == SIGMOID) slope = a * (1 - a);
        else if (kind == TANH) slope = 1 - a * a;
        grad[i] = operand_of(slope * value_of(grad[i]));
    }
}

extern "C" __global__ void scale(double fraction, long long count, Operand* grad)
{
    EACH(i, count) grad[i] = operand_of((float)fraction * value_of(grad[i]));
}

#define BOUND_LAYERS 32  // of one launch

// Inputs x[., K] of a layer and the gradient of its outputs, grad[., H]. Passed by value: a captured
// step keeps a copy, and no table of addresses has to be written to the device first.
struct BoundLayer {
    const Operand* x;
    Operand* grad;
    long long K, H;
};
struct BoundLayers {
    BoundLayer layers[BOUND_LAYERS];
};

// blockIdx.x is the row, blockIdx.y the layer. `repeats`: how often a gradient is added in total,
// 1 / (1 - momentum).
extern "C" __global__ void bound_rows(const double* rate, double repeats, long long B,
                                      BoundLayers all)
{
    BoundLayer layer = all.layers[blockIdx.y];
    const Operand* row = layer.x + blockIdx.x * layer.K;
    float square = 0;
    EACH_COLUMN(k, layer.K) square += value_of(row[k]) * value_of(row[k]);
    shrink_far(*rate * repeats / B * block_sum(square), layer.H, layer.grad + blockIdx.x * layer.H);
}

// sum_columns: threadIdx.x selects a column, threadIdx.y rows. The blocks with one blockIdx.x share
// columns: each writes its sums to a row of `parts`[gridDim.y, H], and the last one adds these up.
// So one launch is sufficient, and its result is the same each time; with atomicAdd, another launch
// would have to clear `out`, and the order of additions would vary.
#define SUM_THREADS 1024  // of a block

// The sum of column[row * H] over the rows first, first + step, ... Bypasses the L1 cache, which
// may hold old values of `parts`.
template <class T>
__device__ float sum_of_rows(const T* column, long long H, long long rows, long long first,
                             long long step)
{
    float sum = 0;
    for (; first + (UNROLLED - 1) * step < rows; first += UNROLLED * step) {
#pragma unroll
        for (int n = 0; n < UNROLLED; n++) sum += value_of(__ldcg(column + (first + n * step) * H));
    }
#pragma unroll 1
    for (; first < rows; first += step) sum += value_of(__ldcg(column + first * H));
    return sum;
}

// The sum over the threads of a block with this threadIdx.x, returned to the first of them.
__device__ float sum_over_y(float mine)
{
    __shared__ float sums[SUM_THREADS];
    int cell = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads();  // `sums` of an earlier call have been read
    sums[cell] = mine;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) sums[cell] += sums[cell + half * blockDim.x];
    }
    return sums[cell];
}

// Whether all blocks with this blockIdx.x have written their parts; true in the last of them only.
// `finished` counts them, and is 0 again at the end, because atomicInc wraps to 0.
__device__ bool is_last(unsigned* finished)
{
    __threadfence();
    __syncthreads();
    bool last = false;
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicInc(&finished[blockIdx.x], gridDim.y - 1) == gridDim.y - 1;
        __threadfence();
    }
    return __syncthreads_or(last);
}

// out[H] = fraction * sum over B of grad[B, H], plus out[H] if `add`.
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
sum_columns(double fraction, long long add, long long B, long long H, const Operand* grad,
            float* parts, unsigned* finished, float* out)
{
    long long h = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long first = blockIdx.y * (long long)blockDim.y + threadIdx.y;
    long long step = gridDim.y * (long long)blockDim.y;
    float sum = sum_over_y(h < H ? sum_of_rows(grad + h, H, B, first, step) : 0.0f);
    if (gridDim.y > 1) {
        if (threadIdx.y == 0 && h < H) parts[blockIdx.y * H + h] = sum;
        if (!is_last(finished)) return;
        sum = h < H ? sum_of_rows(parts + h, H, gridDim.y, threadIdx.y, blockDim.y) : 0.0f;
        sum = sum_over_y(sum);
    }
    if (threadIdx.y == 0 && h < H)
        out[h] = (add ? out[h] : 0.0f) + (float)fraction * sum;
}

extern "C" __global__ void forget_not_finite(const double* totals, long long count, Operand* values)
{
    if (totals[SKIPPED] == 0) return;
    EACH(i, count) if (!isfinite(value_of(values[i]))) values[i] = 0;
}

extern "C" __global__ void step(long long kind, const double* rate, double l2, double momentum,
                                double beta2, double epsilon, long long count,
                                const float* gradient, float* first, float* second, float* weights)
{
    EACH(i, count)
        step_cell(kind, rate, l2, momentum, beta2, epsilon, gradient[i], first, second, weights, i);
}
