// The three slow products of forward.js for wasm32 with 128-bit vectors, no library. products.js holds the same three in
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

// out (T, N) = a (T, K) times w (N, K) transposed. K is a multiple of 4 for the blocks; any other takes the plain loop.
EXPORT void multiply(float *out, const float *a, const float *w, int T, int N, int K) {
  int t = 0, even = K % 4 ? 0 : N / 2 * 2;
  for (; even && t + 4 <= T; t += 4) {
    for (int n = 0; n < even; n += 2) block(out + t * N + n, a + t * K, w + n * K, N, K);
    for (int r = t; even < N && r < t + 4; r++) out[r * N + even] = dot(a + r * K, w + even * K, K);
  }
  for (; t < T; t++)
    for (int n = 0; n < N; n++) out[t * N + n] = dot(a + t * K, w + n * K, K);
}

static void softmax(float *row, const uint8_t *closed, int n) {
  float top = -1e30f, sum = 0;
  for (int s = 0; s < n; s++)
    if (row[s] > top && !(closed && closed[s])) top = row[s];
  for (int s = 0; s < n; s += 4) {
    float part[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4 && s + i < n; i++) part[i] = row[s + i] - top;
    v128_t e = exponential(wasm_v128_load(part));
    wasm_v128_store(part, e);
    for (int i = 0; i < 4 && s + i < n; i++) sum += row[s + i] = closed && closed[s + i] ? 0 : part[i];
  }
  float r = sum > 0 ? 1.f / sum : 0;
  for (int s = 0; s < n; s++) row[s] *= r;
}

// One head: queries from..to-1, q, k and v (context, E); row t of the pattern (a lower triangle) and of the mixture z,
// whose rows are `stride` apart. closed: 0, or a byte for each pair (t, s), `context` bytes a row.
EXPORT void attend(float *z, float *pattern, const float *q, const float *k, const float *v, const uint8_t *closed,
                   int from, int to, int E, int stride, int context) {
  float scale = 1.f / __builtin_sqrtf((float)E);
  for (int t = from; t < to; t++) {
    float *row = pattern + t * (t + 1) / 2, *out = z + t * stride;
    for (int s = 0; s <= t; s++) row[s] = dot(q + t * E, k + s * E, E) * scale;
    softmax(row, closed ? closed + t * context : 0, t + 1);
    for (int e = 0; e < E; e++) out[e] = 0;
    for (int s = 0; s <= t; s++) {
      v128_t w = wasm_f32x4_splat(row[s]);
      int e = 0;
      for (; e + 4 <= E; e += 4) wasm_v128_store(out + e, multiply_add(wasm_v128_load(out + e), w, wasm_v128_load(v + s * E + e)));
      for (; e < E; e++) out[e] += row[s] * v[s * E + e];
    }
  }
}

// gate = silu(gate) * up, n numbers; both have room up to the next multiple of 4.
EXPORT void swiglu(float *gate, const float *up, int n) {
  for (int i = 0; i < n; i += 4) {
    v128_t g = wasm_v128_load(gate + i), below = wasm_f32x4_add(wasm_f32x4_splat(1.f), exponential(wasm_f32x4_neg(g)));
    wasm_v128_store(gate + i, wasm_f32x4_mul(wasm_f32x4_div(g, below), wasm_v128_load(up + i)));
  }
}
