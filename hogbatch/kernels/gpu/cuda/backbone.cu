// Layers below the dense ones, except their products. Rows of x[B, .] and out[B, .] are pictures
// [height, width, channels]. Values are float32: no such network has operands in bfloat16.

// A number from -shift to shift, from 32 random bits.
__device__ int shifted_by(unsigned bits, long long shift)
{
    return (int)((long long)bits * (2 * shift + 1) >> 32) - (int)shift;
}

// out[., height * width * channels] = pictures that are mirrored and moved at random, as in
// kernels/augmentation.py
extern "C" __global__ void gather_augmented(long long count, long long height, long long width,
                                            long long channels, long long flip, long long shift,
                                            const float* dense, const long long* rows,
                                            const long long* numbers, const unsigned* key, float* out)
{
    unsigned first = mixed(*key + 0xFFFFFFFFu);
    long long size = height * width * channels;
    EACH(n, count) {
        long long b = n / size, cell = n % size / channels;
        unsigned drawn = mixed(first + (unsigned)numbers[b]);
        bool mirrored = flip && mixed(drawn) >> 31;
        int down = shifted_by(mixed(drawn + 0x9E3779B9u), shift);
        int across = shifted_by(mixed(drawn + 2 * 0x9E3779B9u), shift);
        int y = cell / width, x = cell % width;
        y = min(max(y + down, 0), (int)height - 1);
        x = min(max((mirrored ? (int)width - 1 - x : x) + across, 0), (int)width - 1);
        out[n] = dense[rows[b] * size + (y * width + x) * channels + n % channels];
    }
}

// An id from 1 to V - 1, or 0 for another number.
__device__ int id_of(float x, long long V)
{
    return x > 0 && x < V ? (int)x : 0;
}

// out[., E] = the row of vectors[V, E] of each id, or 0 for id 0.
extern "C" __global__ void look_up(long long count, long long V, long long E, const float* x,
                                   const float* vectors, float* out)
{
    EACH(n, count) {
        int id = id_of(x[n / E], V);
        out[n] = id ? vectors[id * E + n % E] : 0;
    }
}

// Each number as a sparse row: feature id with the value 1, or feature 0 with the value 0.
extern "C" __global__ void as_sparse(long long count, long long V, const float* x, int* indices,
                                     float* values)
{
    EACH(n, count) {
        int id = id_of(x[n], V);
        indices[n] = id, values[n] = id ? 1 : 0;
    }
}

// The windows of a convolution, or those of pooling, which are next to each other.
struct Windows {
    int height, width, channels;  // of the input
    int out_height, out_width;
    int cells_high, cells_wide;  // of a window
    int stride_y, stride_x, dilation, top, left;
};

// The values of N channels, which are read and written together: 4, or 1 if the channels are not a
// multiple of 4. A count of them is below 2^32.
template <int N>
struct __align__(4 * N) Few {
    float cells[N];
};

#define EACH_OF(n, N) _Pragma("unroll") for (int n = 0; n < (N); n++)

// Calls work<N>(w, channels / N, ...) for the N that fits.
#define IN_FEWS(work, w, count, ...)                                                  \
    if ((w).channels % 4 == 0)                                                        \
        work<4>(w, (w).channels / 4, (count) / 4, __VA_ARGS__);                       \
    else                                                                              \
        work<1>(w, (w).channels, count, __VA_ARGS__)

template <int N>
__device__ void take(Windows w, unsigned channels, long long count, const float* x, float* patches)
{
    EACH(n, count) {
        unsigned rest = n, c = rest % channels;  // a channel of the cell (i, j) of a window
        unsigned j = (rest /= channels) % w.cells_wide, i = (rest /= w.cells_wide) % w.cells_high;
        unsigned left = (rest /= w.cells_high) % w.out_width, top = (rest /= w.out_width) % w.out_height;
        unsigned b = rest / w.out_height;
        int column = (int)(left * w.stride_x + j * w.dilation) - w.left;
        int row = (int)(top * w.stride_y + i * w.dilation) - w.top;
        Few<N> found = {};
        if (row >= 0 && row < w.height && column >= 0 && column < w.width) {
            long long cell = ((long long)b * w.height + row) * w.width + column;
            found = ((const Few<N>*)x)[cell * channels + c];
        }
        ((Few<N>*)patches)[n] = found;
    }
}

