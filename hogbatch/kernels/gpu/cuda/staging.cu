// Copies rows of a set to the device, from device memory or from host memory that the device reads over
// the link. A warp's loads from one line of 128 bytes become one request on the link, and a request of
// 32 bytes costs nearly as much as one of 128. So each group of up to 8 adjacent threads reads whole
// aligned lines, with loads of 16 bytes, several of them before it stores the first.

#define AHEAD 4  // loads in flight per thread
#define SCANNERS 1024

// Stores the cells [at, at + 4) of `read` that lie within [first, end).
__device__ void store_cells(int4 read, long long at, long long first, long long end, int* out)
{
    if (at >= first && at < end) out[at - first] = read.x;
    if (at + 1 >= first && at + 1 < end) out[at + 1 - first] = read.y;
    if (at + 2 >= first && at + 2 < end) out[at + 2 - first] = read.z;
    if (at + 3 >= first && at + 3 < end) out[at + 3 - first] = read.w;
}

// out[count] = from[count], by the `lanes` threads of a group. The first and the last load may include
// cells beyond the row, in the same 16 bytes; they are not stored.
__device__ void copy_span(const int* from, long long count, int lane, int lanes, int* out)
{
    long long line = 4 * lanes;  // cells
    long long first = (long long)((size_t)from / sizeof(int)) & (line - 1);
    const int4* aligned = (const int4*)(from - first);
    for (long long at = 4 * lane; at < first + count; at += AHEAD * line) {
        int4 read[AHEAD];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
            long long cell = at + n * line;
            if (cell + 4 > first && cell < first + count) read[n] = __ldcs(aligned + cell / 4);
        }
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
            store_cells(read[n], at + n * line, first, first + count, out);
    }
}

// The groups of a grid process the rows in turn.
#define EACH_ROW(b, B, lanes)                                                                  \
    for (long long b = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / (lanes); b < (B);  \
         b += gridDim.x * (long long)blockDim.x / (lanes))

extern "C" __global__ void __launch_bounds__(1024)
copy_rows(const int* source, const long long* rows, long long B, long long width, long long lanes,
          int* out)
{
    EACH_ROW(b, B, lanes)
        copy_span(source + rows[b] * width, width, threadIdx.x % lanes, lanes, out + b * width);
}

extern "C" __global__ void __launch_bounds__(1024)
copy_cells(const int* source, const long long* starts, const long long* indptr, long long B,
           long long lanes, int* out)
{
    EACH_ROW(b, B, lanes) {
        long long begin = indptr[b];
        copy_span(source + starts[b], indptr[b + 1] - begin, threadIdx.x % lanes, lanes, out + begin);
    }
}

// starts[b] = the first cell of rows[b], lengths[b] = the number of its cells.
extern "C" __global__ void find_spans(const long long* indptr, const long long* rows, long long B,
                                      long long* starts, long long* lengths)
{
    EACH(b, B) {
        long long start = indptr[rows[b]];
        starts[b] = start;
        lengths[b] = indptr[rows[b] + 1] - start;
    }
}

// indptr[0] = 0; the lengths in indptr[1...B] are replaced by their running sums; stored = the last sum.
// One block, each thread of which adds up adjacent cells.
extern "C" __global__ void __launch_bounds__(SCANNERS)
add_lengths(long long B, long long* indptr, long long* stored)
{
    __shared__ long long sums[SCANNERS];
    long long share = (B + blockDim.x - 1) / blockDim.x;
    long long begin = 1 + threadIdx.x * share, end = min(begin + share, B + 1);
    long long sum = 0;
    for (long long b = begin; b < end; b++) sum += indptr[b];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        long long before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    long long total = sums[threadIdx.x] - sum;
    for (long long b = begin; b < end; b++) {
        total += indptr[b];
        indptr[b] = total;
    }
    if (threadIdx.x == 0) indptr[0] = 0;
    if (threadIdx.x == blockDim.x - 1) *stored = sums[threadIdx.x];
}
