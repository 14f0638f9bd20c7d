// One call reads ids and gives the logits of what comes next: all blocks, the final norm and the head of the GPT of
// model.py, for one new token of each text or for a whole prompt. packed_gpt.py packs the weights (multiply.hpp draws
// how), fills the structs below and calls step_float32(), step_bfloat16() or step_int8().
//
// Keys and values are weights like others: of keys a panel is 16 keys and an input is one of d_head numbers, so that
// query x keys gives scores; of values a panel is 16 of d_head numbers and an input is a key. In float32 beside float32
// weights, else in bfloat16.

#include "multiply.hpp"
#include "team.hpp"

static inline float exponential(float x) {  // e^x to 2e-7, as 2^n 2^f with |f| <= 1/2; without branches, for the compiler
    const float t = std::min(std::max(x, -87.0f), 88.0f) * 1.442695041f, shifted = t + 12582912.0f, f = t - (shifted - 12582912.0f);
    float p = 1.540353e-4f;
    p = p * f + 1.3333558e-3f, p = p * f + 9.6181291e-3f, p = p * f + 5.5504109e-2f;
    p = ((p * f + 2.4022651e-1f) * f + 6.9314718e-1f) * f + 1.0f;
    const int32_t power = (load<int32_t>(&shifted) - 0x4B400000 + 127) << 23;
    return x != x ? x : p * load<float>(&power);
}

struct Layer {
    const float *attn_norm, *q_norm, *k_norm, *mlp_norm;
    Matrix qkv, proj, gate_up, down;  // gate_up: a panel of gate, a panel of up, and so on
};

struct Model {  // packed_gpt.py fills it, field by field
    const Layer* layers;
    const float *embed, *final_norm, *cos, *sin;  // (vocabulary, d_model), (d_model), (context, d_head / 2) twice
    Matrix head;
    int64_t n_layer, d_model, n_head, n_kv, d_head, d_mlp, context;
    double eps;
};

struct Call {
    const int64_t *ids, *length;  // row r is token ids[r]; tokens that are in the cache, of each of its rows
    void *keys, *values;          // (texts, n_layer, n_kv, panels...)
    float* logits;                // (rows from `first_logits` on, 16 * head.panels)
    int64_t rows, first_logits, prompt;  // prompt: 1 where all rows go on with text 0, else row r goes on with text r

    int64_t text(int64_t r) const { return prompt ? 0 : r; }
    int64_t position(int64_t r) const { return prompt ? length[0] + r : length[r]; }
};

static void norm(const float* x, const float* gain, float* y, int64_t n, double eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    const float factor = 1 / std::sqrt(sum / n + (float)eps);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * factor * gain[i];
}

