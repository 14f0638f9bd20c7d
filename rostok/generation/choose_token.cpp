// The choice of a token from a row of logits: what pick() of generate.py does with tensors, in one pass over each row
// and without sorting the vocabulary. packed_gpt.py fills the struct and calls choose_rows().
//
// "The k likeliest" and "the likeliest that sum to p" are found by counting logits in BUCKETS buckets of equal width,
// from the highest down; only the bucket in which the border lies is sorted.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

constexpr int BUCKETS = 512, PART = 64;
constexpr float WIDTH = 1.0f / 16;  // of a bucket; everything 32 or more below the highest logit shares the last one
constexpr float NONE = -std::numeric_limits<float>::infinity();

struct Sampling {  // as generate.py's Sampling
    double temperature, top_p, min_p, penalty;
    int64_t top_k;
};

static inline double bits_to_double(int64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// e^x for x <= 0 (below -700: e^-700), to about 1e-15 of it, as 2^n e^f with |f| <= ln 2 / 2; without branches, for the compiler.
static inline double exponential(double x) {
    const double t = std::max(x, -700.0), shifted = t * 1.4426950408889634 + 6755399441055744.0;  // n in its lowest bits
    const double n = shifted - 6755399441055744.0, f = t - n * 0.69314718036912382 - n * 1.9082149292705877e-10;
    double p = 1.0 / 479001600;
    p = p * f + 1.0 / 39916800, p = p * f + 1.0 / 3628800, p = p * f + 1.0 / 362880, p = p * f + 1.0 / 40320;
    p = p * f + 1.0 / 5040, p = p * f + 1.0 / 720, p = p * f + 1.0 / 120, p = p * f + 1.0 / 24, p = p * f + 1.0 / 6;
    p = (p * f + 0.5) * f * f + f + 1;
    int64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return p * bits_to_double((bits + 1023) << 52);
}

struct Row {
    std::vector<float> x;       // logits behind the filters; NONE: cannot be chosen
    std::vector<double> share;  // e^x
    std::vector<int32_t> some;  // ids

    static int bucket(float x) { return (int)std::min(-x / WIDTH, BUCKETS - 1.0f); }  // x <= 0

    // `some` = the tokens above `least`; gives their weight.
    template <class Weigh>
    double above(float least, Weigh weigh) {
        const int32_t n = x.size();
        int32_t count = 0;
        some.resize(n);
        for (int32_t i = 0; i < n; i++) some[count] = i, count += x[i] > least;
        some.resize(count);
        double sum = 0;
        for (int32_t i : some) sum += weigh(i);
        return sum;
    }

    // Keep the likeliest tokens until their weights sum to `most`; of equal tokens the higher id comes first.
    // `equals`: also those that equal the last one.
    template <class Weigh>
    void keep(double most, bool equals, Weigh weigh) {
        for (float least : {-4.0f, -16.0f, NONE})  // few are enough, almost always
            if (above(least, weigh) >= most) break;
        double weight[BUCKETS] = {}, sum = 0;
        for (int32_t i : some) weight[bucket(x[i])] += weigh(i);
        int border = 0;
        while (border < BUCKETS - 1 && sum + weight[border] < most) sum += weight[border++];
        std::erase_if(some, [&](int32_t i) { return bucket(x[i]) != border; });
        std::sort(some.begin(), some.end(), [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a > b; });
        int32_t last = 0;
        for (int32_t i : some) {
            if (sum >= most && sum > 0) break;
            sum += weigh(last = i);
        }
        const float cut = x[last];
        const int32_t n = x.size(), lowest = equals ? 0 : last;
        float* of = x.data();
        for (int32_t i = 0; i < n; i++) of[i] = of[i] < cut || (of[i] == cut && i < lowest) ? NONE : of[i];
    }

    double sum(size_t from, size_t to) const {  // of the shares
        const double* of = share.data();
        double total = 0;
#pragma omp simd reduction(+ : total)
        for (size_t i = from; i < to; i++) total += of[i];
        return total;
    }

    // The id on whose part of the running sum of e^x the number `uniform` of [0, 1) falls.
    int64_t fall(double uniform) const {
        const size_t n = share.size();
        double all = 0, below = 0, part = 0;
        for (size_t from = 0; from < n; from += PART) all += sum(from, std::min(from + PART, n));
        const double height = uniform * all;
        size_t from = 0, last = 0;
        for (; from < n && below + (part = sum(from, std::min(from + PART, n))) <= height; from += PART) below += part;
        for (size_t i = from; i < n; i++)
            if (share[i] > 0 && (below += share[last = i]) > height) return i;
        if (from >= n)  // rounding left the height at the whole sum: the last that can be chosen
            for (size_t i = 0; i < n; i++)
                if (share[i] > 0) last = i;
        return last;
    }

    int64_t choose(const float* logits, int64_t n, const Sampling& s, const uint8_t* seen, double uniform) {
        x.assign(logits, logits + n);
        float* of = x.data();
        if (seen)
            for (int64_t i = 0; i < n; i++)
                if (seen[i]) of[i] = of[i] < 0 ? of[i] * (float)s.penalty : of[i] / (float)s.penalty;
        float most = NONE, finite = 0;
        int64_t where = 0;
        for (int64_t from = 0; from < n; from += PART) {
            float highest = NONE;
#pragma omp simd reduction(max : highest) reduction(+ : finite)
            for (int64_t i = from; i < std::min<int64_t>(from + PART, n); i++) highest = std::max(highest, of[i]), finite += of[i] * 0;
            if (highest > most) most = highest, where = from;
        }
        if (finite != 0) return -1;  // nan, as infinity * 0 is
        if (s.temperature < 1e-6) return std::find(of + where, of + n, most) - of;
        const float temperature = s.temperature;
        for (int64_t i = 0; i < n; i++) of[i] = (of[i] - most) / temperature;
        if (s.top_k > 0 && s.top_k < n) keep(s.top_k, true, [](int64_t) { return 1.0; });
        share.resize(n);
        double* to = share.data();
        for (int64_t i = 0; i < n; i++) to[i] = exponential(of[i]);
        for (int64_t i = 0; i < n; i++) to[i] = of[i] == NONE ? 0 : to[i];
        if (s.top_p < 1) keep(s.top_p * sum(0, n), false, [&](int64_t i) { return to[i]; });
        for (int64_t i = 0; i < n; i++) to[i] = of[i] == NONE || to[i] < s.min_p ? 0 : to[i];
        return fall(uniform);
    }
};

// ids[r] for each row of logits (rows, stride), n of them in use; -1 where they are not finite numbers.
extern "C" void choose_rows(const float* logits, const uint8_t* seen, const double* uniform, int64_t rows, int64_t stride,
                            int64_t n, const Sampling* sampling, int64_t* ids) {
    static thread_local Row row;
    for (int64_t r = 0; r < rows; r++)
        ids[r] = row.choose(logits + r * stride, n, *sampling, seen ? seen + r * n : nullptr, uniform ? uniform[r] : 0);
}
