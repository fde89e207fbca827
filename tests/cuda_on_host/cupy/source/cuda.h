// CUDA C for the host: types, qualifiers, intrinsics. Inserted before a kernel source, which is put
// into an unnamed namespace; launch.h implements barriers and runs the threads.

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __noinline__ __attribute__((noinline))
// In a separate section, so that it can be overwritten before each block.
#define __shared__ static __attribute__((section("block_shared")))

#define VECTORS(type, name, align2, align4)                                                     \
    struct align2 name##2 { type x, y; };                                                       \
    struct name##3 { type x, y, z; };                                                           \
    struct align4 name##4 { type x, y, z, w; };                                                 \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                     \
    static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }          \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
VECTORS(float, float, alignas(8), alignas(16))
VECTORS(int, int, alignas(8), alignas(16))
VECTORS(unsigned, uint, alignas(8), alignas(16))
VECTORS(double, double, alignas(16), alignas(16))
VECTORS(long long, longlong, alignas(16), alignas(16))
VECTORS(unsigned char, uchar, alignas(2), alignas(4))
VECTORS(short, short, alignas(4), alignas(8))
#undef VECTORS

struct dim3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

// Accept two different arithmetic types, like CUDA's overloads.
template <class A, class B> static inline std::common_type_t<A, B> min(A a, B b)
{
    return (std::common_type_t<A, B>)b < (std::common_type_t<A, B>)a ? b : a;
}
template <class A, class B> static inline std::common_type_t<A, B> max(A a, B b)
{
    return (std::common_type_t<A, B>)a < (std::common_type_t<A, B>)b ? b : a;
}

template <class To, class From> static inline To same_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline float __int_as_float(int i) { return same_bits<float>(i); }
static inline int __float_as_int(float f) { return same_bits<int>(f); }
static inline float __uint_as_float(unsigned u) { return same_bits<float>(u); }
static inline unsigned __float_as_uint(float f) { return same_bits<unsigned>(f); }
static inline double __longlong_as_double(long long i) { return same_bits<double>(i); }
static inline long long __double_as_longlong(double d) { return same_bits<long long>(d); }

static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline int __clz(int bits) { return bits ? __builtin_clz(bits) : 32; }
static inline int __float2int_rn(float f) { return (int)rintf(f); }
static inline int __float2int_rd(float f) { return (int)floorf(f); }

static inline float rsqrtf(float f) { return 1 / sqrtf(f); }
static inline double rsqrt(double d) { return 1 / sqrt(d); }
// Macros, because the C library reserves functions with these names.
#define __expf expf
#define __logf logf
#define __log2f log2f
#define __powf powf
#define __tanhf tanhf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float f) { return 1 / f; }
static inline float __fsqrt_rn(float f) { return sqrtf(f); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __saturatef(float f) { return f > 0 ? (f < 1 ? f : 1) : 0; }

template <class T> static inline T __ldg(const T* cell) { return *cell; }
template <class T> static inline T __ldcs(const T* cell) { return *cell; }
template <class T> static inline T __ldcg(const T* cell) { return *cell; }
template <class T, class U> static inline void __stcs(T* cell, U value) { *cell = value; }
template <class T, class U> static inline void __stcg(T* cell, U value) { *cell = value; }

// Only one thread runs at a time, so every operation is atomic.
#define ATOMIC(name, next)                                                                      \
    template <class T, class U> static inline T name(T* cell, U given)                          \
    {                                                                                           \
        T old = *cell, value = (T)given;                                                        \
        *cell = next;                                                                           \
        return old;                                                                             \
    }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicSub, old - value)
ATOMIC(atomicExch, value)
ATOMIC(atomicMin, value < old ? value : old)
ATOMIC(atomicMax, old < value ? value : old)
ATOMIC(atomicAnd, old & value)
ATOMIC(atomicOr, old | value)
ATOMIC(atomicXor, old ^ value)
ATOMIC(atomicInc, old >= value ? 0 : old + 1)
ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef ATOMIC
template <class T, class U, class V> static inline T atomicCAS(T* cell, U expected, V value)
{
    T old = *cell;
    if (old == (T)expected) *cell = (T)value;
    return old;
}

static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __nanosleep(unsigned) {}
