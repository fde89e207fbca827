// Dense layers, except their products (cuBLASLt).

// One block per row of the batch.
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

// The output of column h, from its product.
__device__ Operand output_of(Operand product, Operand bias, long long kind, int h, int width)
{
    float z = value_of(product) + value_of(bias);
    return operand_of(h < width ? activated(kind, z) : 0.0f);
}

extern "C" __global__ void add_bias_and_activate(const Operand* bias, long long kind, long long width,
                                                 long long count, long long H, Operand* out)
{
    if (H % PACKET == 0 && starts_packet(bias) && starts_packet(out)) {
        unsigned packets = H / PACKET;  // of a row
        EACH(i, count / PACKET) {
            unsigned at = i % packets;
            Packet mine = ((const Packet*)bias)[at], z = ((const Packet*)out)[i];
#pragma unroll
            for (int n = 0; n < PACKET; n++)
                z.cells[n] = output_of(z.cells[n], mine.cells[n], kind, at * PACKET + n, width);
            ((Packet*)out)[i] = z;
        }
    } else {
        EACH(i, count) out[i] = output_of(out[i], bias[i % H], kind, i % H, width);
    }
}

// Dropout: a random number below `limit` sets an output to 0.
extern "C" __global__ void drop(const unsigned* key, long long layer, long long limit, double factor,
                                const long long* numbers, long long width, long long count,
                                long long H, Operand* out)
{
    unsigned first = mixed(*key + (unsigned)layer);
    EACH(i, count) {
        unsigned h = i % H, row = mixed(first + (unsigned)numbers[i / H]);
        bool kept = h < width && mixed(row + h * 0x9E3779B9u) >= limit;
        out[i] = operand_of(kept ? (float)factor * value_of(out[i]) : 0.0f);
    }
}

extern "C" __global__ void activate_backward(long long kind, long long count,
                                             const Operand* activated, Operand* grad)
{
    bool aligned = starts_packet(activated) && starts_packet(grad);
    long long packets = aligned ? count / PACKET : 0;
    EACH(i, packets) {
        Packet a = ((const Packet*)activated)[i], g = ((const Packet*)grad)[i];
#pragma unroll
        for (int n = 0; n < PACKET; n++)
            g.cells[n] = operand_of(slope(kind, value_of(a.cells[n])) * value_of(g.cells[n]));
        ((Packet*)grad)[i] = g;
    }
    activated += packets * PACKET;
    grad += packets * PACKET;
    EACH(i, count - packets * PACKET)
        grad[i] = operand_of(slope(kind, value_of(activated[i])) * value_of(grad[i]));
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

// The part of one lane of a warp in the sum of row[K] squared.
__device__ float part_of_square(const Operand* row, int K, int lane)
{
    float sum = 0;
    int packets = starts_packet(row) ? K / PACKET : 0;
#pragma unroll 4
    for (int i = lane; i < packets; i += LANES) {
        Packet x = ((const Packet*)row)[i];
#pragma unroll
        for (int n = 0; n < PACKET; n++) sum += value_of(x.cells[n]) * value_of(x.cells[n]);
    }
    for (int k = packets * PACKET + lane; k < K; k += LANES)
        sum += value_of(row[k]) * value_of(row[k]);
    return sum;
}

// A warp per row; blockIdx.y is the layer. `repeats`: how often a gradient is added in total,
// 1 / (1 - momentum). B rows step together, `rows` of which are here.
extern "C" __global__ void bound_rows(const double* rate, double repeats, long long B,
                                      long long rows, BoundLayers all)
{
    BoundLayer layer = all.layers[blockIdx.y];
    long long b = blockIdx.x * (long long)(blockDim.x / LANES) + threadIdx.x / LANES;
    int lane = threadIdx.x % LANES;
    if (b >= rows) return;
    float square = sum_of_lanes(part_of_square(layer.x + b * layer.K, layer.K, lane), 1);
    shrink_far(*rate * repeats / B * square, lane, layer.H, layer.grad + b * layer.H);
}

// Narrow layers: cuBLAS has slow products for them, because their rows are not a multiple of 16 bytes
// long. With bfloat16, one of them took longer than all other products of a step.

// out[B, H] = x[B, K] @ weights[K, H] + bias[H]; a warp per row.
extern "C" __global__ void narrow_forward(const Operand* x, const Operand* weights,
                                          const float* bias, long long width, long long B,
                                          long long K, long long H, float* out)
{
    long long b = blockIdx.x * (long long)(blockDim.x / LANES) + threadIdx.x / LANES;
    int lane = threadIdx.x % LANES;
    if (b >= B) return;
    float sums[NARROW] = {0};
#pragma unroll 4
    for (int k = lane; k < K; k += LANES) {
        float value = value_of(x[b * K + k]), mine[NARROW];
        load_outputs(weights + k * H, H, mine);
        EACH_OUTPUT(h, H) sums[h] += value * mine[h];
    }
    EACH_OUTPUT(h, H) sums[h] = sum_of_lanes(sums[h], 1);
    if (lane == 0) EACH_OUTPUT(h, H) out[b * H + h] = h < width ? sums[h] + bias[h] : 0.0f;
}

// out[B, K] = (grad[B, H] @ weights[K, H].T) * slope of activated[B, K]. A thread computes one
// column, so it reads its weights once.
extern "C" __global__ void narrow_backward(const Operand* grad, const Operand* weights,
                                           long long kind, const Operand* activated, long long B,
                                           long long K, long long H, Operand* out)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= K) return;
    float mine[NARROW];
    load_outputs(weights + k * H, H, mine);