extern "C" __global__ void take_patches(Windows w, long long count, const float* x, float* patches)
{
    IN_FEWS(take, w, count, x, patches);
}

// The number of the window that begins at `y`, or -1.
__device__ int window_of(int y, int stride, int count)
{
    return y >= 0 && y % stride == 0 && y / stride < count ? y / stride : -1;
}

// Each thread adds up all patches that contain its inputs, so nothing is added atomically.
template <int N>
__device__ void gather(Windows w, unsigned channels, long long count, const float* patches, float* out)
{
    EACH(n, count) {
        unsigned rest = n, c = rest % channels;
        int x = (rest /= channels) % w.width, y = (rest /= w.width) % w.height;
        long long first = rest / w.height * (long long)w.out_height;
        Few<N> sum = {};
        for (int i = 0; i < w.cells_high; i++) {
            int row = window_of(y + w.top - i * w.dilation, w.stride_y, w.out_height);
            if (row < 0) continue;
            for (int j = 0; j < w.cells_wide; j++) {
                int column = window_of(x + w.left - j * w.dilation, w.stride_x, w.out_width);
                if (column < 0) continue;
                long long window = (first + row) * w.out_width + column;
                long long cell = (window * w.cells_high + i) * w.cells_wide + j;
                Few<N> more = ((const Few<N>*)patches)[cell * channels + c];
                EACH_OF(m, N) sum.cells[m] += more.cells[m];
            }
        }
        ((Few<N>*)out)[n] = sum;
    }
}

extern "C" __global__ void add_patches(Windows w, long long count, const float* patches, float* out)
{
    IN_FEWS(gather, w, count, patches, out);
}

// Where the window of output n begins in the input.
__device__ long long window_start(Windows w, unsigned channels, unsigned n)
{
    unsigned c = n % channels;
    unsigned x = (n /= channels) % w.out_width, y = (n /= w.out_width) % w.out_height;
    long long row = n / w.out_height * (long long)w.height + y * w.cells_high;
    return (row * w.width + x * w.cells_wide) * channels + c;
}

#define EACH_CELL(at, w, channels, start)                                                    \
    for (int i = 0; i < (w).cells_high; i++)                                                 \
        for (long long j = 0, at = (start) + (long long)i * (w).width * (channels);          \
             j < (w).cells_wide; j++, at += (channels))

template <int N>
__device__ void reduce(Windows w, unsigned channels, long long count, long long mean, const float* x,
                       float* out)
{
    EACH(n, count) {
        long long start = window_start(w, channels, n);
        Few<N> found = ((const Few<N>*)x)[start];
        if (mean) found = {};
        EACH_CELL(at, w, channels, start) {
            Few<N> cell = ((const Few<N>*)x)[at];
            EACH_OF(m, N) {
                float value = cell.cells[m];
                if (mean)
                    found.cells[m] += value / (w.cells_high * w.cells_wide);
                else if (value > found.cells[m] || value != value)  // nan stays
                    found.cells[m] = value;
            }
        }
        ((Few<N>*)out)[n] = found;
    }
}

extern "C" __global__ void pool(Windows w, long long mean, long long count, const float* x, float* out)
{
    IN_FEWS(reduce, w, count, mean, x, out);
}

