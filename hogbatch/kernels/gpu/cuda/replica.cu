// Exchange of a replica's changes with the shared parameters; see DeviceKernels in
// kernels/gpu/reference.py. `shared` may be host memory that the device accesses over the bus while other
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

extern "C" __global__ void hand_over(const float* pulled, long long count, float* params, float* base,
                                     float* seen, float* change, float* finite)
{
    EACH(i, count) {
        seen[i] += base[i];
        rejoined(pulled[i], params, base, i);
        change[i] = taken(params, base, i, finite);
    }
}

extern "C" __global__ void drain(double* from, long long count, double* to)
{
    EACH(i, count) {
        to[i] = from[i];
        from[i] = 0;
    }
}

// Adds to a shared parameter that is `now`; with a scale of 0, the change is not damped. Leaves in
// `seen` what it added minus the change.
__device__ void merge_one(float& now, float change, float& seen, float fraction, float scale)
{
    float damping = scale > 0 ? scale / (scale + fabsf(now - seen)) : 1.0f;
    float added = change * (fraction * damping);
    now += added;
    seen = added - change;
}

// The same for four of them.
__device__ void merge_four(float4 now, long long i, float fraction, float scale, float* seen,
                           const float* change, float* shared, float* pulled)
{
    float4 was = ((float4*)seen)[i], by = ((const float4*)change)[i];
    merge_one(now.x, by.x, was.x, fraction, scale);
    merge_one(now.y, by.y, was.y, fraction, scale);
    merge_one(now.z, by.z, was.z, fraction, scale);
    merge_one(now.w, by.w, was.w, fraction, scale);
    ((float4*)shared)[i] = now;
    ((float4*)pulled)[i] = now;
    ((float4*)seen)[i] = was;
}

// A load over the bus takes microseconds, so each thread starts AHEAD of them together, of 16 bytes.
// Then the few threads that over_link in launch.py starts keep the bus busy.
#define AHEAD 4
#define LINK_BLOCK 1024

extern "C" __global__ void __launch_bounds__(LINK_BLOCK)
    add(double fraction, double scale, float* seen, const float* change, long long count, float* shared,
        float* pulled)
{
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, i = first;
    long long stride = gridDim.x * (long long)blockDim.x;
    long long fours = (unsigned long long)shared % 16 == 0 ? count / 4 : 0;
    float by = (float)fraction, s = (float)scale;
#pragma unroll 1
    for (; i + (AHEAD - 1) * stride < fours; i += AHEAD * stride) {
        float4 now[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) now[n] = ((const float4*)shared)[i + n * stride];
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            merge_four(now[n], i + n * stride, by, s, seen, change, shared, pulled);
    }
#pragma unroll 1
    for (; i < fours; i += stride)
        merge_four(((const float4*)shared)[i], i, by, s, seen, change, shared, pulled);
#pragma unroll 1
    for (i = 4 * fours + first; i < count; i += stride) {
        float now = shared[i];
        merge_one(now, change[i], seen[i], by, s);
        pulled[i] = shared[i] = now;
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

__device__ float added(float now, float by, float change) { return now + by * change; }

__device__ float4 added(float4 now, float by, float4 change)
{
    return make_float4(added(now.x, by, change.x), added(now.y, by, change.y),
                       added(now.z, by, change.z), added(now.w, by, change.w));
}

// Cells is float or float4; a row has `width` of them.
template <class Cells>
__device__ void add_to_rows(float by, const int* touched, long long found, long long width,
                            const Cells* change, Cells* shared)
{
    long long stride = gridDim.x * (long long)blockDim.y;
    long long t = blockIdx.x * (long long)blockDim.y + threadIdx.y;
#pragma unroll 1
    for (; t < found; t += AHEAD * stride) {
        Cells* rows[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            rows[n] = t + n * stride < found ? shared + touched[t + n * stride] * width : 0;
#pragma unroll 1
        EACH_COLUMN(h, width) {
            Cells now[AHEAD];
#pragma unroll
            for (int n = 0; n < AHEAD; n++)
                if (rows[n]) now[n] = rows[n][h];
#pragma unroll
            for (int n = 0; n < AHEAD; n++)
                if (rows[n]) rows[n][h] = added(now[n], by, change[(t + n * stride) * width + h]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(LINK_BLOCK)
    add_rows(double fraction, const int* touched, const int* found, long long H, const float* change,
             float* shared)
{
    if (H % 4 == 0 && (unsigned long long)shared % 16 == 0)
        add_to_rows((float)fraction, touched, *found, H / 4, (const float4*)change, (float4*)shared);
    else
        add_to_rows((float)fraction, touched, *found, H, change, shared);
}