#pragma unroll 4
    for (long long b = blockIdx.y; b < B; b += gridDim.y) {
        float sum = 0, above[NARROW];
        load_outputs(grad + b * H, H, above);
        EACH_OUTPUT(h, H) sum += above[h] * mine[h];
        if (kind != LINEAR) sum *= slope(kind, value_of(activated[b * K + k]));
        out[b * K + k] = operand_of(sum);
    }
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

// out[K, H] = x[B, K].T @ grad[B, H], and bias[H] = the sum of grad over B, if `biased`: the column
// after the last of x is 1. Blocks share rows as in sum_columns; `parts`[gridDim.y, H, K + biased].
// Each output of each of the block's columns is added up by one thread.
extern "C" __global__ void __launch_bounds__(SUM_THREADS)
narrow_gradient(long long B, long long K, long long H, long long biased, const Operand* x,
                const Operand* grad, float* parts, unsigned* finished, float* out, float* bias)
{
    __shared__ float cells[NARROW * SUM_THREADS];
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x, columns = K + biased;
    float sums[NARROW] = {0};
    if (k < columns) {
        long long step = gridDim.y * (long long)blockDim.y;
#pragma unroll 4
        for (long long b = blockIdx.y * (long long)blockDim.y + threadIdx.y; b < B; b += step) {
            float value = k < K ? value_of(x[b * K + k]) : 1.0f, above[NARROW];
            load_outputs(grad + b * H, H, above);
            EACH_OUTPUT(h, H) sums[h] += value * above[h];
        }
    }
    int cell = threadIdx.y * blockDim.x + threadIdx.x;
    EACH_OUTPUT(h, H) cells[h * SUM_THREADS + cell] = sums[h];
    __syncthreads();
    int h = threadIdx.y;  // from here on
    bool adds = h < H && k < columns;
    float sum = 0;
    if (adds)
        for (int y = 0; y < blockDim.y; y++)
            sum += cells[h * SUM_THREADS + y * blockDim.x + threadIdx.x];
    if (gridDim.y > 1) {
        if (adds) parts[(blockIdx.y * H + h) * columns + k] = sum;
        if (!is_last(finished)) return;
        if (adds) sum = sum_of_rows(parts + h * columns + k, H * columns, gridDim.y, 0, 1);
    }
    if (adds) *(k < K ? out + k * H + h : bias + h) = sum;
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