// Sets only cells that are in a window. `kind` is the activation whose values are x.
template <int N>
__device__ void spread(Windows w, unsigned channels, long long count, long long mean, long long kind,
                       const float* x, const float* out, const float* grad, float* below)
{
    EACH(n, count) {
        Few<N> change = ((const Few<N>*)grad)[n], largest = ((const Few<N>*)out)[n];
        if (mean) EACH_OF(m, N) change.cells[m] /= w.cells_high * w.cells_wide;
        EACH_CELL(at, w, channels, window_start(w, channels, n)) {
            Few<N> cell = ((const Few<N>*)x)[at], set;
            EACH_OF(m, N) {
                bool taken = mean || cell.cells[m] == largest.cells[m];
                set.cells[m] = taken ? change.cells[m] * slope(kind, cell.cells[m]) : 0;
                if (taken && !mean) change.cells[m] = 0;  // the first of equal values has all of it
            }
            ((Few<N>*)below)[at] = set;
        }
    }
}

extern "C" __global__ void pool_backward(Windows w, long long mean, long long count, long long kind,
                                         const float* x, const float* out, const float* grad,
                                         float* below)
{
    IN_FEWS(spread, w, count, mean, kind, x, out, grad, below);
}

// The gates of input, forgetting, candidates and output are [., 4 H]. The second has a bias of 1.
// starts[N] = the steps of x[N, T, F] in front whose values are all 0. The lanes of a warp look at
// different steps of a row.
extern "C" __global__ void first_steps(long long N, long long T, long long F, const float* x,
                                       float* starts)
{
    EACH(n, N * LANES) {
        float first = T;
        for (long long t = n % LANES; t < first; t += LANES) {
            const float* values = x + (n / LANES * T + t) * F;
            for (long long f = 0; f < F && t < first; f++) if (values[f] != 0) first = t;
        }
        for (int apart = 1; apart < LANES; apart *= 2)
            first = fminf(first, __shfl_xor_sync(~0u, first, apart));
        if (n % LANES == 0) starts[n / LANES] = first;
    }
}

// out[., T, F] = x with the steps from number `starts` of a row on reversed, and those before.
extern "C" __global__ void reverse_steps(long long count, long long T, long long F,
                                         const float* starts, const float* x, float* out)
{
    EACH(n, count) {
        long long row = n / F / T, source = ((long long)starts[row] - 1 - n / F % T) % T;
        out[n] = x[(row * T + (source < 0 ? source + T : source)) * F + n % F];
    }
}

// gates[., B, H] = value in the first starts[B] steps; rows of H are `width` apart.
extern "C" __global__ void set_in_padding(long long count, long long B, long long H,
                                          long long width, double value, const float* starts,
                                          float* gates)
{
    EACH(n, count)
        if (n / H / B < starts[n / H % B]) gates[n / H * width + n % H] = value;
}

extern "C" __global__ void lstm_step(long long count, long long H, float* gates, const float* added,
                                     const float* before, float* cells, float* states)
{
    EACH(n, count) {
        long long at = n / H * 4 * H + n % H;
        float* own = gates + at;
        const float* more = added + at;
        float i = sigmoid(own[0] + more[0]), f = sigmoid(own[H] + more[H] + 1);
        float g = tanhf(own[2 * H] + more[2 * H]), o = sigmoid(own[3 * H] + more[3 * H]);
        float cell = f * before[n] + i * g;
        own[0] = i, own[H] = f, own[2 * H] = g, own[3 * H] = o;
        cells[n] = cell;
        states[n] = o * tanhf(cell);
    }
}

// given[B, .] has rows of `stride` values, H of which belong to this step; stride 0: there are none.
extern "C" __global__ void lstm_step_backward(long long count, long long H, float* gates,
                                              const float* before, const float* cells,
                                              long long stride, const float* given,
                                              const float* state, float* cell)
{
    EACH(n, count) {
        long long b = n / H, h = n % H;
        float* own = gates + b * 4 * H + h;
        float i = own[0], f = own[H], g = own[2 * H], o = own[3 * H];
        float seen = tanhf(cells[n]), total = state[n] + (stride ? given[b * stride + h] : 0);
        float change = cell[n] + total * o * (1 - seen * seen);
        own[0] = change * g * i * (1 - i);
        own[H] = change * before[n] * f * (1 - f);
        own[2 * H] = change * i * (1 - g * g);
        own[3 * H] = total * seen * o * (1 - o);
        cell[n] = change * f;
    }
}

