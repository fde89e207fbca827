// Runs a grid on one CPU thread: one block after another, the threads of a block as fibers that
// switch where they wait for each other. Every other block runs its threads in reverse order, so
// that a missing barrier shows in both directions.

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace running {

enum Place { NEW, READY, AT_BLOCK, AT_WARP, FINISHED };
const int STACK = 1 << 16, MAX_THREADS = 1024, WARP = 32;

struct Fiber {
    void* where[5];
    ucontext_t start;
    bool started;
    Fiber* next_idle;
};

struct Thread {
    Place place;
    int line;         // of the barrier
    unsigned mask;    // of the lanes it waits for
    uint64_t given;   // its value at the barrier
    uint64_t shown;   // its value as seen by the other threads after the barrier
    uint3 index;
    Fiber* fiber;
};

static Fiber fibers[MAX_THREADS];
static Fiber* idle;
static Thread threads[MAX_THREADS];
static Thread* current;
static int total, block_sum_of_given;
static bool backwards;
static void* scheduler[5];
static sigjmp_buf escape;
static pthread_t launching;
static char* report;  // error message, 256 characters
static void (*body)(void**);
static void** arguments;
static void* dynamic_shared;

static int number(const Thread* thread) { return thread - threads; }

[[noreturn]] static void fail(const Thread* thread, const char* what, const void* address = 0)
{
    int length = snprintf(report, 256, "block (%u, %u, %u), thread (%u, %u, %u) ", blockIdx.x,
                          blockIdx.y, blockIdx.z, thread->index.x, thread->index.y,
                          thread->index.z);
    snprintf(report + length, 256 - length, what, address);
    siglongjmp(escape, 1);
}

[[noreturn]] static void fail_waiting(const Thread* one, const Thread* other)
{
    static char what[128];
    snprintf(what, sizeof what, "waits at line %d of the source, which thread %d does not reach%s",
             one->line, number(other), other->place == FINISHED ? ": it has finished" : "");
    fail(one, what);
}

// GCC's __builtin_setjmp saves little state and makes no system call; each thread needs two per
// barrier. Its callers are `noipa`, because the compiler cannot see what happens until it returns.
[[noreturn]] __attribute__((noipa)) static void jump(void** where)
{
    __builtin_longjmp(where, 1);
}

// The next thread of this warp that has not started.
static Thread* next_new(int warp)
{
    int first = warp * WARP, end = first + WARP < total ? first + WARP : total;
    for (int n = first; n < end; n++) {
        Thread* thread = &threads[backwards ? first + end - 1 - n : n];
        if (thread->place == NEW) return thread;
    }
    return 0;
}

static void become(Thread* thread, Fiber* fiber)
{
    thread->fiber = fiber;
    thread->place = READY;
    current = thread;
    threadIdx = thread->index;
}

// A fiber runs one thread after another, until a thread waits and keeps it, or none is left.
__attribute__((noipa)) static void live()
{
    for (;;) {
        body(arguments);
        Fiber* fiber = current->fiber;
        current->place = FINISHED;
        Thread* next = next_new(number(current) / WARP);
        if (next) {
            become(next, fiber);
            continue;
        }
        fiber->next_idle = idle;
        idle = fiber;
        if (!__builtin_setjmp(fiber->where)) jump(scheduler);
    }
}

__attribute__((noipa)) static void resume(Thread* thread)
{
    if (thread->place == NEW) {
        Fiber* fiber = idle;
        idle = fiber->next_idle;
        become(thread, fiber);
    }
    current = thread;
    threadIdx = thread->index;
    if (__builtin_setjmp(scheduler)) return;
    if (current->fiber->started) jump(current->fiber->where);
    current->fiber->started = true;
    setcontext(&current->fiber->start);
}

__attribute__((noipa)) static void wait(Place place, int line, unsigned mask, uint64_t given)
{
    current->place = place;
    current->line = line;
    current->mask = mask;
    current->given = given;
    if (!__builtin_setjmp(current->fiber->where)) jump(scheduler);
}

// Releases the lanes that wait at the same warp barrier as `thread`.
static void release_lanes(Thread* thread)
{
    Thread* warp = threads + number(thread) / WARP * WARP;
    int lanes = total - number(warp);
    for (int lane = 0; lane < WARP && lane < lanes; lane++) {
        if (!(thread->mask >> lane & 1)) continue;
        Thread* other = warp + lane;
        bool together = other->place == AT_WARP && other->line == thread->line
                        && other->mask == thread->mask;
        if (!together) fail_waiting(thread, other);
    }
    for (int lane = 0; lane < WARP && lane < lanes; lane++)
        if (thread->mask >> lane & 1) {
            warp[lane].shown = warp[lane].given;
            warp[lane].place = READY;
        }
}

// Runs a warp until every lane has finished or waits for the block.
static void run_warp(int warp)
{
    int first = warp * WARP, end = first + WARP < total ? first + WARP : total;
    for (bool moved = true; moved;) {
        moved = false;
        for (int n = first; n < end; n++) {
            Thread* thread = &threads[backwards ? first + end - 1 - n : n];
            if (thread->place <= READY) resume(thread), moved = true;
        }
        for (int n = first; n < end; n++)
            if (threads[n].place == AT_WARP) release_lanes(&threads[n]), moved = true;
    }
}

// Releases the threads of the block if all wait at the same barrier; false if all have finished.
static bool release_block()
{
    block_sum_of_given = 0;
    for (int n = 0; n < total; n++) {
        Thread *one = &threads[n], *first = &threads[0];
        if (one->place != first->place || (one->place == AT_BLOCK && one->line != first->line))
            fail_waiting(one->place == AT_BLOCK ? one : first,
                         one->place == AT_BLOCK ? first : one);
        block_sum_of_given += one->given;
    }
    if (threads[0].place == FINISHED) return false;
    for (int n = 0; n < total; n++) threads[n].place = READY;
    return true;
}

extern "C" __attribute__((weak, visibility("hidden"))) char __start_block_shared[];
extern "C" __attribute__((weak, visibility("hidden"))) char __stop_block_shared[];

static void run_block(size_t shared)
{
    if (__start_block_shared)
        memset(__start_block_shared, 0xff, __stop_block_shared - __start_block_shared);
    if (shared) memset(dynamic_shared, 0xff, shared);
    for (int n = 0; n < total; n++) threads[n].place = NEW;
    backwards = (blockIdx.x + blockIdx.y + blockIdx.z) % 2;
    int warps = (total + WARP - 1) / WARP;
    do {
        for (int n = 0; n < warps; n++) run_warp(backwards ? warps - 1 - n : n);
    } while (release_block());
}

static void make_fibers(int count)
{
    for (int n = 0; n < count; n++) {
        Fiber* fiber = &fibers[n];
        if (!fiber->start.uc_stack.ss_sp) {
            getcontext(&fiber->start);
            // Stack tops at different offsets are spread over the sets of the cache.
            fiber->start.uc_stack.ss_size = STACK - n % 64 * 320;
            fiber->start.uc_stack.ss_sp = mmap(0, STACK, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            makecontext(&fiber->start, live, 0);
        }
        fiber->next_idle = n + 1 < count ? fiber + 1 : 0;
    }
    idle = fibers;
}

static void on_fault(int signal_number, siginfo_t* information, void*)
{
    if (!pthread_equal(pthread_self(), launching)) {  // another thread: default action
        signal(signal_number, SIG_DFL);
        return;
    }
    if (signal_number == SIGFPE) fail(current, "divides an integer by zero");
    fail(current, "reads or writes %p, which is not in any array", information->si_addr);
}

const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE};

static void run_grid(size_t shared)
{
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++) run_block(shared);
}

