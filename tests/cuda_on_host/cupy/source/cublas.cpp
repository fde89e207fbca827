// The part of libcublas needed for products of float and bfloat16 matrices. The product itself is
// computed by NumPy: the stand-in for CuPy registers a function that queues or captures it like a
// kernel.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef int (*Multiply)(void* stream, int transpose_a, int transpose_b, int m, int n, int k,
                        float alpha, const void* a, int lda, const void* b, int ldb, float beta,
                        void* c, int ldc, int compute, int type, int type_c);
static Multiply multiply;

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16BF = 14 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, FAST_16BF = 75, FAST_TF32 = 77 };

struct Handle {
    void* stream;
};

static bool fits(int leading, int rows) { return leading >= rows && leading >= 1; }

extern "C" {

void register_multiply(Multiply function) { multiply = function; }

int cublasCreate_v2(Handle** handle)
{
    if (!handle) return INVALID_VALUE;
    *handle = (Handle*)calloc(1, sizeof(Handle));
    return SUCCESS;
}

int cublasDestroy_v2(Handle* handle)
{
    if (!handle) return NOT_INITIALIZED;
    free(handle);
    return SUCCESS;
}

int cublasSetStream_v2(Handle* handle, void* stream)
{
    if (!handle) return NOT_INITIALIZED;
    handle->stream = stream;
    return SUCCESS;
}

int cublasSetWorkspace_v2(Handle* handle, void* workspace, size_t)
{
    if (!handle) return NOT_INITIALIZED;
    return (uintptr_t)workspace % 256 == 0 ? SUCCESS : INVALID_VALUE;
}

int cublasGemmEx(Handle* handle, int transpose_a, int transpose_b, int m, int n, int k,
                 const float* alpha, const void* a, int type_a, int lda, const void* b, int type_b,
                 int ldb, const float* beta, void* c, int type_c, int ldc, int compute, int)
{
    if (!handle || !multiply) return NOT_INITIALIZED;
    bool full = type_a == R_32F && type_b == R_32F && type_c == R_32F;
    bool half = type_a == R_16BF && type_b == R_16BF && (type_c == R_16BF || type_c == R_32F)
                && (compute == COMPUTE_32F || compute == COMPUTE_32F_PEDANTIC);
    if (!full && !half) return NOT_SUPPORTED;
    if (compute != COMPUTE_32F && compute != COMPUTE_32F_PEDANTIC && compute != FAST_16BF
        && compute != FAST_TF32)
        return NOT_SUPPORTED;
    bool operations = transpose_a >> 1 == 0 && transpose_b >> 1 == 0;  // 0 or 1
    bool sizes = m >= 0 && n >= 0 && k >= 0;
    bool leading = fits(lda, transpose_a ? k : m) && fits(ldb, transpose_b ? n : k) && fits(ldc, m);
    if (!operations || !sizes || !leading || !alpha || !beta) return INVALID_VALUE;
    if (m == 0 || n == 0) return SUCCESS;
    return multiply(handle->stream, transpose_a, transpose_b, m, n, k, *alpha, a, lda, b, ldb,
                    *beta, c, ldc, compute, type_a, type_c);
}

const char* cublasGetStatusString(int status)
{
    switch (status) {
    case SUCCESS: return "success";
    case NOT_INITIALIZED: return "the library was not initialized";
    case INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "unknown";
    }
}

}  // extern "C"
