// Layers below the dense ones, except their products. Rows of x[B, .] and out[B, .] are pictures
// [height, width, channels]. Values are float32: no such network has operands in bfloat16.

// The windows of a convolution, or those of pooling, which are next to each other.
struct Windows {
    int height, width, channels;  // of the input
    int out_height, out_width;
    int cells_high, cells_wide;  // of a window
    int stride_y, stride_x, dilation, top, left;
};

// Values are read and written in packets of 4 channels if possible. A count of packets is below
// 2^32: 64 GB.
struct __align__(16) Quad {
    float cells[4];
};
__device__ bool in_quads(Windows w, const float* x, const float* patches)
{
    return w.channels % 4 == 0 && (unsigned long long)x % 16 == 0
        && (unsigned long long)patches % 16 == 0;
}

// A value, or four, of the cell (i, j) of the window at (y, x) of picture b.
struct Place {
    unsigned b, y, x, i, j, c;
};
__device__ Place place_of(Windows w, unsigned n, unsigned channels)
{
    Place p;
    p.c = n % channels, n /= channels;
    p.j = n % w.cells_wide, n /= w.cells_wide;
    p.i = n % w.cells_high, n /= w.cells_high;
    p.x = n % w.out_width, n /= w.out_width;
    p.y = n % w.out_height;
    p.b = n / w.out_height;
    return p;
}

template <class Values>
__device__ void take(Windows w, unsigned channels, long long count, const Values* x, Values* patches)
{
    EACH(n, count) {
        Place p = place_of(w, n, channels);
        int y = (int)(p.y * w.stride_y + p.i * w.dilation) - w.top;
        int column = (int)(p.x * w.stride_x + p.j * w.dilation) - w.left;
        Values found = {};
        if (y >= 0 && y < w.height && column >= 0 && column < w.width)
            found = x[(((long long)p.b * w.height + y) * w.width + column) * channels + p.c];
        patches[n] = found;
    }
}

extern "C" __global__ void take_patches(Windows w, long long count, const float* x, float* patches)
{
    if (in_quads(w, x, patches))
        take(w, w.channels / 4, count / 4, (const Quad*)x, (Quad*)patches);
    else
        take(w, w.channels, count, x, patches);
}

__device__ void add(float* sum, float value) { *sum += value; }

__device__ void add(Quad* sum, Quad value)
{
#pragma unroll
    for (int n = 0; n < 4; n++) sum->cells[n] += value.cells[n];
}

// The number of the window that begins at `y`, or -1.
__device__ int window_of(int y, int stride, int count)
{
    return y >= 0 && y % stride == 0 && y / stride < count ? y / stride : -1;
}

// Each thread adds up all patches that contain its input, so nothing is added atomically.
template <class Values>
__device__ void gather(Windows w, unsigned channels, long long count, const Values* patches, Values* out)
{
    EACH(n, count) {
        unsigned rest = n, c = rest % channels;
        int x = (rest /= channels) % w.width, y = (rest /= w.width) % w.height;
        long long first = rest / w.height * (long long)w.out_height;
        Values sum = {};
        for (int i = 0; i < w.cells_high; i++) {
            int row = window_of(y + w.top - i * w.dilation, w.stride_y, w.out_height);
            if (row < 0) continue;
            for (int j = 0; j < w.cells_wide; j++) {
                int column = window_of(x + w.left - j * w.dilation, w.stride_x, w.out_width);
                if (column < 0) continue;
                long long window = (first + row) * w.out_width + column;
                long long cell = (window * w.cells_high + i) * w.cells_wide + j;
                add(&sum, patches[cell * channels + c]);
            }
        }
        out[n] = sum;
    }
}

extern "C" __global__ void add_patches(Windows w, long long count, const float* patches, float* out)
{
    if (in_quads(w, out, patches))
        gather(w, w.channels / 4, count / 4, (const Quad*)patches, (Quad*)out);
    else
        gather(w, w.channels, count, patches, out);
}

// Where the window of output n begins in the input.
__device__ long long window_start(Windows w, long long n)
{
    unsigned rest = n, c = rest % w.channels;
    unsigned x = (rest /= w.channels) % w.out_width, y = (rest /= w.out_width) % w.out_height;
    long long row = rest / w.out_height * (long long)w.height + y * w.cells_high;
    return (row * w.width + x * w.cells_wide) * w.channels + c;
}

#define EACH_CELL(at, w, start)                             \
    for (int i = 0; i < (w).cells_high; i++)                \
        for (long long j = 0, at = (start) + (long long)i * (w).width * (w).channels; \
             j < (w).cells_wide; j++, at += (w).channels)

extern "C" __global__ void pool(Windows w, long long mean, long long count, const float* x, float* out)
{
    EACH(n, count) {
        long long start = window_start(w, n);
        float sum = 0, largest = x[start];
        EACH_CELL(at, w, start) {
            float value = x[at];
            sum += value;
            if (value > largest || value != value) largest = value;  // nan stays
        }
        out[n] = mean ? sum / (w.cells_high * w.cells_wide) : largest;
    }
}

// Sets only cells that are in a window.
extern "C" __global__ void pool_backward(Windows w, long long mean, long long count, const float* x,
                                         const float* out, const float* grad, float* below)
{
    EACH(n, count) {
        float change = grad[n], largest = out[n];
        if (mean) change /= w.cells_high * w.cells_wide;
        EACH_CELL(at, w, window_start(w, n)) {
            bool taken = mean || x[at] == largest;
            below[at] = taken ? change : 0;
            if (taken && !mean) change = 0;  // the first of equal values has all of it
        }
    }
}

// The gates of input, forgetting, candidates and output are [., 4 H]. The second has a bias of 1.
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
