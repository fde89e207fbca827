// The exchange of a replica with the shared parameters; see kernels/contract.py, ReplicaKernels.
// `shared` may be host memory that the device accesses over the bus while CPU workers write it.

__device__ float taken(const float* params, float* base, long long i, float* finite)
{
    float change = params[i] - base[i];
    base[i] = params[i];
    if (!isfinite(change)) *finite = 0;
    return change;
}

// `pulled` replaces `base`; changes that were not taken yet are kept.
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

// The same for touched rows only: `change`[t] belongs to row touched[t] of H columns.
extern "C" __global__ void take_rows(const int* touched, const int* found, long long H,
                                     const float* params, float* base, float* change, float* finite)
{
    EACH(i, *found * H) change[i] = taken(params, base, touched[i / H] * H + i % H, finite);
}

extern "C" __global__ void rejoin_rows(const int* touched, const int* found, long long H,
                                       const float* shared, float* params, float* base)
{
    EACH(i, *found * H) {
        long long cell = touched[i / H] * H + i % H;
        rejoined(shared[cell], params, base, cell);
    }
}

extern "C" __global__ void add_rows(double fraction, const int* touched, const int* found, long long H,
                                    const float* change, float* shared)
{
    EACH(i, *found * H) shared[touched[i / H] * H + i % H] += (float)fraction * change[i];
}
