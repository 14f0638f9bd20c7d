// y = x w^T for the few rows of x that writing a text has: x (rows, n_in) in float32, w (n_out, n_in) in float32,
// bfloat16, or int8 with a scale for each output. rostok/rows.py compiles this file, packs the weights and calls it.
//
// 1. One row uses every weight once, so what counts is how fast the weights pass. They lie in panels of 16 outputs,
//    [panel][n_in][16]: a panel is read from front to back, and its sums stay in registers until the end.
// 2. Several rows share what was read: a tile is R rows by P panels. Its 2 R P sums leave room in 16 registers.
// 3. All arithmetic is float32. Every sum runs over n_in in order, whatever R, P and the number of threads are: what a
//    row becomes does not depend on its neighbours.
//
// For processors with AVX2 and FMA; a compiler that finds neither stops here, and torch's own products are used.

#if !defined(__AVX2__) || !defined(__FMA__)
#error "this processor has no AVX2"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

typedef __m256 Floats;  // g++ and clang know + and * of it
constexpr int LANES = 8, PANEL = 2 * LANES;
constexpr int MOST = 6;    // rows in a tile
constexpr int WIDEST = 4;  // panels in a tile

// LANES weights as floats. A bfloat16 is the upper half of a float.
static inline Floats widen(const float* w) { return _mm256_loadu_ps(w); }
static inline Floats widen(const uint16_t* w) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)w)), 16));
}
static inline Floats widen(const int8_t* w) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)w)));
}

struct Product {  // what every function below is about
    const float *x, *scale;
    float* y;
    long rows, n_in, n_out;
};

// Rows r .. r + R - 1 by the P panels whose first output is j.
template <int R, int P, class T>
static void tile(const Product& of, const T* w, long r, long j) {
    const float* x = of.x + r * of.n_in;
    w += j * of.n_in;
    Floats sum[R][2 * P] = {}, wide[2 * P];
    for (long k = 0; k < of.n_in; k++) {
        for (int p = 0; p < 2 * P; p++) wide[p] = widen(w + (p / 2 * of.n_in + k) * PANEL + p % 2 * LANES);
        for (int i = 0; i < R; i++)
            for (int p = 0; p < 2 * P; p++) sum[i][p] += x[i * of.n_in + k] * wide[p];  // a fused multiply-add
    }
    const long width = std::min<long>(P * PANEL, of.n_out - j);  // the last panels are padded
    for (int i = 0; i < R; i++) {
        float flat[P * PANEL];
        std::memcpy(flat, sum[i], sizeof flat);
        for (long n = 0; n < width; n++) of.y[(r + i) * of.n_out + j + n] = flat[n] * (of.scale ? of.scale[j + n] : 1);
    }
}

// The tile of `count` rows: the compiler has made one for each number up to R.
template <int R, int P, class T>
static void tile_of(long count, const Product& of, const T* w, long r, long j) {
    if (count == R) return tile<R, P>(of, w, r, j);
    if constexpr (R > 1) tile_of<R - 1, P>(count, of, w, r, j);
}

// All rows in blocks of nearly equal size, R at most. The threads share the outputs.
template <int R, int P, class T>
static void tiles(const Product& of, const T* w, [[maybe_unused]] int threads) {
    const long blocks = (of.rows + R - 1) / R;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long j = 0; j < of.n_out; j += P * PANEL)
        for (long b = 0; b < blocks; b++) {
            const long start = b * of.rows / blocks, end = (b + 1) * of.rows / blocks;
            tile_of<R, P>(end - start, of, w, start, j);
        }
}

template <class T>
static void multiply(const Product& of, const T* w, int threads) {
    if (of.rows * of.n_in * of.n_out < 100000) threads = 1;  // to wake the others would take longer
    if (of.rows == 1) return tiles<1, WIDEST>(of, w, threads);
    if (of.rows <= 3) return tiles<3, 2>(of, w, threads);
    tiles<MOST, 1>(of, w, threads);
}

#define ROWS(NAME, TYPE)                                                                                      \
    extern "C" void NAME(const float* x, const TYPE* w, const float* scale, float* y, long rows, long n_in,  \
                         long n_out, int threads) {                                                           \
        multiply(Product{x, scale, y, rows, n_in, n_out}, w, threads);                                        \
    }
ROWS(rows_float32, float)
ROWS(rows_bfloat16, uint16_t)
ROWS(rows_int8, int8_t)
