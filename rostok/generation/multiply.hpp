// y = x w^T on a CPU for few rows of x or many; x in float32, w in float32, bfloat16 or 8 bits.
//
// 1. Weights lie in panels of 16 outputs. For each group of U inputs a panel holds the weights of all 16 outputs; then
//    comes the next group. A panel is read from front to back while its 16 sums stay in registers.
//
//        panel of outputs 0..15                                 panel of outputs 16..31
//        | inputs 0..U-1          | inputs U..2U-1      | ...   | ...
//        | o0 o0 o1 o1 .. o15 o15 | o0 o0 o1 o1 ..      |       (drawn for U = 2)
//
//    U is 1 for float32, 2 for bfloat16, 4 for int8.
// 2. Several rows share the weights that were read: a tile is R rows by P panels.
// 3. Each sum runs over its inputs in order, whatever R and P are: what a row becomes does not depend on its neighbours.
//    int8 sums are integers without rounding: every processor gets the same.
// 4. Inputs are float32 beside float32 weights; beside the others they are rounded to bfloat16 (where the processor
//    multiplies that) or to 8 bits with one scale a row.
//
// The compiler's own macros choose the instructions: AVX-512 with VNNI (and bf16, AMX), AVX2 and FMA, Arm NEON (with dot
// product), plain C++. Each number format is one struct below; the code for each processor is inside it.

#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define AVX512
constexpr int LANES = 16, ROWS = 6, PANELS = 4;  // floats in a register; most rows and panels of a tile
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int LANES = 8, ROWS = 6, PANELS = 1;
#else
constexpr int LANES = 4, ROWS = 4, PANELS = 1;
#endif
constexpr int PANEL = 16, PARTS = PANEL / LANES, ALONE = 4;  // ALONE: panels of a tile that has a single row
constexpr int PADDING = 64, PAIRS = 32;                      // inputs are padded with zeros to a multiple of this; in attention, of that
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

template <class V> static inline V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
static inline int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// ------------------------------------------------------------------------------------------------- how to multiply
// Weight, Input: what lies in memory. spread(): a group of U inputs, ready for all outputs. add(): LANES outputs.
// prepare(): a row of floats as inputs; gives the row's scale.

struct Plain {  // sums in float32, no scales
    typedef Floats Sum;
    static constexpr bool EXACT = false;
    static Floats value(Sum sum, Ints, Floats, float) { return sum; }
};

struct Float32 : Plain {
    typedef float Weight, Input;
    typedef Floats Group, Loaded;
    static constexpr int U = 1;
    static Group spread(const float* x) { return Floats{} + *x; }
    static void add(Sum& sum, Group x, Loaded w) { sum += x * w; }
    static Weight store(float x) { return x; }
    static float prepare(const float* x, int64_t n, Input* to) { return std::copy_n(x, n, to), 1; }
};

struct BFloat16 : Plain {
    typedef uint16_t Weight;
    typedef Ints Loaded;
    static constexpr int U = 2;
    static Weight store(float x) {  // the upper half of a float, to the nearest even
        const uint32_t bits = load<uint32_t>(&x);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
#if defined(__AVX512BF16__) && defined(AVX512)
    typedef uint16_t Input;
    typedef Ints Group;
    static Group spread(const uint16_t* x) { return Ints{} + load<int32_t>(x); }
    static void add(Sum& sum, Group x, Loaded w) { sum = (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w); }
    static float prepare(const float* x, int64_t n, Input* to) {
        for (int64_t i = 0; i < n; i++) to[i] = store(x[i]);
        return 1;
    }
#else  // inputs stay in float32
    typedef float Input;
    struct Group { Floats even, odd; };
    static Group spread(const float* x) { return {Floats{} + x[0], Floats{} + x[1]}; }
    static void add(Sum& sum, const Group& x, Loaded w) {
        sum += x.even * (Floats)(w << 16);
        sum += x.odd * (Floats)(w & (int32_t)0xffff0000);
    }
    static float prepare(const float* x, int64_t n, Input* to) { return std::copy_n(x, n, to), 1; }
#endif
};

struct Int8 {  // both in 8 bits, sums in int32
    typedef int8_t Weight;
    typedef uint8_t Input;
    typedef Ints Sum, Group, Loaded;
    static constexpr int U = 4;
    static constexpr bool EXACT = true;
    static Group spread(const uint8_t* x) { return Ints{} + load<int32_t>(x); }
    static constexpr int OFFSET = LANES == 16 ? 128 : 0;  // AVX-512 wants inputs without a sign
#if defined(AVX512)
    static void add(Sum& sum, Group x, Loaded w) { sum = (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w); }
#elif defined(__AVX2__)
    static void add(Sum& sum, Group x, Loaded w) {  // |x| times w with the sign of x: pairs of 127 x 127 fit 16 bits
        const __m256i size = _mm256_abs_epi8((__m256i)x), signs = _mm256_sign_epi8((__m256i)w, (__m256i)x);
        sum += (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16(size, signs), _mm256_set1_epi16(1));
    }
#elif defined(__ARM_FEATURE_DOTPROD)
    static void add(Sum& sum, Group x, Loaded w) { sum = (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)x, (int8x16_t)w); }
#else
    static void add(Sum& sum, Group x, Loaded w) {
        for (int k = 0; k < 32; k += 8) sum += ((x << (24 - k)) >> 24) * ((w << (24 - k)) >> 24);
    }
#endif
    static Floats value(Sum sum, Ints weights, Floats scale, float row) {
        return __builtin_convertvector(sum - OFFSET * weights, Floats) * (scale * row);
    }
    static float prepare(const float* x, int64_t n, Input* to) {
        float most = 0, nan = 0;
#pragma omp simd reduction(max : most) reduction(+ : nan)
        for (int64_t i = 0; i < n; i++) most = std::max(most, std::fabs(x[i])), nan += x[i] * 0;
        const float factor = most > 0 ? 127 / most : 0;
        for (int64_t i = 0; i < n; i++) {
            const float shifted = x[i] * factor + 12582912.0f;  // the rounded number lies in the lowest bits
            to[i] = (uint8_t)(load<uint32_t>(&shifted) + OFFSET);
        }
        return most / 127 + nan;
    }
};

