// The part of libcublasLt needed for products of real matrices, plain or with an epilogue. The
// product itself is computed by NumPy: the stand-in for CuPy registers a function that queues or
// captures it like a kernel, and one that says which epilogues have an algorithm.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <initializer_list>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16BF = 14 };
enum { COMPUTE_32F = 68, FAST_16BF = 75, FAST_TF32 = 77 };
enum { DEFAULT = 1, RELU = 2, BIAS = 4, BGRADA = 256, BGRADB = 512 };

struct Descriptor {
    int compute, scale, transpose_a, transpose_b;
    unsigned epilogue;
    void* bias;
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
};

struct Preference {
    uint64_t workspace;
    uint32_t alignments[4];
};

// What an algorithm is for; cublasLtMatmul refuses anything else.
struct Algorithm {
    uint32_t number, epilogue, alignments[4], of_bias, reserved;
    uint64_t workspace, unused[3];
};
static_assert(sizeof(Algorithm) == 64, "cublasLtMatmulAlgo_t");

struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct Call {  // what `multiply` gets, in this order
    void* stream;
    int transpose_a, transpose_b, type, type_out, compute, epilogue;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const void *a, *b;
    void *c, *bias;
};

typedef int (*Multiply)(const Call*);
typedef int (*Supports)(int epilogue);
static Multiply multiply;
static Supports supports;

static bool is_aligned(const void* pointer, uint32_t bytes) { return (uintptr_t)pointer % bytes == 0; }

static uint32_t alignment_of(const void* pointer)
{
    for (uint32_t bytes = 256;; bytes /= 2)
        if (is_aligned(pointer, bytes)) return bytes;
}

static bool needs_bias(unsigned epilogue) { return epilogue & (BIAS | BGRADA | BGRADB); }

static bool known(unsigned epilogue)
{
    static const unsigned all[] = {DEFAULT, RELU, BIAS, RELU | BIAS, BGRADA, BGRADB};
    for (unsigned each : all)
        if (each == epilogue) return true;
    return false;
}

static int check(const Descriptor* d, const Layout* a, const Layout* b, const Layout* c,
                 const Layout* out)
{
    uint64_t m = d->transpose_a ? a->columns : a->rows, k = d->transpose_a ? a->rows : a->columns;
    uint64_t n = d->transpose_b ? b->rows : b->columns, kb = d->transpose_b ? b->columns : b->rows;
    if (k != kb || out->rows != m || out->columns != n || c->rows != m || c->columns != n)
        return INVALID_VALUE;
    if (m == 0 || n == 0 || k == 0) return INVALID_VALUE;  // not documented
    for (const Layout* each : {a, b, c, out})
        if (each->leading < (int64_t)each->rows) return INVALID_VALUE;
    if (needs_bias(d->epilogue) && !d->bias) return INVALID_VALUE;
    bool full = a->type == R_32F && b->type == R_32F && out->type == R_32F;
    bool half = a->type == R_16BF && b->type == R_16BF && (out->type == R_16BF || out->type == R_32F)
                && d->compute == COMPUTE_32F;
    if (d->scale != R_32F || c->type != out->type || !(full || half)) return NOT_SUPPORTED;
    if (d->compute != COMPUTE_32F && d->compute != FAST_16BF && d->compute != FAST_TF32)
        return NOT_SUPPORTED;
    if (!known(d->epilogue)) return NOT_SUPPORTED;
    if (d->epilogue == BGRADA && d->transpose_a) return NOT_SUPPORTED;
    if (d->epilogue == BGRADB && !d->transpose_b) return NOT_SUPPORTED;
    return SUCCESS;
}

template <class T> static int create(T** made)
{
    if (!made) return INVALID_VALUE;
    *made = (T*)calloc(1, sizeof(T));
    return SUCCESS;
}

template <class T> static int destroy(T* made)
{
    free(made);
    return SUCCESS;
}

