// CSR inputs: a batch is given by row numbers into the whole set. One block per row of the batch.

extern "C" __global__ void gather_sparse(const long long* indptr, const int* indices,
                                         const float* values, const long long* rows, long long K,
                                         float* out)
{
    float* row = out + blockIdx.x * K;
    EACH_COLUMN(k, K) row[k] = 0;
    __syncthreads();
    long long begin = indptr[rows[blockIdx.x]], end = indptr[rows[blockIdx.x] + 1];
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x)
        atomicAdd(&row[indices[j]], values[j]);
}

// Neighbouring threads read neighbouring weights.
extern "C" __global__ void csr_forward(const long long* indptr, const int* indices,
                                       const float* values, const long long* rows,
                                       const float* weights, const float* bias, long long kind,
                                       long long width, long long H, float* out)
{
    long long begin = indptr[rows[blockIdx.x]], end = indptr[rows[blockIdx.x] + 1];
    EACH_COLUMN(h, H) {
        float sum = 0;
        for (long long j = begin; j < end; j++) sum += values[j] * weights[indices[j] * H + h];
        out[blockIdx.x * H + h] = h < width ? activated(kind, sum + bias[h]) : 0.0f;
    }
}

extern "C" __global__ void csr_bound_rows(const double* rate, double repeats,
                                          const long long* indptr, const float* values,
                                          const long long* rows, long long B, long long H,
                                          float* grad)
{
    float square = 0;
    long long begin = indptr[rows[blockIdx.x]], end = indptr[rows[blockIdx.x] + 1];
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x)
        square += values[j] * values[j];
    shrink_far(*rate * repeats / B * block_sum(square), H, grad + blockIdx.x * H);
}

// csr_step in four launches: find the touched features, clear their sums, add up, step. `head`[F]
// marks the features found (-1: not yet), and is -1 everywhere again at the end. Only the rows of
// touched features are written or read in `sums`[F, H].
extern "C" __global__ void find_touched(const long long* indptr, const int* indices,
                                        const long long* rows, int* head, int* touched, int* found)
{
    long long begin = indptr[rows[blockIdx.x]], end = indptr[rows[blockIdx.x] + 1];
    for (long long j = begin + threadIdx.x; j < end; j += blockDim.x) {
        int feature = indices[j];
        if (head[feature] == -1 && atomicExch(&head[feature], 0) == -1)
            touched[atomicAdd(found, 1)] = feature;
    }
}

extern "C" __global__ void unmark(const int* touched, const int* found, int* head)
{
    EACH(t, *found) head[touched[t]] = -1;
}

extern "C" __global__ void clear_touched(const int* touched, const int* found, long long H,
                                         float* sums)
{
    EACH(i, *found * H)
        sums[touched[i / H] * H + i % H] = 0;
}

// sums[f] += X[b, f] * grad[b]
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

extern "C" __global__ void step_touched(long long kind, const double* rate, double l2,
                                        double momentum, double beta2, double epsilon,
                                        const int* touched, const int* found, long long H,
                                        const float* sums, int* head, float* first, float* second,
                                        float* weights)
{
    EACH(i, *found * H) {
        long long cell = touched[i / H] * H + i % H;
        step_cell(kind, rate, l2, momentum, beta2, epsilon, sums[cell], first, second, weights,
                  cell);
        if (i % H == 0) head[touched[i / H]] = -1;
    }
}
