// The slow products of forward.js for wasm32 with 128-bit vectors, no library. products.js holds the same in
// plain JavaScript, which the page takes where a browser refuses WASM; a test holds both equal.
// scripts/wasm builds products.wasm from this file, byte for byte.
#include <stdint.h>
#include <wasm_simd128.h>

#define EXPORT __attribute__((visibility("default")))

static inline float lanes(v128_t a) {  // the sum of four numbers
  a = wasm_f32x4_add(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(wasm_f32x4_add(a, wasm_i32x4_shuffle(a, a, 1, 0, 3, 2)), 0);
}

static inline v128_t multiply_add(v128_t sum, v128_t a, v128_t b) {
  return wasm_f32x4_add(sum, wasm_f32x4_mul(a, b));
}

static float dot(const float *a, const float *b, int n) {
  v128_t sum = wasm_f32x4_splat(0);
  int i = 0;
  for (; i + 4 <= n; i += 4) sum = multiply_add(sum, wasm_v128_load(a + i), wasm_v128_load(b + i));
  float out = lanes(sum);
  for (; i < n; i++) out += a[i] * b[i];
  return out;
}

// e^a of four numbers, relative error about 1e-7 (the polynomial of the Cephes library, expf)
static v128_t exponential(v128_t a) {
  static const float c[5] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  a = wasm_f32x4_max(wasm_f32x4_splat(-87.f), wasm_f32x4_min(wasm_f32x4_splat(88.f), a));
  v128_t n = wasm_f32x4_nearest(wasm_f32x4_mul(a, wasm_f32x4_splat(1.44269504f)));
  a = wasm_f32x4_sub(a, wasm_f32x4_mul(n, wasm_f32x4_splat(0.693359375f)));
  a = wasm_f32x4_sub(a, wasm_f32x4_mul(n, wasm_f32x4_splat(-2.12194440e-4f)));
  v128_t p = wasm_f32x4_splat(1.9875691500e-4f);
  for (int i = 0; i < 5; i++) p = wasm_f32x4_add(wasm_f32x4_mul(p, a), wasm_f32x4_splat(c[i]));
  p = wasm_f32x4_add(multiply_add(a, wasm_f32x4_mul(p, a), a), wasm_f32x4_splat(1.f));
  v128_t power = wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_splat(127)), 23);
  return wasm_f32x4_mul(p, power);
}

// Four rows of a and two of w at once: eight sums stay in registers.
static void block(float *out, const float *a, const float *w, int N, int K) {
  v128_t sum[4][2];
  for (int r = 0; r < 4; r++) sum[r][0] = sum[r][1] = wasm_f32x4_splat(0);
  for (int k = 0; k < K; k += 4) {
    v128_t w0 = wasm_v128_load(w + k), w1 = wasm_v128_load(w + K + k);
#pragma clang loop unroll(full)
    for (int r = 0; r < 4; r++) {
      v128_t x = wasm_v128_load(a + r * K + k);
      sum[r][0] = multiply_add(sum[r][0], x, w0);
      sum[r][1] = multiply_add(sum[r][1], x, w1);
    }
  }
  for (int r = 0; r < 4; r++) {
    out[r * N] = lanes(sum[r][0]);
    out[r * N + 1] = lanes(sum[r][1]);
  }
}

// The products of one row q with the rows 0..n-1 of k, times scale; four rows at once while E is a multiple of 4.
static void scores(float *row, const float *q, const float *k, int n, int E, float scale) {
  int s = 0;
  for (; E % 4 == 0 && s + 4 <= n; s += 4) {
    v128_t a = wasm_f32x4_splat(0), b = a, c = a, d = a;
    for (int e = 0; e < E; e += 4) {
      v128_t x = wasm_v128_load(q + e);
      const float *key = k + s * E + e;
      a = multiply_add(a, x, wasm_v128_load(key));
      b = multiply_add(b, x, wasm_v128_load(key + E));
      c = multiply_add(c, x, wasm_v128_load(key + 2 * E));
      d = multiply_add(d, x, wasm_v128_load(key + 3 * E));
    }
    v128_t ab = wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
    v128_t cd = wasm_f32x4_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
    v128_t sum = wasm_f32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 1, 4, 5), wasm_i32x4_shuffle(ab, cd, 2, 3, 6, 7));
    wasm_v128_store(row + s, wasm_f32x4_mul(sum, wasm_f32x4_splat(scale)));
  }
  for (; s < n; s++) row[s] = dot(q, k + s * E, E) * scale;
}

