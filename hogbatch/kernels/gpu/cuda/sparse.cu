// CSR inputs: a batch is a list of row numbers of the whole set. Kernels with an argument B are
// launched by over_batch in launch.py: a warp or more for each row of the batch, without barriers.

#define BATCH_ROW (blockIdx.x * (long long)blockDim.z + threadIdx.z)
#define COLUMN (int)(blockIdx.y * blockDim.x + threadIdx.x)

// One block per row of the batch.
extern "C" __global__ void gather_sparse(const long long* indptr, const int* indices,
                                         const float* values, const long long* rows, long long K,
                                         Operand* out)
{
    Operand* row = out + blockIdx.x * K;
    EACH_COLUMN(k, K) row[k] = 0;
    __syncthreads();
    long long begin = indptr[rows[blockIdx.x]];
    int count = indptr[rows[blockIdx.x] + 1] - begin;
    for (int j = threadIdx.x; j < count; j += blockDim.x)
        add_to(&row[indices[begin + j]], values[begin + j]);
}

// The first cell of a feature's row in a table[F, H], which may have more than 2^31 cells. This
// product of two unsigned numbers is one instruction; one of two long longs is several.
__device__ unsigned long long first_cell(int feature, long long H)
{
    return (unsigned long long)(unsigned)feature * (unsigned)H;
}

// The product of a column of weights[F, H] and every blockDim.y-th of the `count` stored values of
// a row, from the value threadIdx.y on.
__device__ float part_of_product(const int* indices, const float* values, int count, long long H,
                                 const float* column)
{
    float sum = 0;
    int step = blockDim.y, j = threadIdx.y;
    for (; j + (UNROLLED - 1) * step < count; j += UNROLLED * step) {
#pragma unroll
        for (int n = 0; n < UNROLLED; n++)
            sum += values[j + n * step] * column[first_cell(indices[j + n * step], H)];
    }
#pragma unroll 1
    for (; j < count; j += step) sum += values[j] * column[first_cell(indices[j], H)];
    return sum;
}

// A warp reads adjacent weights; those of several features if there are fewer columns than LANES.
extern "C" __global__ void csr_forward(const long long* indptr, const int* indices,
                                       const float* values, const long long* rows, long long B,
                                       const float* weights, const float* bias, long long kind,
                                       long long width, long long H, Operand* out)
{
    long long b = BATCH_ROW;
    int h = COLUMN;
    float sum = 0;
    if (b < B && h < width) {
        long long begin = indptr[rows[b]];
        int count = indptr[rows[b] + 1] - begin;
        sum = part_of_product(indices + begin, values + begin, count, H, weights + h);
    }
    sum = sum_of_lanes(sum, blockDim.x);
    if (b < B && h < H && threadIdx.y == 0)
        out[b * H + h] = operand_of(h < width ? activated(kind, sum + bias[h]) : 0.0f);
}

// One warp per row.
extern "C" __global__ void csr_bound_rows(const double* rate, double repeats,
                                          const long long* indptr, const float* values,
                                          const long long* rows, long long B, long long H,
                                          Operand* grad)
{
    long long b = BATCH_ROW;
    if (b >= B) return;
    long long begin = indptr[rows[b]];
    int count = indptr[rows[b] + 1] - begin;
    float square = 0;
    for (int j = threadIdx.x; j < count; j += LANES)
        square += values[begin + j] * values[begin + j];
    shrink_far(*rate * repeats / B * sum_of_lanes(square, 1), threadIdx.x, H, grad + b * H);
}

// Marks the features of a row in `head`[F] (-1: not marked), and lists those not marked before.
__device__ void list_features(const int* indices, int count, int* head, int* touched, int* found)
{
    for (int j = threadIdx.y * blockDim.x + threadIdx.x; j < count; j += blockDim.x * blockDim.y) {
        int feature = indices[j];
        if (head[feature] == -1 && atomicExch(&head[feature], 0) == -1)
            touched[atomicAdd(found, 1)] = feature;
    }
}

extern "C" __global__ void find_touched(const long long* indptr, const int* indices,
                                        const long long* rows, long long B, int* head, int* touched,
                                        int* found)
{
    long long b = BATCH_ROW;
    if (b >= B) return;
    long long begin = indptr[rows[b]];
    list_features(indices + begin, indptr[rows[b] + 1] - begin, head, touched, found);
}

extern "C" __global__ void unmark(const int* touched, const int* found, int* head)
{
    EACH_TOUCHED(t, found) head[touched[t]] = -1;
}

// csr_step in two launches: list the features, and add up their gradients in `sums`[F, H]; update.
// Before and after, `sums` is 0 and `head` is -1 everywhere.
extern "C" __global__ void add_up(const long long* indptr, const int* indices, const float* values,
                                  const long long* rows, long long B, long long H,
                                  const Operand* grad, float* sums, int* head, int* touched,
                                  int* found)
{
    long long b = BATCH_ROW;
    if (b >= B) return;
    long long begin = indptr[rows[b]];
    int h = COLUMN, count = indptr[rows[b] + 1] - begin;
    float slope = h < H ? value_of(grad[b * H + h]) : 0.0f;
    if (slope != 0)
        for (int j = threadIdx.y; j < count; j += blockDim.y)
            atomicAdd(&sums[first_cell(indices[begin + j], H) + h], values[begin + j] * slope);
    if (blockIdx.y == 0) list_features(indices + begin, count, head, touched, found);
}

extern "C" __global__ void step_touched(long long kind, const double* rate, double l2,
                                        double momentum, double beta2, double epsilon,
                                        const int* touched, const int* found, long long H,
                                        float* sums, int* head, float* first, float* second,
                                        float* weights)
{
    EACH_TOUCHED(t, found) {
        long long row = touched[t] * H;
        EACH_COLUMN(h, H) {
            step_cell(kind, rate, l2, momentum, beta2, epsilon, sums[row + h], first, second,
                      weights, row + h);
            sums[row + h] = 0;
        }
        if (threadIdx.x == 0) head[touched[t]] = -1;
    }
}