static void rope(float* x, const float* cos, const float* sin, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

// Scores of the first `span` keys become shares that sum to 1; the others, up to `width`, get 0.
static void softmax(const float* score, int64_t span, int64_t width, float* share) {
    float most = score[0], total = 0;
#pragma omp simd reduction(max : most)
    for (int64_t s = 0; s < span; s++) most = std::max(most, score[s]);
#pragma omp simd reduction(+ : total)
    for (int64_t s = 0; s < span; s++) total += share[s] = exponential(score[s] - most);
    for (int64_t s = 0; s < span; s++) share[s] /= total;
    std::fill(share + span, share + width, 0.0f);
}

struct Shared { std::vector<float> x, qkv, z, act; };  // what all threads see: (rows, padded width) each

constexpr int BLOCK = 16;  // rows of a prompt that attend together
// What one thread does. The rows are split among threads where there are many, else the outputs and the heads are.
template <class K, class C> struct Worker {
    const Model& m;
    const Call& c;
    Shared& s;
    Team& team;
    int me;
    bool by_rows = c.prompt && c.rows >= 16 * team.count;
    int part = by_rows ? 0 : me, parts = by_rows ? 1 : team.count;
    int64_t start = by_rows ? c.rows * me / team.count : 0, end = by_rows ? c.rows * (me + 1) / team.count : c.rows;
    int64_t d = padded(m.d_model, PADDING), heads = padded(m.n_head * m.d_head, PADDING);
    int64_t width = PANEL * m.layers[0].qkv.panels, mlp = PANEL * m.layers[0].gate_up.panels / 2;
    int64_t context = padded(m.context, PAIRS);
    std::vector<float>&scores = own<K>.scores, &found = own<K>.found, &gated = own<K>.gated;

    void my_panels(const Rows<K>& x, const Matrix& w, float* y, int64_t stride, bool add) {
        product(x, w, y, stride, add, w.panels * part / parts, w.panels * (part + 1) / parts);
    }
    Rows<K> normed(const float* x, const float* gain, int64_t count) {
        return prepare<K>(count, m.d_model, PADDING, [&](int64_t i, float* to) { norm(x + i * d, gain, to, m.d_model, m.eps); });
    }
    Rows<K> copied(const float* x, int64_t stride, int64_t n) {
        return prepare<K>(end - start, n, PADDING, [&](int64_t i, float* to) { std::copy_n(x + (start + i) * stride, n, to); });
    }
    void sync_parts() { if (parts > 1) team.wait(); }

    // Keys or values of the text of row r, head g.
    typename C::Weight* in_cache(void* cache, int64_t layer, int64_t r, int64_t g) {
        return (typename C::Weight*)cache + ((c.text(r) * m.n_layer + layer) * m.n_kv + g) * context * padded(m.d_head, PAIRS);
    }
    // Query or key `h` of row r behind its norm and RoPE.
    void turned(int64_t r, int64_t h, const float* gain, float* to) {
        const int64_t n = m.d_head, at = c.position(r) * n / 2;
        norm(&s.qkv[r * width + h * n], gain, to, n, m.eps);
        rope(to, m.cos + at, m.sin + at, n / 2);
    }

    // The key and the value of row r, head g, go into the cache.
    void store(int64_t layer, int64_t r, int64_t g) {
        const int64_t n = m.d_head, at = c.position(r), u = C::U, wide = padded(n, PAIRS);
        float* key = &s.qkv[r * width + (m.n_head + g) * n];
        const float* value = key + m.n_kv * n;
        turned(r, m.n_head + g, m.layers[layer].k_norm, key);
        auto *keys = in_cache(c.keys, layer, r, g), *values = in_cache(c.values, layer, r, g);
        for (int64_t e = 0; e < n; e++) {
            keys[(at / PANEL * wide + e / u * u) * PANEL + at % PANEL * u + e % u] = C::store(key[e]);
            values[(e / PANEL * context + at / u * u) * PANEL + e % PANEL * u + at % u] = C::store(value[e]);
        }
    }

    // z = softmax(q keys / sqrt(d_head)) values, for the queries of rows r .. r + count - 1 that share the keys g.
    void attend(int64_t layer, int64_t r, int64_t count, int64_t g) {
        const int64_t n = m.d_head, group = m.n_head / m.n_kv, all = count * group, wide = padded(n, PAIRS);
        const int64_t span = padded(c.position(r + count - 1) + 1, PAIRS);
        scores.resize(std::max<size_t>(scores.size(), all * span));
        found.resize(std::max<size_t>(found.size(), all * wide));
        const auto queries = prepare<C>(all, n, PAIRS, [&](int64_t i, float* q) {
            turned(r + i / group, g * group + i % group, m.layers[layer].q_norm, q);
            for (int64_t e = 0; e < n; e++) q[e] /= std::sqrt((float)n);
        });
        const auto *keys = in_cache(c.keys, layer, r, g), *values = in_cache(c.values, layer, r, g);
        multiply<C>({queries, keys, wide * PANEL, wide, nullptr, nullptr, scores.data(), span, false}, 0, span / PANEL);
        const auto shares = prepare<C>(all, span, PAIRS, [&](int64_t i, float* to) {
            softmax(&scores[i * span], c.position(r + i / group) + 1, span, to);
        });
        multiply<C>({shares, values, context * PANEL, span, nullptr, nullptr, found.data(), wide, false}, 0, wide / PANEL);
        for (int64_t i = 0; i < all; i++)
            std::copy_n(&found[i * wide], n, &s.z[(r + i / group) * heads + (g * group + i % group) * n]);
    }

    void attention(int64_t layer) {
        const Layer& l = m.layers[layer];
        my_panels(normed(&s.x[start * d], l.attn_norm, end - start), l.qkv, &s.qkv[start * width], width, false);
        sync_parts();
        const int64_t pairs = (end - start) * m.n_kv, block = c.prompt ? BLOCK : 1, blocks = (c.rows + block - 1) / block * m.n_kv;
        for (int64_t i = part; i < pairs; i += parts) store(layer, start + i / m.n_kv, i % m.n_kv);
        if (c.prompt && team.count > 1) team.wait();  // keys of other threads' rows are needed
        for (int64_t b = me; b < blocks; b += team.count)
            attend(layer, b / m.n_kv * block, std::min(block, c.rows - b / m.n_kv * block), b % m.n_kv);
        if (team.count > 1) team.wait();
        my_panels(copied(s.z.data(), heads, m.n_head * m.d_head), l.proj, &s.x[start * d], d, true);
        sync_parts();
    }

    void feed_forward(int64_t layer) {
        const Layer& l = m.layers[layer];
        const auto x = normed(&s.x[start * d], l.mlp_norm, end - start);
        const int64_t pairs = l.gate_up.panels / 2, last = pairs * (part + 1) / parts;
        gated.resize(std::max<size_t>(gated.size(), x.count * 2 * ALONE * PANEL));
        for (int64_t p = pairs * part / parts; p < last; p += ALONE / 2) {
            const int64_t some = std::min<int64_t>(ALONE / 2, last - p), stride = 2 * some * PANEL;
            product(x, l.gate_up, gated.data() - 2 * p * PANEL, stride, false, 2 * p, 2 * (p + some));
            for (int64_t r = 0; r < x.count; r++)
                for (int64_t j = 0; j < some; j++)
                    for (int64_t i = 0; i < PANEL; i++) {
                        const float* gate = &gated[r * stride + 2 * j * PANEL + i];
                        s.act[(start + r) * mlp + (p + j) * PANEL + i] = gate[0] * gate[PANEL] / (1 + exponential(-gate[0]));
                    }
        }
        sync_parts();
        my_panels(copied(s.act.data(), mlp, m.d_mlp), l.down, &s.x[start * d], d, true);
        sync_parts();
    }

    void work() {
        for (int64_t r = start + (by_rows ? 0 : me); r < end; r += by_rows ? 1 : team.count)
            std::copy_n(m.embed + c.ids[r] * m.d_model, m.d_model, &s.x[r * d]);
        sync_parts();
        for (int64_t layer = 0; layer < m.n_layer; layer++) attention(layer), feed_forward(layer);
        if (by_rows && team.count > 1) team.wait();
        part = me, parts = team.count;
        my_panels(normed(&s.x[c.first_logits * d], m.final_norm, c.rows - c.first_logits), m.head, c.logits, PANEL * m.head.panels, false);
    }
};

template <class K, class C> static void step(const Model& m, const Call& c, int threads) {
    static Shared shared;
    shared.x.resize(c.rows * padded(m.d_model, PADDING));
    shared.qkv.resize(c.rows * PANEL * m.layers[0].qkv.panels);
    shared.z.resize(c.rows * padded(m.n_head * m.d_head, PADDING));
    shared.act.resize(c.rows * PANEL * m.layers[0].gate_up.panels / 2);
    together(threads, [&](int me) { Worker<K, C>{m, c, shared, *team, me}.work(); });
}

// x (rows, n) w^T -> y (rows, 16 * panels)
template <class K> static void linear(const Matrix& w, const float* x, float* y, int64_t rows, int64_t n, int threads) {
    together(threads, [&](int me) {
        const auto inputs = prepare<K>(rows, n, PADDING, [&](int64_t i, float* to) { std::copy_n(x + i * n, n, to); });
        product<K>(inputs, w, y, PANEL * w.panels, false, w.panels * me / team->count, w.panels * (me + 1) / team->count);
    });
}

#define EXPORT(NAME, K, C)                                                                                        \
    extern "C" void step_##NAME(const Model* m, const Call* c, int threads) { step<K, C>(*m, *c, threads); }      \
    extern "C" void linear_##NAME(const Matrix* w, const float* x, float* y, int64_t rows, int64_t n, int threads) { \
        linear<K>(*w, x, y, rows, n, threads);                                                                    \
    }
EXPORT(float32, Float32, Float32)
EXPORT(bfloat16, BFloat16, BFloat16)
EXPORT(int8, Int8, BFloat16)
