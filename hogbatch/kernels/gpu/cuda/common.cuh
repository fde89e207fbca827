// Shared by all kernels. Arguments have the types that CuPy passes for Python numbers: every integer
// is a long long, every number a double. This text is preceded by #defines from kernels/contract.py:
// the numbers of activations, losses and optimizers, sets of them such as ADAPTIVE(kind), FURTHEST,
// LARGEST, and the cells of `totals`.

#define BLOCK 256   // maximum threads of a block, a power of two
#define UNROLLED 4  // loads that a loop starts together, because each takes long
#define LANES 32    // threads of a warp
#define INF __int_as_float(0x7f800000)
#define LOWEST __int_as_float(0xff7fffff)  // the smallest finite float

// Operands of matrix products. With BFLOAT16 they are stored as the upper half of a float; kernels
// always compute in float.
__device__ float value_of(float operand) { return operand; }

#ifdef BFLOAT16
typedef unsigned short Operand;

__device__ float value_of(Operand operand) { return __uint_as_float((unsigned)operand << 16); }

// The nearest operand; of two equally near ones the one with an even last bit. NaN stays NaN.
__device__ Operand operand_of(float value)
{
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// *cell += value, atomically.
__device__ void add_to(Operand* cell, float value)
{
    Operand old = *cell, expected;
    do {
        expected = old;
        old = atomicCAS(cell, expected, operand_of(value_of(expected) + value));
    } while (old != expected);
}
#else
typedef float Operand;

__device__ Operand operand_of(float value) { return value; }

__device__ void add_to(Operand* cell, float value) { atomicAdd(cell, value); }
#endif

// 16 bytes of operands, which one instruction loads or stores.
#define PACKET (16 / (int)sizeof(Operand))
struct __align__(16) Packet {
    Operand cells[PACKET];
};

__device__ bool starts_packet(const Operand* cell) { return (unsigned long long)cell % 16 == 0; }

// A narrow layer has at most NARROW outputs; the loop over them is unrolled, so that an array of them
// is kept in registers.
#define NARROW 8
#define EACH_OUTPUT(h, H) \
    _Pragma("unroll") for (int h = 0; h < NARROW; h++) if (h < (H))

// Loads row[H] of a narrow layer, at once if it has NARROW cells.
__device__ void load_outputs(const Operand* row, int H, float* values)
{
    if (H == NARROW && starts_packet(row)) {
#pragma unroll
        for (int i = 0; i < NARROW / PACKET; i++) {
            Packet packet = ((const Packet*)row)[i];
#pragma unroll
            for (int n = 0; n < PACKET; n++) values[i * PACKET + n] = value_of(packet.cells[n]);
        }
    } else {
        EACH_OUTPUT(h, H) values[h] = value_of(row[h]);
    }
}

// A grid-stride loop: any grid covers any count. It is not unrolled, because memory limits these
// loops, and unrolling would add divisions of 64-bit integers.
#define EACH(i, count)                                                                   \
    _Pragma("unroll 1")                                                                  \
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (count);    \
         i += gridDim.x * (long long)blockDim.x)

// The rows t < *found of a list whose length only the device knows (over_touched in launch.py):
// threadIdx.y selects rows, and threadIdx.x the columns of a row, with EACH_COLUMN.
#define EACH_TOUCHED(t, found)                                                                  \
    _Pragma("unroll 1")                                                                         \
    for (long long t = blockIdx.x * (long long)blockDim.y + threadIdx.y, t##_end = *(found);    \
         t < t##_end; t += gridDim.x * (long long)blockDim.y)

// The threads of a block process the columns of one row.
#define EACH_COLUMN(h, width) for (int h = threadIdx.x; h < (width); h += blockDim.x)

// `mixed` in kernels/dropout.py
__device__ unsigned mixed(unsigned bits)
{
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
    return bits ^ bits >> 16;
}

// The sum over all threads of a block, returned to each of them; the block size is a power of two.
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

// The same for the largest; NaN is ignored.
__device__ float block_max(float mine)
{
    __shared__ float largest[BLOCK];
    largest[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
        __syncthreads();
    }
    float found = largest[0];
    __syncthreads();
    return found;
}

// The sum over the lanes of a warp whose numbers differ by multiples of `step`, a power of two. All
// lanes must call it.
__device__ float sum_of_lanes(float mine, int step)
{
    for (int apart = step; apart < LANES; apart *= 2)
        mine += __shfl_xor_sync(~0u, mine, apart);
    return mine;
}

__device__ float sigmoid(float z)
{
    float small = expf(-fabsf(z));
    return (z < 0 ? small : 1.0f) / (1.0f + small);
}

// Activation of z; NaN stays NaN, so that the loss can detect it and skip the row.
__device__ float activated(long long kind, float z)
{
    if (kind == RELU) return z < 0 ? 0.0f : z;
    if (kind == SIGMOID) return sigmoid(z);
    if (kind == TANH) return tanhf(z);
    if (kind == SELU) return z > 0 ? (float)SELU_SLOPE * z : (float)SELU_LIMIT * expm1f(z);
    return z;
}

// The derivative of an activation whose value is `a`.
__device__ float slope(long long kind, float a)
{
    if (kind == RELU) return a > 0 ? 1.0f : 0.0f;
    if (kind == SIGMOID) return a * (1 - a);
    if (kind == TANH) return 1 - a * a;
    if (kind == SELU) return a > 0 ? (float)SELU_SLOPE : a + (float)SELU_LIMIT;
    return 1;
}

// Scales down one row's gradient if its own step would move the output by more than FURTHEST
// gradients; called by the lanes of a warp.
__device__ void shrink_far(double moved, int lane, int H, Operand* grad)
{
    if (moved <= FURTHEST) return;
    float fraction = FURTHEST / moved;
    for (int h = lane; h < H; h += LANES) grad[h] = operand_of(fraction * value_of(grad[h]));
}

// One cell of `Kernels.step`: the update rules, as hogbatch/config/optimizers.py states them. 1 - beta is
// computed in double, where it is exact enough. The rate is read when the kernel runs, because a
// captured step is replayed with other rates.
__device__ void step_cell(long long kind, const double* rate, double l2, double momentum,
                          double beta2, double epsilon, float gradient, float* first,
                          float* second, float* weights, long long cell)
{
    float by = (float)*rate;
    float w = weights[cell];
    if (ADAPTIVE(kind) && !(fabsf(gradient) < (float)LARGEST)) gradient = 0;
    float decay = (float)l2 * w;
    float g = DECOUPLED(kind) ? gradient : gradient + decay;
    if (kind == SGD) {
        w -= by * g;
    } else if (kind == MOMENTUM) {
        first[cell] = (float)momentum * first[cell] + g;
        w -= by * first[cell];
    } else if (kind == ADAGRAD) {
        first[cell] += g * g;
        w -= by * g / (sqrtf(first[cell]) + (float)epsilon);
    } else if (kind == ADAM) {
        first[cell] += (float)(1 - momentum) * (g - first[cell]);
        second[cell] += (float)(1 - beta2) * (g * g - second[cell]);
        w -= by * (first[cell] / (sqrtf(second[cell]) + (float)epsilon) + decay);
    }
    weights[cell] = w;
}
