// y = x w^T for the few rows of x that writing a text has: x (rows, n_in) in float32, w (n_out, n_in) in float32,
// bfloat16, or int8 with a scale for each output; and, built of such products, a whole step of one block of the model.
// rostok/generation/packed_linear.py compiles this file, packs the weights and calls it.
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

#include <math.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

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

// ---------------------------------------------------------------------------------- one step of a block of model.py

struct Block {  // rostok/generation/packed_linear.py fills it, field by field
    const float *attn_norm, *q_norm, *k_norm, *mlp_norm;
    const void *qkv, *proj, *gate, *up, *down;  // packed
    const float *qkv_scale, *proj_scale, *gate_scale, *up_scale, *down_scale;
    float *x, *keys, *values;      // (rows, d_model), written over; (rows, n_kv, context, d_head), written at `position`
    const float *cos, *sin;        // (1 or rows, d_head / 2)
    const int64_t* position;       // (1 or rows): where the new token of a row stands
    long ragged;                   // 1 where cos, sin and position differ between rows, else 0
    long rows, d_model, n_head, n_kv, d_head, d_mlp, context;
    double eps;
};

static void norm(const float* x, const float* gain, float* y, long n, double eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < n; i++) sum += x[i] * x[i];
    const float factor = 1 / sqrtf(sum / n + (float)eps);
    for (long i = 0; i < n; i++) y[i] = x[i] * factor * gain[i];
}

static void rope(float* x, const float* cos, const float* sin, long half) {
    for (long i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

// z = softmax(q . keys / sqrt(n)) values, for one query and the `span` keys of its text, four of them at a time: one
// sum alone would wait for itself. The last four may repeat the last key, with a share of 0.
static void attend(const float* q, const float* keys, const float* values, float* z, long span, long n) {
    std::vector<float> score(span + 3, -INFINITY);
    auto row = [&](const float* of, long s) { return of + std::min(s, span - 1) * n; };
    float most = -INFINITY, total = 0;
    for (long s = 0; s < span; s += 4) {
        const float *k0 = row(keys, s), *k1 = row(keys, s + 1), *k2 = row(keys, s + 2), *k3 = row(keys, s + 3);
        float d0 = 0, d1 = 0, d2 = 0, d3 = 0;
#pragma omp simd reduction(+ : d0, d1, d2, d3)
        for (long i = 0; i < n; i++) d0 += q[i] * k0[i], d1 += q[i] * k1[i], d2 += q[i] * k2[i], d3 += q[i] * k3[i];
        const float dots[] = {d0, d1, d2, d3};
        for (long j = s; j < std::min(s + 4, span); j++) most = std::max(most, score[j] = dots[j - s] / sqrtf(n));
    }
    for (float& each : score) total += each = expf(each - most);
    std::fill(z, z + n, 0.0f);
    for (long s = 0; s < span; s += 4) {
        const float *v0 = row(values, s), *v1 = row(values, s + 1), *v2 = row(values, s + 2), *v3 = row(values, s + 3);
        const float p0 = score[s], p1 = score[s + 1], p2 = score[s + 2], p3 = score[s + 3];
#pragma omp simd
        for (long i = 0; i < n; i++) z[i] += p0 * v0[i] + p1 * v1[i] + p2 * v2[i] + p3 * v3[i];
    }
    for (long i = 0; i < n; i++) z[i] /= total;
}

// Head g of the keys of row r, and the queries that share it. qkv is the row's product, z what its queries find.
static void attend_group(const Block& of, long r, long g, float* qkv, float* z) {
    const long n = of.d_head, group = of.n_head / of.n_kv, at = of.position[r * of.ragged];
    const float *cos = of.cos + r * of.ragged * n / 2, *sin = of.sin + r * of.ragged * n / 2;
    float *keys = of.keys + (r * of.n_kv + g) * of.context * n, *values = of.values + (keys - of.keys);
    norm(qkv + (of.n_head + g) * n, of.k_norm, keys + at * n, n, of.eps);
    rope(keys + at * n, cos, sin, n / 2);
    std::copy_n(qkv + (of.n_head + of.n_kv + g) * n, n, values + at * n);
    for (long h = g * group; h < (g + 1) * group; h++) {
        norm(qkv + h * n, of.q_norm, qkv + h * n, n, of.eps);
        rope(qkv + h * n, cos, sin, n / 2);
        attend(qkv + h * n, keys, values, z + h * n, at + 1, n);
    }
}

template <class T>
static void step(const Block& of, int threads) {
    const long rows = of.rows, d = of.d_model, heads = of.n_head * of.d_head;
    const long width = heads + 2 * of.n_kv * of.d_head, m = of.d_mlp;
    std::vector<float> inner(rows * d), qkv(rows * width), z(rows * heads), gate(rows * m), up(rows * m);
    auto product = [&](const std::vector<float>& x, const void* w, const float* scale, std::vector<float>& y) {
        multiply(Product{x.data(), scale, y.data(), rows, (long)x.size() / rows, (long)y.size() / rows}, (const T*)w, threads);
    };
    auto norms = [&](const float* gain) {
        for (long r = 0; r < rows; r++) norm(of.x + r * d, gain, &inner[r * d], d, of.eps);
    };
    auto add = [&] {
        for (long i = 0; i < rows * d; i++) of.x[i] += inner[i];
    };

    norms(of.attn_norm);
    product(inner, of.qkv, of.qkv_scale, qkv);
#pragma omp parallel for num_threads(rows == 1 ? 1 : threads) schedule(dynamic)
    for (long i = 0; i < rows * of.n_kv; i++)
        attend_group(of, i / of.n_kv, i % of.n_kv, &qkv[i / of.n_kv * width], &z[i / of.n_kv * heads]);
    product(z, of.proj, of.proj_scale, inner);
    add();

    norms(of.mlp_norm);
    product(inner, of.gate, of.gate_scale, gate);
    product(inner, of.up, of.up_scale, up);
#pragma omp parallel for num_threads(rows == 1 ? 1 : threads)
    for (long i = 0; i < rows * m; i++) gate[i] *= up[i] / (1 + expf(-gate[i]));
    product(gate, of.down, of.down_scale, inner);
    add();
}

#define EXPORT(NAME, TYPE)                                                                                      \
    extern "C" void rows_##NAME(const float* x, const TYPE* w, const float* scale, float* y, long rows,        \
                                long n_in, long n_out, int threads) {                                          \
        multiply(Product{x, scale, y, rows, n_in, n_out}, w, threads);                                          \
    }                                                                                                           \
    extern "C" void step_##NAME(const Block* of, int threads) { step<TYPE>(*of, threads); }
EXPORT(float32, float)
EXPORT(bfloat16, uint16_t)
EXPORT(int8, int8_t)