// ---------------------------------------------------------------------------------------------------- products

struct Matrix {  // packed_gpt.py fills it
    const void* weights;
    const float* scale;   // of each output, int8 only
    const int32_t* sums;  // of the weights of each output, int8 only
    int64_t inputs, panels;
};

template <class K> struct Rows {
    const typename K::Input* x;
    const float* scale;
    int64_t count, stride;
};

template <class K> struct Product {  // y = or += x w^T, panels first .. last - 1; y + 16 p is where panel p of row 0 goes
    Rows<K> x;
    const typename K::Weight* w;
    int64_t panel, inputs;  // numbers from a panel to the next; inputs to multiply
    const float* scale;
    const int32_t* sums;
    float* y;
    int64_t stride;
    bool add;

    void finish(const typename K::Sum* sum, int64_t row, int64_t p) const {
        for (int q = 0; q < PARTS; q++) {
            const int64_t o = p * PANEL + q * LANES;
            float* to = y + row * stride + o;
            const Floats before = add ? load<Floats>(to) : Floats{};  // always a sum: so all tiles round alike
            const Floats value = before + K::value(sum[q], sums ? load<Ints>(sums + o) : Ints{},
                                                   scale ? load<Floats>(scale + o) : Floats{}, x.scale ? x.scale[row] : 1);
            std::memcpy(to, &value, sizeof value);
        }
    }
};

