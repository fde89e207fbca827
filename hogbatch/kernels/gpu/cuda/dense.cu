// Dense layers without their matrix products, which cuBLAS computes. One block per row of the batch.

extern "C" __global__ void gather_dense(const float* dense, const long long* rows, long long F,
                                        long long K, float* out)
{
    const float* row = dense + rows[blockIdx.x] * F;
    EACH_COLUMN(k, K) out[blockIdx.x * K + k] = k < F ? row[k] : 0.0f;
}

extern "C" __global__ void add_bias_and_activate(const float* bias, long long kind, long long width,
                                                 long long H, float* out)
{
    float* row = out + blockIdx.x * H;
    EACH_COLUMN(h, H) row[h] = h < width ? activated(kind, row[h] + bias[h]) : 0.0f;
}

// Columns by blockIdx.x, rows by blockIdx.y: a wide layer has more columns than a batch has rows.
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
                                             const float* activated, float* grad)
{
    EACH(i, count) {
        float a = activated[i];
        if (kind == RELU) grad[i] *= a > 0 ? 1.0f : 0.0f;
        else if (kind == SIGMOID) grad[i] *= a * (1 - a);
        else if (kind == TANH) grad[i] *= 1 - a * a;
    }
}

extern "C" __global__ void scale(double fraction, long long count, float* grad)
{
    EACH(i, count) grad[i] *= (float)fraction;
}

// `repeats`: how many times a gradient counts in the end, 1 / (1 - momentum).
extern "C" __global__ void bound_rows(const double* rate, double repeats, long long B, long long K,
                                      long long H, const float* x, float* grad)
{
    float square = 0;
    EACH_COLUMN(k, K) square += x[blockIdx.x * K + k] * x[blockIdx.x * K + k];
    shrink_far(*rate * repeats / B * block_sum(square), H, grad + blockIdx.x * H);
}

// out[H] = fraction * sum over B of grad[B, H], or, if `add`, out[H] += that. COLUMNS neighbours fill a
// sector of 32 bytes, and LANES threads divide the rows of each column among them.
#define COLUMNS 8
#define LANES 128
extern "C" __global__ void sum_columns(double fraction, long long add, long long B, long long H,
                                       const float* grad, float* out)
{
    __shared__ float sums[LANES][COLUMNS];
    int column = threadIdx.x % COLUMNS, lane = threadIdx.x / COLUMNS;
    long long h = blockIdx.x * COLUMNS + column;
    float sum = 0;
    if (h < H)
        for (long long b = lane; b < B; b += LANES) sum += grad[b * H + h];
    sums[lane][column] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) sums[lane][column] += sums[lane + half][column];
    }
    if (lane == 0 && h < H)
        out[h] = (add ? out[h] : 0.0f) + (float)fraction * sums[0][column];
}

extern "C" __global__ void forget_not_finite(const double* totals, long long count, float* values)
{
    if (totals[SKIPPED] == 0) return;
    EACH(i, count) if (!isfinite(values[i])) values[i] = 0;
}

extern "C" __global__ void step(long long kind, const double* rate, double l2, double momentum,
                                double beta2, double epsilon, long long count,
                                const float* gradient, float* first, float* second, float* weights)
{
    EACH(i, count)
        step_cell(kind, rate, l2, momentum, beta2, epsilon, gradient[i], first, second, weights, i);
}