// The gates [., 3 H] are candidates, reset and update, those of `added` reset, update and candidates.
extern "C" __global__ void gru_step(long long count, long long H, float* gates, const float* added,
                                    const float* before, float* states)
{
    EACH(n, count) {
        long long at = n / H * 3 * H + n % H;
        float* own = gates + at;
        const float* more = added + at;
        float r = sigmoid(own[H] + more[0]), z = sigmoid(own[2 * H] + more[H]);
        float candidate = tanhf(own[0] + r * more[2 * H]);
        own[0] = candidate, own[H] = r, own[2 * H] = z;
        states[n] = candidate + z * (before[n] - candidate);
    }
}

extern "C" __global__ void gru_step_backward(long long count, long long H, float* gates, float* added,
                                             const float* before, long long stride,
                                             const float* given, const float* state, float* direct)
{
    EACH(n, count) {
        long long b = n / H, h = n % H;
        float *own = gates + b * 3 * H + h, *more = added + b * 3 * H + h;
        float candidate = own[0], r = own[H], z = own[2 * H];
        float total = state[n] + direct[n] + (stride ? given[b * stride + h] : 0);
        float change = total * (1 - z) * (1 - candidate * candidate);
        direct[n] = total * z;
        own[0] = change;
        own[H] = more[0] = change * more[2 * H] * r * (1 - r);
        own[2 * H] = more[H] = total * (before[n] - candidate) * z * (1 - z);
        more[2 * H] = change * r;
    }
}

// The lanes of a warp process a row[C]: the row n / LANES, and the channels n % LANES + i LANES.
#define EACH_CHANNEL(at, n, C)                                                          \
    for (long long at = (n) / LANES * (C) + (n) % LANES; at < ((n) / LANES + 1) * (C); at += LANES)

// normal[N, C] = (x - mean) * inverse of each row, and out[N, C] = f((1 + gain) normal + bias).
extern "C" __global__ void normalise(long long N, long long C, long long kind, const float* x,
                                     const float* gain, const float* bias, float* normal,
                                     float* inverse, float* out)
{
    EACH(n, N * LANES) {
        float total = 0, squares = 0;
        EACH_CHANNEL(at, n, C) total += x[at];
        float mean = sum_of_lanes(total, 1) / C;
        EACH_CHANNEL(at, n, C) squares += (x[at] - mean) * (x[at] - mean);
        float factor = 1 / sqrtf(sum_of_lanes(squares, 1) / C + (float)LEAST_VARIANCE);
        EACH_CHANNEL(at, n, C) {
            normal[at] = (x[at] - mean) * factor;
            out[at] = activated(kind, (1 + gain[at % C]) * normal[at] + bias[at % C]);
        }
        if (n % LANES == 0) inverse[n / LANES] = factor;
    }
}

// Also multiplies `normal` by `grad`: the sum over rows is the gradient of the gain.
extern "C" __global__ void normalise_backward(long long N, long long C, float* normal,
                                              const float* inverse, const float* gain,
                                              const float* grad, float* below)
{
    EACH(n, N * LANES) {
        float total = 0, product = 0;
        EACH_CHANNEL(at, n, C) {
            float change = grad[at] * (1 + gain[at % C]);
            total += change, product += change * normal[at];
        }
        float mean = sum_of_lanes(total, 1) / C, slope = sum_of_lanes(product, 1) / C;
        EACH_CHANNEL(at, n, C) {
            float given = grad[at], change = given * (1 + gain[at % C]) - mean - slope * normal[at];
            normal[at] *= given;
            below[at] = change * inverse[n / LANES];
        }
    }
}