// Returns 0, or 1 with an error message in `message`[256].
static int launch(void (*kernel)(void**), const unsigned* grid, const unsigned* block,
                  size_t shared, void** given, char* message)
{
    body = kernel, arguments = given, report = message, launching = pthread_self();
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
    total = block[0] * block[1] * block[2];
    for (int n = 0; n < total; n++)
        threads[n].index = {n % block[0], n / block[0] % block[1], n / block[0] / block[1]};
    make_fibers(total);
    dynamic_shared = shared ? aligned_alloc(128, (shared + 127) / 128 * 128) : 0;
    struct sigaction ours = {}, before[3];
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO;
    for (int n = 0; n < 3; n++) sigaction(FAULTS[n], &ours, &before[n]);
    int failed = sigsetjmp(escape, 1);
    if (!failed) run_grid(shared);
    else
        for (Fiber& fiber : fibers) fiber.started = false;  // abandon their threads
    for (int n = 0; n < 3; n++) sigaction(FAULTS[n], &before[n], 0);
    free(dynamic_shared);
    return failed;
}

static int at_block(int line, int given)
{
    wait(AT_BLOCK, line, 0, given);
    return block_sum_of_given;
}

// The value of `lane` of this warp at the last barrier; all bits 1 if it did not take part.
template <class T> static T brought(unsigned mask, int lane)
{
    int other = number(current) / WARP * WARP + lane;
    uint64_t bits = ~0ull;
    if (lane >= 0 && other < total && mask >> lane & 1) bits = threads[other].shown;
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static void at_warp(int line, unsigned mask, T value)
{
    static_assert(sizeof value <= 8, "a warp exchanges up to 8 bytes");
    uint64_t given = 0;
    memcpy(&given, &value, sizeof value);
    int lane = number(current) % WARP;
    if (!(mask >> lane & 1)) fail(current, "is not in the mask that it passes to a warp barrier");
    wait(AT_WARP, line, mask, given);
}

static unsigned mask_of(unsigned mask = ~0u) { return mask; }

enum Way { FROM, UP, DOWN, XOR };

template <class T> static T shuffle(Way way, int line, unsigned mask, T value, int by,
                                    int width = WARP)
{
    at_warp(line, mask, value);
    int lane = number(current) % WARP, begin = lane / width * width, end = begin + width;
    int from = way == FROM ? begin + (by & (width - 1))
               : way == UP ? lane - by : way == DOWN ? lane + by : lane ^ by;
    if ((way != XOR && from < begin) || from >= end) from = lane;
    return brought<T>(mask, from);
}

static unsigned ballot(int line, unsigned mask, int predicate)
{
    at_warp(line, mask, predicate);
    unsigned bits = 0;
    for (int lane = 0; lane < WARP && number(current) / WARP * WARP + lane < total; lane++)
        if (mask >> lane & 1 && brought<int>(mask, lane)) bits |= 1u << lane;
    return bits;
}

template <class T, class Join> static T reduce(int line, unsigned mask, T value, Join join)
{
    at_warp(line, mask, value);
    int own = number(current) % WARP, base = number(current) - own;
    for (int lane = 0; lane < WARP && base + lane < total; lane++)
        if (lane != own && mask >> lane & 1) value = join(value, brought<T>(mask, lane));
    return value;
}

// Calls a kernel with the arguments that `given` points to, and describes its parameters.
template <auto kernel> struct Caller;
template <class... P, void (*kernel)(P...)> struct Caller<kernel> {
    static void call(void** given) { call(given, std::index_sequence_for<P...>()); }

    // For each parameter its kind as a letter, and its size in bytes: "p8 i8 f4 ".
    static void describe(char* text)
    {
        *text = 0;
        ((text += sprintf(text, "%c%d ", letter<P>(), (int)sizeof(P))), ...);
    }

  private:
    template <size_t... I> static void call(void** given, std::index_sequence<I...>)
    {
        kernel(*(P*)given[I]...);
    }
    template <class T> static char letter()
    {
        if (std::is_pointer_v<T>) return 'p';
        return std::is_integral_v<T> ? 'i' : std::is_floating_point_v<T> ? 'f' : 's';
    }
};

}  // namespace running