// out (T, N) = a (T, K) times w (N, K) transposed. K is a multiple of 4 for the blocks; any other takes the plain loop.
EXPORT void multiply(float *out, const float *a, const float *w, int T, int N, int K) {
  int t = 0, even = K % 4 ? 0 : N / 2 * 2;
  for (; even && t + 4 <= T; t += 4) {
    for (int n = 0; n < even; n += 2) block(out + t * N + n, a + t * K, w + n * K, N, K);
    for (int r = t; even < N && r < t + 4; r++) out[r * N + even] = dot(a + r * K, w + even * K, K);
  }
  for (; t < T; t++) scores(out + t * N, a + t * K, w, N, K, 1);
}

static void softmax(float *row, const uint8_t *closed, int n) {
  float top = -1e30f, sum = 0;
  for (int s = 0; s < n; s++)
    if (row[s] > top && !(closed && closed[s])) top = row[s];
  int s = 0;
  for (; s + 4 <= n; s += 4) wasm_v128_store(row + s, exponential(wasm_f32x4_sub(wasm_v128_load(row + s), wasm_f32x4_splat(top))));
  for (; s < n; s++) row[s] = wasm_f32x4_extract_lane(exponential(wasm_f32x4_splat(row[s] - top)), 0);
  for (s = 0; closed && s < n; s++)
    if (closed[s]) row[s] = 0;
  for (s = 0; s < n; s++) sum += row[s];
  float r = sum > 0 ? 1.f / sum : 0;
  for (s = 0; s < n; s++) row[s] *= r;
}

// out = the mixture of n values by their weights, sixteen numbers at once in registers.
static void mix(float *out, const float *row, const float *v, int n, int E) {
  int e = 0;
  for (; e + 16 <= E; e += 16) {
    v128_t sum[4];
    for (int i = 0; i < 4; i++) sum[i] = wasm_f32x4_splat(0);
    for (int s = 0; s < n; s++) {
      v128_t w = wasm_v128_load32_splat(row + s);
#pragma clang loop unroll(full)
      for (int i = 0; i < 4; i++) sum[i] = multiply_add(sum[i], w, wasm_v128_load(v + s * E + e + 4 * i));
    }
    for (int i = 0; i < 4; i++) wasm_v128_store(out + e + 4 * i, sum[i]);
  }
  for (; e < E; e++) {
    out[e] = 0;
    for (int s = 0; s < n; s++) out[e] += row[s] * v[s * E + e];
  }
}

// One head: queries from..to-1, q, k and v (context, E); row t of the pattern (a lower triangle) and of the mixture z,
// whose rows are `stride` apart. closed: 0, or a byte for each pair (t, s), `context` bytes a row.
EXPORT void attend(float *z, float *pattern, const float *q, const float *k, const float *v, const uint8_t *closed,
                   int from, int to, int E, int stride, int context) {
  float scale = 1.f / __builtin_sqrtf((float)E);
  for (int t = from; t < to; t++) {
    float *row = pattern + t * (t + 1) / 2, *out = z + t * stride;
    scores(row, q + t * E, k, t + 1, E, scale);
    softmax(row, closed ? closed + t * context : 0, t + 1);
    mix(out, row, v, t + 1, E);
  }
}

// The sum of e^(x - high) over n numbers.
EXPORT float sum_exp(const float *x, int n, float high) {
  v128_t sum = wasm_f32x4_splat(0), top = wasm_f32x4_splat(high);
  int i = 0;
  for (; i + 4 <= n; i += 4) sum = wasm_f32x4_add(sum, exponential(wasm_f32x4_sub(wasm_v128_load(x + i), top)));
  float out = lanes(sum);
  for (; i < n; i++) out += wasm_f32x4_extract_lane(exponential(wasm_f32x4_splat(x[i] - high)), 0);
  return out;
}

// gate = silu(gate) * up, n numbers; both have room up to the next multiple of 4.
EXPORT void swiglu(float *gate, const float *up, int n) {
  for (int i = 0; i < n; i += 4) {
    v128_t g = wasm_v128_load(gate + i), below = wasm_f32x4_add(wasm_f32x4_splat(1.f), exponential(wasm_f32x4_neg(g)));
    wasm_v128_store(gate + i, wasm_f32x4_mul(wasm_f32x4_div(g, below), wasm_v128_load(up + i)));
  }
}