extern "C" {

void register_functions(Multiply first, Supports second) { multiply = first, supports = second; }

int cublasLtCreate(int** handle) { return create(handle); }
int cublasLtDestroy(int* handle) { return handle ? destroy(handle) : NOT_INITIALIZED; }

int cublasLtMatmulDescCreate(Descriptor** made, int compute, int scale)
{
    int status = create(made);
    if (!status) (*made)->compute = compute, (*made)->scale = scale, (*made)->epilogue = DEFAULT;
    return status;
}

int cublasLtMatmulDescDestroy(Descriptor* made) { return destroy(made); }

int cublasLtMatmulDescSetAttribute(Descriptor* made, int attribute, const void* value, size_t size)
{
    struct { int attribute; void* field; size_t size; } fields[] = {
        {3, &made->transpose_a, 4}, {4, &made->transpose_b, 4}, {7, &made->epilogue, 4},
        {8, &made->bias, 8},
    };
    for (auto& each : fields)
        if (each.attribute == attribute && each.size == size && value) {
            memcpy(each.field, value, size);
            return SUCCESS;
        }
    return INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns,
                               int64_t leading)
{
    int status = create(made);
    if (!status) **made = {type, rows, columns, leading};
    return status;
}

int cublasLtMatrixLayoutDestroy(Layout* made) { return destroy(made); }

int cublasLtMatmulPreferenceCreate(Preference** made)
{
    int status = create(made);
    if (!status) **made = {0, {256, 256, 256, 256}};
    return status;
}

int cublasLtMatmulPreferenceDestroy(Preference* made) { return destroy(made); }

int cublasLtMatmulPreferenceSetAttribute(Preference* made, int attribute, const void* value,
                                         size_t size)
{
    void* field = attribute == 1 ? (void*)&made->workspace
                  : attribute >= 5 && attribute <= 8 ? &made->alignments[attribute - 5] : 0;
    if (!field || !value || size != (attribute == 1 ? 8u : 4u)) return INVALID_VALUE;
    memcpy(field, value, size);
    return SUCCESS;
}

// Its algorithms depend on every alignment that the caller promises; there are two, which are equal.
int cublasLtMatmulAlgoGetHeuristic(int* handle, const Descriptor* description, const Layout* a,
                                   const Layout* b, const Layout* c, const Layout* out,
                                   const Preference* preference, int wanted, Result* results,
                                   int* count)
{
    if (!handle || !supports) return NOT_INITIALIZED;
    if (wanted <= 0 || !results || !count) return INVALID_VALUE;
    *count = 0;
    int status = check(description, a, b, c, out);
    if (status) return status;
    if (!supports(description->epilogue)) return NOT_SUPPORTED;
    Algorithm chosen = {1, description->epilogue};
    memcpy(chosen.alignments, preference->alignments, sizeof chosen.alignments);
    chosen.of_bias = needs_bias(chosen.epilogue) ? alignment_of(description->bias) : 1;
    chosen.workspace = preference->workspace;
    for (*count = 0; *count < wanted && *count < 2; ++*count) {
        chosen.number = *count + 1;
        results[*count] = {chosen, chosen.workspace, SUCCESS, 1};
    }
    return SUCCESS;
}

int cublasLtMatmul(int* handle, const Descriptor* description, const float* alpha, const void* a,
                   const Layout* of_a, const void* b, const Layout* of_b, const float* beta,
                   const void* c, const Layout* of_c, void* out, const Layout* of_out,
                   const Algorithm* algorithm, void* workspace, size_t size, void* stream)
{
    if (!handle || !multiply) return NOT_INITIALIZED;
    if (!alpha || !beta || !a || !b || !out || !algorithm) return INVALID_VALUE;
    if (algorithm->number < 1 || algorithm->number > 2) return INVALID_VALUE;
    int status = check(description, of_a, of_b, of_c, of_out);
    if (status) return status;
    const Descriptor& d = *description;
    const void* pointers[] = {a, b, c, out};
    for (int each = 0; each < 4; each++)
        if (!is_aligned(pointers[each], algorithm->alignments[each])) return INVALID_VALUE;
    if (needs_bias(d.epilogue) && !is_aligned(d.bias, algorithm->of_bias)) return INVALID_VALUE;
    if (d.epilogue != algorithm->epilogue || size < algorithm->workspace) return INVALID_VALUE;
    if (algorithm->workspace && (!workspace || !is_aligned(workspace, 256))) return INVALID_VALUE;
    if (*beta != 0 && c != out) return NOT_SUPPORTED;  // the stand-in has no third matrix
    int64_t k = d.transpose_a ? of_a->rows : of_a->columns;
    Call call = {stream, d.transpose_a, d.transpose_b, of_a->type, of_out->type, d.compute,
                 (int)d.epilogue, (int64_t)of_out->rows, (int64_t)of_out->columns, k, of_a->leading,
                 of_b->leading, of_out->leading, *alpha, *beta, a, b, out, d.bias};
    return multiply(&call);
}

}  // extern "C"