// The macros pass the line number, to distinguish barriers from each other.
#define __syncthreads() (void)running::at_block(__LINE__, 0)
#define __syncthreads_count(predicate) running::at_block(__LINE__, !!(predicate))
#define __syncthreads_or(predicate) (running::at_block(__LINE__, !!(predicate)) > 0)
#define __syncthreads_and(predicate) (running::at_block(__LINE__, !(predicate)) == 0)
#define __syncwarp(...) running::at_warp(__LINE__, running::mask_of(__VA_ARGS__), 0)
#define __shfl_sync(...) running::shuffle(running::FROM, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) running::shuffle(running::UP, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) running::shuffle(running::DOWN, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) running::shuffle(running::XOR, __LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) running::ballot(__LINE__, mask, predicate)
#define __any_sync(mask, predicate) (running::ballot(__LINE__, mask, !!(predicate)) != 0)
#define __all_sync(mask, predicate) (running::ballot(__LINE__, mask, !(predicate)) == 0)
#define reduce_(mask, value, join) \
    running::reduce(__LINE__, mask, value, [](auto a, auto b) { return join; })
#define __reduce_add_sync(mask, value) reduce_(mask, value, a + b)
#define __reduce_min_sync(mask, value) reduce_(mask, value, b < a ? b : a)
#define __reduce_max_sync(mask, value) reduce_(mask, value, a < b ? b : a)
#define __reduce_or_sync(mask, value) reduce_(mask, value, a | b)
