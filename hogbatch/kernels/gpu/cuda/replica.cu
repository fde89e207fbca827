// Exchange of a replica's changes with the shared parameters; see ReplicaKernels in
// kernels/gpu/contract.py. `shared` may be host memory that the device accesses over the bus while other
// workers write it.

__device__ float taken(const float* params, float* base, long long i, float* finite)
{
    float change = params[i] - base[i];
    base[i] = params[i];
    if (!isfinite(change)) *finite = 0;
    return change;
}

// Replaces `base` by the pulled value, and keeps the change that has not been taken.
__device__ void rejoined(float pulled, float* params, float* base, long long i)
{
    params[i] = pulled + (params[i] - base[i]);
    base[i] = pulled;
}

extern "C" __global__ void take(const float* params, long long count, float* base, float* change,
                                float* finite)
{
    EACH(i, count) change[i] = taken(params, base, i, finite);
}

extern "C" __global__ void rejoin(const float* pulled, long long count, float* params, float* base)
{
    EACH(i, count) rejoined(pulled[i], params, base, i);
}

extern "C" __global__ void add(double fraction, const float* change, long long count, float* shared)
{
    EACH(i, count) shared[i] += (float)fraction * change[i];
}

extern "C" __global__ void add_damped(double scale, double fraction, const float* seen,
                                      long long count, const float* change, float* shared)
{
    EACH(i, count) {
        float now = shared[i], weight = (float)(fraction * scale);
        shared[i] = now + change[i] * (weight / ((float)scale + fabsf(now - seen[i])));
    }
}

// The same for touched rows only: `change`[t] belongs to row touched[t] of H columns.
extern "C" __global__ void take_rows(const int* touched, const int* found, long long H,
                                     const float* params, float* base, float* change, float* finite)
{
    EACH_TOUCHED(t, found) {
        long long row = touched[t] * H;
        EACH_COLUMN(h, H) change[t * H + h] = taken(params, base, row + h, finite);
    }
}

extern "C" __global__ void rejoin_rows(const int* touched, const int* found, long long H,
                                       const float* shared, float* params, float* base)
{
    EACH_TOUCHED(t, found) {
        long long row = touched[t] * H;
        EACH_COLUMN(h, H) rejoined(shared[row + h], params, base, row + h);
    }
}

extern "C" __global__ void add_rows(double fraction, const int* touched, const int* found, long long H,
                                    const float* change, float* shared)
{
    EACH_TOUCHED(t, found) {
        long long row = touched[t] * H;
        EACH_COLUMN(h, H) shared[row + h] += (float)fraction * change[t * H + h];
    }
}