template <class K, int R, int P> static void tile(const Product<K>& of, int64_t r, int64_t p) {
    const auto* x = of.x.x + r * of.x.stride;
    const auto* w = of.w + p * of.panel;
    typename K::Sum sum[R][P][PARTS] = {};
    for (int64_t k = 0; k < of.inputs; k += K::U) {
        typename K::Loaded wide[P][PARTS];
        for (int j = 0; j < P; j++)
            for (int q = 0; q < PARTS; q++) wide[j][q] = load<typename K::Loaded>(w + j * of.panel + k * PANEL + q * LANES * K::U);
        for (int i = 0; i < R; i++) {
            const auto group = K::spread(x + i * of.x.stride + k);
            for (int j = 0; j < P; j++)
                for (int q = 0; q < PARTS; q++) K::add(sum[i][j][q], group, wide[j][q]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int j = 0; j < P; j++) of.finish(sum[i][j], r + i, p + j);
}

// The compiler makes a tile for each number of rows up to R.
template <class K, int R, int P> static void tile_of(int64_t rows, const Product<K>& of, int64_t r, int64_t p) {
    if (rows == R) return tile<K, R, P>(of, r, p);
    if constexpr (R > 1) tile_of<K, R - 1, P>(rows, of, r, p);
}

template <class K, int R, int P> static void tiles(const Product<K>& of, int64_t first, int64_t last) {
    const int64_t blocks = (of.x.count + R - 1) / R;
    int64_t p = first;
    for (; p + P <= last; p += P)
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t start = b * of.x.count / blocks, end = (b + 1) * of.x.count / blocks;
            tile_of<K, R, P>(end - start, of, start, p);
        }
    if constexpr (P > 1)
        if (p < last) tiles<K, R, 1>(of, p, last);
}

#if defined(__AMX_INT8__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(AVX512)
#define TILES
// Up to 32 rows by 2 panels in the eight tile registers: panels are what AMX wants its second factor to be.
template <class K> static void amx(const Product<K>& of, int64_t first, int64_t last) {
    struct { uint8_t palette = 1, start = 0, none[14] = {}; uint16_t bytes[16] = {}; uint8_t rows[16] = {}; } config;
    const bool few = of.x.count <= 16;
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = few && i < 6 ? of.x.count : 16;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // the compiler does not know that tiles read memory
    _tile_loadconfig(&config);
    alignas(64) typename K::Sum sums[4][16];
    const int64_t size = sizeof(typename K::Weight), step = 64 / size, line = of.x.stride * size;
    for (int64_t p = first; p < last; p += 2)
        for (int64_t r = 0; r < of.x.count; r += 32) {
            const auto *w0 = of.w + p * of.panel, *w1 = of.w + std::min(p + 1, last - 1) * of.panel;
            const auto *x0 = of.x.x + r * of.x.stride, *x1 = x0 + 16 * of.x.stride;
            _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
            for (int64_t k = 0; k < of.inputs; k += step) {
                _tile_loadd(4, x0 + k, line);
                _tile_loadd(6, w0 + k * PANEL, 64); _tile_loadd(7, w1 + k * PANEL, 64);
                if constexpr (K::EXACT) { _tile_dpbusd(0, 4, 6); _tile_dpbusd(1, 4, 7); }
                else { _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); }
                if (few) continue;
                _tile_loadd(5, x1 + k, line);
                if constexpr (K::EXACT) { _tile_dpbusd(2, 5, 6); _tile_dpbusd(3, 5, 7); }
                else { _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7); }
            }
            _tile_stored(0, sums[0], 64); _tile_stored(1, sums[1], 64); _tile_stored(2, sums[2], 64); _tile_stored(3, sums[3], 64);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            for (int t = 0; t < 4; t++)
                for (int64_t i = 0; i < std::min<int64_t>(16, of.x.count - r - t / 2 * 16) && p + t % 2 < last; i++)
                    of.finish(&sums[t][i], r + t / 2 * 16 + i, p + t % 2);
        }
    _tile_release();
}
#endif

template <class K> static void multiply(const Product<K>& of, int64_t first, int64_t last) {
#if defined(TILES)
    static const bool given = syscall(SYS_arch_prctl, 0x1023, 18) == 0;  // the system has to be asked once
    // bfloat16 takes tiles for any number of rows, so that a row's sums do not depend on the others; int8 is exact anyway
    if constexpr (K::U > 1)
        if (of.x.count >= (K::EXACT ? 16 : 1) && given) return amx(of, first, last);
#endif
    if (of.x.count == 1) return tiles<K, 1, ALONE>(of, first, last);
    tiles<K, ROWS, PANELS>(of, first, last);
}

template <class K> struct Own {  // what a thread keeps for itself from call to call
    std::vector<typename K::Input> inputs;
    std::vector<float> scales, row, scores, found, gated;
};
template <class K> static thread_local Own<K> own;

// `count` rows of n floats as inputs of a product, with zeros up to a multiple of `to`; write(i, row) writes row i.
template <class K, class F> static Rows<K> prepare(int64_t count, int64_t n, int64_t to, F write) {
    Own<K>& mine = own<K>;
    const int64_t wide = padded(n, to);
    mine.inputs.resize(std::max<size_t>(mine.inputs.size(), wide * padded(count, 32)));
    mine.scales.resize(std::max<size_t>(mine.scales.size(), count));
    mine.row.assign(wide, 0);
    for (int64_t i = 0; i < count; i++) {
        write(i, mine.row.data());
        mine.scales[i] = K::prepare(mine.row.data(), wide, &mine.inputs[i * wide]);
    }
    return {mine.inputs.data(), mine.scales.data(), count, wide};
}

template <class K> static void product(const Rows<K>& x, const Matrix& w, float* y, int64_t stride, bool add, int64_t first, int64_t last) {
    const auto* weights = (const typename K::Weight*)w.weights;
    multiply<K>({x, weights, w.inputs * PANEL, w.inputs, w.scale, w.sums, y, stride, add}, first, last);
}
